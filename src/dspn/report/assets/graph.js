// A template node by node, as a layered drawing to move about in.

import { clamp, make, shape, shortened } from "./dom.js";
import { groupColour } from "./colours.js";
import { facts } from "./records.js";
import { hideTooltip, showTooltip } from "./tooltip.js";
import { kindOf, nodeDetails } from "./node_panel.js";

const UNIT = 46;
const ROW = 92;
const TALLEST = 300;
const MANY_EDGES = 300;
const RADIUS = 14;
const MARGIN = { left: 74, right: 30, top: 30, bottom: 38 };
const LEGIBLE = 0.62;

function placesIn(drawing) {
  const rows = 1 + Math.max(...drawing.nodes.map((node) => node.row));
  const x = (column) => MARGIN.left + column * UNIT;
  const width = x(Math.max(drawing.columns - 1, 2)) + MARGIN.right;
  const rowHeight = clamp(0.06 * width, ROW, TALLEST);
  const y = (row) => MARGIN.top + (rows - 1 - row) * rowHeight;
  return {
    x,
    y,
    rows,
    rowHeight,
    width,
    height: y(0) + MARGIN.bottom,
  };
}

function edgePath(drawing, places, [parent, child, , bends]) {
  const [upper, lower] = [drawing.nodes[parent], drawing.nodes[child]];
  const points = [[upper.column, upper.row]];
  bends.forEach((column, i) => points.push([column, upper.row - 1 - i]));
  points.push([lower.column, lower.row]);
  const at = points.map(([column, row]) => [places.x(column), places.y(row)]);
  let path = `M${at[0][0]} ${at[0][1]}`;
  for (let i = 1; i < at.length; i++) {
    const middle = (at[i - 1][1] + at[i][1]) / 2;
    path += `C${at[i - 1][0]} ${middle} ${at[i][0]} ${middle} ${at[i][0]} ${at[i][1]}`;
  }
  return path;
}

function edgeShape(drawing, places, edge) {
  const weight = edge[2];
  const line = shape("path", { class: "edge", d: edgePath(drawing, places, edge) });
  line.style.strokeWidth = weight === null ? 1 : 0.7 + 4.5 * weight;
  if (weight === 0) line.classList.add("zero");
  // Where lines cover each other, the light ones give way to the heavy ones.
  if (weight !== null && drawing.edges.length > MANY_EDGES) {
    line.style.strokeOpacity = clamp(0.06 + 1.5 * weight, 0, 0.8);
  }
  return line;
}

function signs(node) {
  if (node.kind === "sum") return [shape("path", { class: "sign", d: "M-6 0H6M0 -6V6" })];
  if (node.kind === "product") return [shape("path", { class: "sign", d: "M-5 -5L5 5M5 -5L-5 5" })];
  return [];
}

function nodeShape(node) {
  const box = { x: -RADIUS, y: -RADIUS, width: 2 * RADIUS, height: 2 * RADIUS, rx: 4 };
  const body = node.kind === "leaf" ? shape("rect", box) : shape("circle", { r: RADIUS });
  const interfaceNode = node.kind === "input" || node.output !== undefined;
  const tint = groupColour(node.group);
  body.setAttribute("class", "shape");
  body.style.fill = `color-mix(in srgb, ${tint} 22%, var(--paper))`;
  body.style.stroke = interfaceNode ? "var(--interface)" : tint;
  const ring = shape("circle", { class: "ring", r: RADIUS + 6 });
  const group = shape("g", { class: "node" }, ring, body, ...signs(node));
  if (node.kind === "input") group.append(shape("text", {}, String(node.input)));
  if (node.output !== undefined) group.append(shape("text", { x: RADIUS + 6, y: -RADIUS + 2 }, String(node.output)));
  if (node.variable !== undefined) {
    const name = facts.variables[node.variable].name;
    group.append(shape("text", { y: RADIUS + 10 }, shortened(name, 7)));
  }
  return group;
}

function rowLabels(drawing, places) {
  const labels = [[0, "inputs"], [drawing.topRow, "outputs"]];
  if (places.rows - 1 > drawing.topRow) labels.push([places.rows - 1, "top"]);
  return labels.map(([row, text]) => shape("text", { class: "row-label", x: 8, y: places.y(row) + 4 }, text));
}

function topLine(drawing, places) {
  if (places.rows - 1 <= drawing.topRow) return [];
  const y = places.y(drawing.topRow) - places.rowHeight / 2;
  return [shape("line", { class: "top-line", x1: 8, x2: places.width - 8, y1: y, y2: y })];
}

// The node that an arrow key leads to: along the row, or the nearest one in the next row.
function neighbour(drawing, index, key) {
  const node = drawing.nodes[index];
  const indices = drawing.nodes.map((_, i) => i);
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const row = indices.filter((i) => drawing.nodes[i].row === node.row);
    row.sort((a, b) => drawing.nodes[a].column - drawing.nodes[b].column);
    return row[row.indexOf(index) + (key === "ArrowRight" ? 1 : -1)];
  }
  const up = key === "ArrowUp";
  const rows = [...new Set(drawing.nodes.map((own) => own.row))].sort((a, b) => a - b);
  const row = rows[rows.indexOf(node.row) + (up ? 1 : -1)];
  const joined = new Set(drawing.edges.filter((e) => e[up ? 1 : 0] === index).map((e) => e[up ? 0 : 1]));
  const there = indices.filter((i) => drawing.nodes[i].row === row);
  const linked = there.filter((i) => joined.has(i));
  const distance = (i) => Math.abs(drawing.nodes[i].column - node.column);
  return (linked.length ? linked : there).sort((a, b) => distance(a) - distance(b))[0];
}

class Drawing {
  constructor(drawing, panel) {
    this.drawing = drawing;
    this.panel = panel;
    this.places = placesIn(drawing);
    const { width, height } = this.places;
    this.edges = drawing.edges.map((edge) => edgeShape(drawing, this.places, edge));
    this.nodes = drawing.nodes.map((node, i) => this.placed(node, i));
    this.svg = shape(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Nodes of the template" },
      ...topLine(drawing, this.places),
      ...this.edges,
      ...rowLabels(drawing, this.places),
      ...this.nodes,
    );
    this.view = make("div", { class: "canvas" }, this.svg);
    this.chosen = drawing.nodes.findIndex((node) => node.output === 0);
    this.nodes[this.chosen].setAttribute("tabindex", "0");
    this.show(this.chosen);
  }

  placed(node, index) {
    const element = nodeShape(node);
    const [x, y] = [this.places.x(node.column), this.places.y(node.row)];
    element.setAttribute("transform", `translate(${x} ${y})`);
    element.setAttribute("tabindex", "-1");
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", kindOf(node));
    element.addEventListener("pointerenter", (event) => {
      this.show(index);
      showTooltip(kindOf(node), event.clientX, event.clientY);
    });
    element.addEventListener("pointerleave", hideTooltip);
    element.addEventListener("focus", () => this.show(index));
    element.addEventListener("click", () => element.focus());
    element.addEventListener("keydown", (event) => this.moved(event, index));
    return element;
  }

  moved(event, index) {
    if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    const next = neighbour(this.drawing, index, event.key);
    if (next === undefined) return;
    this.nodes[index].setAttribute("tabindex", "-1");
    this.nodes[next].setAttribute("tabindex", "0");
    this.nodes[next].focus();
  }

  show(index) {
    this.nodes[this.chosen].classList.remove("on");
    this.nodes[index].classList.add("on");
    this.drawing.edges.forEach(([parent, child], e) => {
      this.edges[e].classList.toggle("on", parent === index || child === index);
    });
    this.chosen = index;
    this.panel.replaceChildren(...nodeDetails(this.drawing, index));
  }

  // A wide drawing begins at a scale at which it can be read.
  fit(least) {
    this.zoom(Math.max(Math.min(1, (this.view.clientWidth - 2) / this.places.width), least));
  }

  zoom(scale) {
    this.scale = clamp(scale, 0.05, 3);
    this.svg.setAttribute("width", this.places.width * this.scale);
    this.svg.setAttribute("height", this.places.height * this.scale);
  }
}

const swatch = (node) =>
  shape("svg", { width: 22, height: 22, viewBox: "-18 -18 36 36", "aria-hidden": "true" }, nodeShape(node));

function key(drawing) {
  const has = (kind) => drawing.nodes.some((node) => node.kind === kind);
  const entries = [];
  if (has("sum")) entries.push([swatch({ kind: "sum" }), "sum, line width is the weight"]);
  if (has("product")) entries.push([swatch({ kind: "product" }), "product"]);
  if (has("leaf")) entries.push([swatch({ kind: "leaf" }), "leaf of a variable"]);
  entries.push([swatch({ kind: "input", input: "" }), "interface, with its number"]);
  if (drawing.edges.some((edge) => edge[2] === 0)) entries.push(["", "dotted: weight 0"]);
  return make("div", { class: "key" }, ...entries.map(([mark, text]) => make("span", {}, mark, text)));
}

export function graphView(drawing, bar) {
  const panel = make("aside", { class: "panel", "aria-label": "The node pointed at", "aria-live": "polite" });
  const own = new Drawing(drawing, panel);
  const button = (text, label, work) => {
    const element = make("button", { type: "button", "aria-label": label }, text);
    element.addEventListener("click", work);
    return element;
  };
  bar.append(
    button("−", "Smaller", () => own.zoom(own.scale / 1.25)),
    button("+", "Larger", () => own.zoom(own.scale * 1.25)),
    button("Fit", "Fit the width", () => own.fit(0)),
  );
  const view = make("div", {}, make("div", { class: "drawing" }, own.view, panel), key(drawing));
  return { view, fit: () => own.fit(LEGIBLE) };
}

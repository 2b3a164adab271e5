// What a node of a template is: kind, scope, weights, distribution.

import { bars, brief, clamp, defined, exact, make, named, shape } from "./dom.js";
import { facts } from "./records.js";

const MOST_BARS = 12;
const variableName = (v) => facts.variables[v].name;

export function kindOf(node) {
  const words = { input: "Input", leaf: "Leaf", product: "Product", sum: "Sum" };
  let text = words[node.kind];
  if (node.kind === "input") text += ` ${node.input}`;
  if (node.kind === "leaf") text += ` of ${variableName(node.variable)}`;
  if (node.output !== undefined) text += `, output ${node.output}`;
  return text;
}

function scopeText([own, below]) {
  const here = own.length ? named(own.map(variableName)) : "no variable of this slice";
  if (!below.length) return here;
  return `${here}; in the slices below ${named(below.map(variableName))}`;
}

function limitedBars(rows) {
  const sorted = [...rows].sort((a, b) => b[1] - a[1]);
  const shown = new Set(sorted.slice(0, MOST_BARS));
  const box = make("div", {}, bars(rows.filter((row) => shown.has(row))));
  if (rows.length > MOST_BARS) {
    const rest = sorted.slice(MOST_BARS).reduce((sum, row) => sum + row[1], 0);
    box.append(make("small", { class: "muted" }, `${rows.length - MOST_BARS} more have ${brief(rest)}`));
  }
  return box;
}

function curve(points, closed) {
  const path = points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  const area = shape("path", { d: path + closed, fill: "currentColor", "fill-opacity": "0.2" });
  const line = shape("path", { d: path, fill: "none", stroke: "currentColor", "stroke-width": "1.5" });
  const box = shape("svg", { viewBox: "0 0 240 54", width: "100%", "aria-hidden": "true" }, area, line);
  box.style.color = "var(--accent)";
  return box;
}

function gaussianSketch([mean, variance], { low, high }) {
  const deviation = Math.sqrt(variance);
  const from = Math.min(low, mean - 3 * deviation);
  const to = Math.max(high, mean + 3 * deviation);
  const points = Array.from({ length: 121 }, (_, i) => {
    const z = (from + ((to - from) * i) / 120 - mean) / deviation;
    return [2 * i, 50 - 46 * Math.exp(-0.5 * z * z)];
  });
  return [curve(points, "L240 50L0 50Z"), ends(from, to)];
}

function ends(from, to) {
  return make("div", { class: "ends" }, make("span", {}, brief(from)), make("span", {}, brief(to)));
}

function poissonSketch([rate]) {
  const most = Math.ceil(clamp(rate + 4 * Math.sqrt(rate) + 2, 4, 400));
  const probabilities = [Math.exp(-rate)];
  for (let k = 1; k <= most; k++) probabilities.push((probabilities[k - 1] * rate) / k);
  const peak = Math.max(...probabilities) || 1;
  const width = 240 / (most + 1);
  const points = probabilities.flatMap((p, k) => [
    [k * width, 50 - (46 * p) / peak],
    [(k + 1) * width, 50 - (46 * p) / peak],
  ]);
  return [curve(points, "L240 50L0 50Z"), ends(0, most)];
}

export function distribution(variable, parameters) {
  const own = facts.variables[variable];
  if (own.kind === "categorical") {
    return [["Probabilities", limitedBars(own.categories.map((name, c) => [name, parameters[c]]))]];
  }
  if (own.kind === "count") {
    return [["Poisson, rate", exact(parameters[0])], ["", make("div", {}, ...poissonSketch(parameters))]];
  }
  const said = `${exact(parameters[0])}, standard deviation ${exact(Math.sqrt(parameters[1]))}`;
  return [["Gaussian, mean", said], ["", make("div", {}, ...gaussianSketch(parameters, own))]];
}

export function nodeDetails(drawing, index) {
  const node = drawing.nodes[index];
  const own = drawing.edges.filter((edge) => edge[0] === index);
  const readers = drawing.edges.filter((edge) => edge[1] === index).length;
  const rows = [["Scope", scopeText(node.scope)]];
  if (node.group !== undefined) rows.push(["Interface group", String(node.group)]);
  if (node.kind === "input") rows.push(["Value", `that of output ${node.input}, one slice below`]);
  const childName = (edge) => kindOf(drawing.nodes[edge[1]]);
  if (node.kind === "sum") {
    rows.push([`Weights of ${own.length} children`, limitedBars(own.map((e) => [childName(e), e[2]]))]);
    if (own.length && own[0][4] !== null) {
      rows.push(["Weights in the bottom network", limitedBars(own.map((e) => [childName(e), e[4]]))]);
    }
  }
  if (node.kind === "product") rows.push([`Multiplies ${own.length}`, named(own.map(childName), 12)]);
  if (node.kind === "leaf") {
    rows.push(...distribution(node.variable, node.parameters));
    if (node.bottom) {
      rows.push(["In the bottom network", ""], ...distribution(node.variable, node.bottom));
    }
  }
  rows.push(["Read by", readers ? `${readers} ${readers === 1 ? "node" : "nodes"}` : "the slice above"]);
  return [make("h3", {}, kindOf(node)), defined(rows)];
}


// A template too large for single nodes: a block for each group.

import { brief, bars, counted, defined, make, named } from "./dom.js";
import { groupColour, groupShade } from "./colours.js";
import { bytesOf, facts } from "./records.js";

const kinds = { leaf: ["leaf", "leaves"], sum: ["sum", "sums"], product: ["product", "products"] };

function said(counts) {
  return Object.entries(counts)
    .map(([kind, number]) => counted(number, ...(kinds[kind] ?? [kind])))
    .join(", ");
}

function picture({ height, width, cells }, group) {
  const canvas = make("canvas", { width, height, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const shades = Array.from({ length: 256 }, (_, n) => groupShade(group, n / 255));
  bytesOf(cells).forEach((level, i) => {
    context.fillStyle = shades[level];
    context.fillRect(i % width, Math.floor(i / width), 1, 1);
  });
  return canvas;
}

function mixItem(own, group) {
  const words = `${counted(own.mixes, "sum")} over the inputs: a row for each sum, a column for each input, darker `
    + `for a larger weight (up to ${brief(own.picture.peak)})`;
  return make("li", { class: "picture" }, picture(own.picture, group), make("span", {}, words));
}

function leafDetails(variable, leaves) {
  const own = facts.variables[variable];
  const rows = [["Leaves in all groups", leaves.count.toLocaleString("en")]];
  if (leaves.bars) {
    const shown = leaves.bars.map(([code, share]) => [own.categories[code], share]);
    rows.push(["Mean probabilities", bars(shown)]);
  } else {
    const [low, high, deviation] = leaves.spans;
    rows.push(["Means", low === high ? brief(low) : `${brief(low)} to ${brief(high)}`]);
    rows.push(["Standard deviation, median", brief(deviation)]);
  }
  return [make("h3", {}, `Leaves of ${own.name}`), defined(rows)];
}

function leafItem(own, show) {
  const total = own.leaves.reduce((sum, [, number]) => sum + number, 0);
  const chips = own.leaves.map(([variable, number]) => {
    const name = facts.variables[variable].name;
    const words = `${name} × ${number.toLocaleString("en")}`;
    const chip = make("button", { type: "button", "aria-pressed": "false", title: words }, words);
    for (const event of ["click", "focus", "pointerenter"]) {
      chip.addEventListener(event, () => show(variable, chip));
    }
    return chip;
  });
  return make("li", {}, counted(total, "leaf", "leaves"), make("div", { class: "chips" }, ...chips));
}

function block(own, number, component, show) {
  const { variables, reads } = component.groups[number];
  const items = [make("li", {}, `Outputs: ${said(own.outputs)}`)];
  if (Object.keys(own.joining).length) items.push(make("li", {}, `Between: ${said(own.joining)}`));
  if (own.picture) items.push(mixItem(own, number));
  if (Object.keys(own.alone).length) items.push(make("li", {}, `Over the slice alone: ${said(own.alone)}`));
  items.push(leafItem(own, show));
  const from = reads.map((group) => `group ${group}`);
  items.push(make("li", {}, `Inputs: ${counted(own.inputs, "node")}, reads ${named(from) || "no input"}`));
  const title = make("h3", {}, `Group ${number}: ${counted(own.inputs, "interface node")}`);
  const names = named(variables.map((v) => facts.variables[v].name));
  const element = make("div", { class: "block" }, title, make("div", { class: "muted" }, `over ${names}`));
  element.style.setProperty("--group", groupColour(number));
  element.append(make("ul", { class: "flow" }, ...items));
  return element;
}

export function blocksView(drawing, component) {
  const panel = make("aside", { class: "panel", "aria-label": "The leaves pointed at", "aria-live": "polite" });
  let pressed = null;
  const show = (variable, chip) => {
    if (pressed) pressed.setAttribute("aria-pressed", "false");
    if (chip) chip.setAttribute("aria-pressed", "true");
    pressed = chip;
    panel.replaceChildren(...leafDetails(variable, drawing.leaves[variable]));
  };
  const blocks = drawing.groups.map((own, number) => block(own, number, component, show));
  const view = make("div", { class: "drawing" }, make("div", { class: "blocks" }, ...blocks), panel);
  const rest = component.groups.length - drawing.groups.length;
  if (rest) view.firstChild.append(make("p", { class: "muted" }, `and ${counted(rest, "more group", "more groups")}`));
  show(0, null);
  return { view, fit: () => {} };
}

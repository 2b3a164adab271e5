// The template of one component at a time.

import { brief, byId, counted, make, named } from "./dom.js";
import { facts } from "./records.js";
import { blocksView } from "./blocks.js";
import { graphView } from "./graph.js";

function described({ counts, groups, tied, drawing }) {
  const parts = [
    counted(counts.nodes, "node"),
    counted(counts.edges, "edge"),
    counted(counts.leaves, "leaf", "leaves"),
    `${counted(counts.interfaces, "interface node")} in ${counted(groups.length, "group")}`,
  ];
  const bottom = tied
    ? "The bottom network shares its parameters."
    : "The bottom network has parameters of its own.";
  const how = drawing.style === "blocks"
    ? "The template is too large for single nodes: blocks stand for groups."
    : "Point at a node, or move to it with the arrow keys, to see what it is.";
  return `${parts.join(", ")}. ${bottom} ${how}`;
}

function groupList({ groups, drawing }) {
  if (groups.length < 2 || drawing.style === "blocks") return [];
  const items = groups.map(({ size, variables, reads }, number) => {
    const names = named(variables.map((v) => facts.variables[v].name), 12);
    const from = reads.length ? `, reads ${named(reads.map((group) => `group ${group}`))}` : "";
    return make("li", {}, `Group ${number}: ${counted(size, "interface node")} over ${names}${from}`);
  });
  return [make("ul", { class: "small" }, ...items)];
}

function show(number) {
  const component = facts.components[number];
  const bar = byId("template-bar");
  for (const button of bar.querySelectorAll("button")) button.remove();
  const { drawing } = component;
  const own = drawing.style === "graph" ? graphView(drawing, bar) : blocksView(drawing, component);
  const words = make("p", { class: "muted small" }, described(component));
  byId("template-view").replaceChildren(words, own.view, ...groupList(component));
  own.fit();
}

export function startTemplates() {
  const order = facts.components.map((_, c) => c);
  order.sort((a, b) => facts.components[b].weight - facts.components[a].weight);
  let chosen = order[0];
  if (order.length > 1) {
    const select = make("select", { id: "component" });
    for (const c of order) {
      const { weight, counts } = facts.components[c];
      const words = `${c}: weight ${brief(weight)}, ${counted(counts.interfaces, "interface node")}`;
      select.append(make("option", { value: c }, words));
    }
    select.addEventListener("change", () => show((chosen = Number(select.value))));
    byId("template-bar").append(make("label", { class: "grow" }, `Component, of ${order.length}`, select));
  }
  show(chosen);
  return () => show(chosen);
}

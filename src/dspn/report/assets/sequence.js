// Everything about the chosen sequence, on one axis of slices.

import { bars, brief, byId, counted, exact, fixed, make } from "./dom.js";
import { facts, nameOf, order, recordOf, sequences, sliceName } from "./records.js";
import { Axis } from "./axis.js";
import { Scroller } from "./scroller.js";
import { heatKey, heatMap, sliceChart } from "./heat_map.js";
import { posteriorChart, posteriorWords } from "./posterior.js";
import { bandWords, categoryKey, valueCharts } from "./values.js";
import { tableView } from "./table.js";

const MOST_VARIABLES = 24;

// The variables with the most surprising entries of a sequence, in the order of the slice.
function mostSurprising(record) {
  const count = facts.variables.length;
  const peak = facts.variables.map(() => -Infinity);
  record.entries.forEach((surprise, i) => {
    const excess = surprise - facts.variables[i % count].usual;
    if (excess > peak[i % count]) peak[i % count] = excess;
  });
  const order = peak.map((_, v) => v).sort((a, b) => peak[b] - peak[a] || a - b);
  return order.slice(0, MOST_VARIABLES).sort((a, b) => a - b);
}

function factsText(i) {
  const perSlice = sequences.perSlice[i];
  const parts = [counted(sequences.length[i], "slice")];
  if (order) {
    const own = order.of(i);
    parts.push(own.length > 1 ? `${order.name} ${own[0]} to ${own.at(-1)}` : `${order.name} ${own[0]}`);
  }
  parts.push(sequences.missing[i] ? counted(sequences.missing[i], "missing entry", "missing entries") : "nothing missing");
  if (Number.isFinite(perSlice)) {
    const total = -perSlice * sequences.length[i];
    parts.push(`log-likelihood ${exact(total)} nats`, `surprise ${fixed(perSlice, 4)} nats per slice`);
  }
  return parts.join(", ");
}

function componentShares(record) {
  if (facts.components.length < 2) return [];
  const rows = record.shares.map((share, c) => [`component ${c}`, share]);
  const shown = rows.filter(([, share]) => share >= 0.0005).sort((a, b) => b[1] - a[1]).slice(0, 6);
  return [words("Which component the sequence comes from:"), still("div", "shares", bars(shown))];
}

// What stays in view while the charts scroll sideways.
const still = (tag, kind, ...children) => make(tag, { class: `still ${kind}` }, ...children);
const words = (text) => still("p", "muted small", text);
const heading = (text, said) => [still("h4", "", text), ...(said ? [words(said)] : [])];

export class SequenceView {
  constructor() {
    this.place = byId("chosen");
    this.all = false;
    this.opened = false;
    new ResizeObserver(() => this.resized()).observe(this.place);
  }

  variables(record) {
    const every = facts.variables.map((_, v) => v);
    return this.all || every.length <= MOST_VARIABLES ? every : mostSurprising(record);
  }

  show(i) {
    const before = i === this.index ? this.axis : null;
    this.index = i;
    const record = recordOf(i);
    const shown = this.variables(record);
    this.axis = new Axis(record);
    const map = heatMap(record, this.axis, shown);
    this.placed = map.placed;
    this.scroller = new Scroller(
      this.axis,
      ...this.values(record, shown),
      ...heading("Surprise of each slice"),
      ...sliceChart(record, this.axis),
      ...heading("Surprise of each entry"),
      ...map.elements,
      still("div", "", heatKey(record)),
      ...(record.possible ? [this.posterior(record)] : []),
    );
    this.place.replaceChildren(
      make("h3", { id: "chosen-title" }, nameOf(i)),
      make("p", { class: "facts" }, factsText(i)),
      ...this.warning(record),
      ...this.switch(shown),
      ...this.scroller.elements,
      tableView(record, shown),
    );
    this.width = 0;
    this.resized();
    if (before) this.axis.scrolled(before.offset);
  }

  warning(record) {
    if (record.possible) return [];
    const at = record.slices.findIndex((value) => !Number.isFinite(value));
    const said = `The model holds this sequence impossible, from ${sliceName(record, at)} on; nothing can be conditioned on it.`;
    return [make("p", { class: "note alarm" }, said)];
  }

  switch(shown) {
    const count = facts.variables.length;
    if (count <= MOST_VARIABLES) return [];
    const button = make("button", { type: "button" }, this.all ? "Show fewer variables" : "Show all variables");
    button.addEventListener("click", () => {
      this.all = !this.all;
      this.show(this.index);
    });
    const said = shown.length < count ? [`The ${shown.length} most surprising of ${counted(count, "variable")}.`] : [];
    return [make("div", { class: "bar" }, button, ...said.map((text) => make("span", { class: "muted small" }, text)))];
  }

  values(record, shown) {
    const ahead = record.steps ? ` and forecast of ${counted(record.steps, "slice")}` : "";
    const to = record.steps ? ", or forecast on the shaded ground" : "";
    const said = record.possible
      ? `Filled: observed. Hollow or framed: missing, given everything observed${to}. ${bandWords()}; categories are stacked by probability.`
      : "";
    const key = still("div", "", ...categoryKey(shown));
    return [...heading(`Values${ahead}`, said), key, ...valueCharts(record, this.axis, shown)];
  }

  posterior(record) {
    const { component } = record.interface;
    const several = facts.components.length > 1;
    const whose = several ? ` of component ${component}, which has probability ${brief(record.shares[component])}` : "";
    const said = posteriorWords(record.interface);
    const details = make(
      "details",
      { class: "posterior" },
      still("summary", "", `Interface posterior${whose}`),
      ...componentShares(record),
      words(`P(interface node | everything observed), slice by slice. ${said}`),
      ...posteriorChart(record, this.axis),
    );
    details.open = this.opened;
    details.addEventListener("toggle", () => {
      this.opened = details.open;
    });
    return details;
  }

  resized() {
    if (!this.axis || this.place.clientWidth === this.width) return;
    this.width = this.place.clientWidth;
    this.scroller.fit();
    this.placed();
  }
}

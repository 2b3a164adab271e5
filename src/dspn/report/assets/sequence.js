// Everything about the chosen sequence, on one axis of slices.

import { bars, brief, byId, counted, exact, fixed, make } from "./dom.js";
import { facts, nameOf, recordOf, sequences } from "./records.js";
import { Axis, blank, row, tickTrack } from "./axis.js";
import { heatKey, heatMap, sliceChart } from "./heat_map.js";
import { posteriorChart, posteriorWords } from "./posterior.js";
import { bandText, valueCharts } from "./values.js";
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
  const title = make("h4", {}, "Which component it comes from");
  return [title, make("div", { class: "shares" }, bars(shown))];
}

const heading = (text, words) => [make("h4", {}, text), ...(words ? [make("p", { class: "muted small" }, words)] : [])];

export class SequenceView {
  constructor() {
    this.place = byId("chosen");
    this.all = false;
    new ResizeObserver(() => this.resized()).observe(this.place);
  }

  variables(record) {
    const every = facts.variables.map((_, v) => v);
    return this.all || every.length <= MOST_VARIABLES ? every : mostSurprising(record);
  }

  show(i) {
    this.index = i;
    const record = recordOf(i);
    const shown = this.variables(record);
    this.axis = new Axis(record.length, record.steps);
    const map = heatMap(record, this.axis, shown);
    this.placed = map.placed;
    this.place.replaceChildren(
      make("h3", { id: "chosen-title" }, nameOf(i)),
      make("p", { class: "facts" }, factsText(i)),
      ...this.warning(record),
      ...(record.possible ? componentShares(record) : []),
      ...heading("Surprise of each slice"),
      sliceChart(record, this.axis),
      row(blank(), tickTrack(this.axis)),
      ...heading("Surprise of each entry", this.rowsWords(shown)),
      ...this.switch(),
      map.element,
      heatKey(record),
      ...this.conditioned(record, shown),
      tableView(record, shown),
    );
    this.width = 0;
    this.resized();
  }

  warning(record) {
    if (record.possible) return [];
    const at = record.slices.findIndex((value) => !Number.isFinite(value));
    const words = `The model holds this sequence impossible, from slice ${at} on; nothing can be conditioned on it.`;
    return [make("p", { class: "note alarm" }, words)];
  }

  rowsWords(shown) {
    const count = facts.variables.length;
    return shown.length < count ? `The ${shown.length} most surprising of ${counted(count, "variable")}.` : "";
  }

  switch() {
    if (facts.variables.length <= MOST_VARIABLES) return [];
    const button = make("button", { type: "button" }, this.all ? "Show fewer variables" : "Show all variables");
    button.addEventListener("click", () => {
      this.all = !this.all;
      this.show(this.index);
    });
    return [make("div", { class: "bar" }, button)];
  }

  conditioned(record, shown) {
    const parts = [];
    if (record.possible) {
      const { component } = record.interface;
      const several = facts.components.length > 1;
      const whose = several ? ` of component ${component}, which has probability ${brief(record.shares[component])}` : "";
      parts.push(...heading(`Interface posterior${whose}`, posteriorWords(record.interface)));
      parts.push(posteriorChart(record, this.axis));
    }
    const ahead = record.steps ? ` and forecast of ${counted(record.steps, "slice")}` : "";
    const words = record.possible
      ? `Filled: observed. Hollow or framed: missing, given everything observed${record.steps ? ", or forecast on the shaded ground" : ""}. Bands are ${bandText()}; categories are stacked by probability.`
      : "";
    parts.push(...heading(`Values${ahead}`, words), ...valueCharts(record, this.axis, shown));
    return parts;
  }

  resized() {
    if (!this.axis || this.place.clientWidth === this.width) return;
    this.width = this.place.clientWidth;
    this.axis.fit();
    this.placed();
  }
}

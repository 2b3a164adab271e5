// The same numbers as a table, a page of slices at a time.

import { brief, exact, make } from "./dom.js";
import { entryOf, facts, order, surpriseOf } from "./records.js";
import { posteriorText } from "./posterior.js";
import { answerText, valueText } from "./values.js";

const PAGE = 100;

function cellText(record, t, v) {
  const { state, value, answer } = entryOf(record, t, v);
  if (state !== "observed") return `${state}: ${answerText(answer, v).replaceAll("\n", ", ")}`;
  const surprise = surpriseOf(record, t, v);
  const said = Number.isNaN(surprise) ? "" : `, surprise ${exact(surprise)}`;
  return valueText(value, v) + said;
}

function tableBody(record, variables, from, to) {
  const body = make("tbody");
  for (let t = from; t < to; t++) {
    const known = t < record.length;
    const cells = [make("th", { scope: "row" }, known ? String(t) : `+${t - record.length + 1}`)];
    if (order) cells.push(make("td", {}, known ? record.order[t] : ""));
    cells.push(make("td", {}, known ? brief(record.slices[t]) : "forecast"));
    for (const v of variables) cells.push(make("td", {}, cellText(record, t, v)));
    if (record.possible) cells.push(make("td", {}, posteriorText(record, t)));
    body.append(make("tr", {}, ...cells));
  }
  return body;
}

export function tableView(record, variables) {
  const total = record.length + record.steps;
  const details = make("details", { class: "as-table" }, make("summary", {}, "The same as a table"));
  const names = ["Slice", ...(order ? [order.name] : []), "Surprise, nats", ...variables.map((v) => facts.variables[v].name)];
  if (record.possible) names.push("Interface posterior");
  const head = make("thead", {}, make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name))));
  let from = 0;
  const place = make("div");
  const show = () => {
    const to = Math.min(from + PAGE, total);
    const caption = make("caption", { class: "hidden" }, `Slices ${from} to ${to - 1} of ${total}`);
    const table = make("table", {}, caption, head, tableBody(record, variables, from, to));
    const attributes = { class: "table", tabindex: "0", role: "region", "aria-label": "Surprise and values by slice" };
    place.replaceChildren(...pager(to), make("div", attributes, table));
  };
  const pager = (to) => {
    if (total <= PAGE) return [];
    const button = (text, step) => {
      const element = make("button", { type: "button" }, text);
      element.disabled = from + step < 0 || from + step >= total;
      element.addEventListener("click", () => {
        from += step;
        show();
      });
      return element;
    };
    const words = `slices ${from} to ${to - 1} of ${total.toLocaleString("en")}`;
    return [make("div", { class: "pager" }, button("Earlier", -PAGE), words, button("Later", PAGE))];
  };
  details.append(place);
  details.addEventListener("toggle", () => details.open && !place.hasChildNodes() && show());
  return details;
}

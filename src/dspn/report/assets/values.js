// Observed values, and what is known of those that are missing or to come.

import { brief, exact, make, probability } from "./dom.js";
import { categoryColour, colour } from "./colours.js";
import { entryOf, facts, sliceName } from "./records.js";
import { Track, hatch, row, tickRow } from "./axis.js";

const NUMBER_HEIGHT = 62;
const CATEGORY_HEIGHT = 24;
const percent = (level) => `${Math.round(100 * level)} %`;

export function valueText(value, v) {
  const { categories } = facts.variables[v];
  return categories.length ? categories[value] : exact(value);
}

export function bandText() {
  const [low, , high] = facts.levels;
  return `${percent(low)} to ${percent(high)}`;
}

export function bandWords() {
  const [low, , high] = facts.levels;
  return `Bands hold ${percent(high - low)} of the probability, from ${bandText()}`;
}

export function answerText(answer, v) {
  if (answer === null) return "nothing is known, as the sequence is impossible";
  if (!answer.shares) {
    const middle = `mean ${exact(answer.mean)}, median ${exact(answer.median)}`;
    return `${middle}\n${bandText()}: ${exact(answer.low)} to ${exact(answer.high)}`;
  }
  const sorted = [...answer.shares].sort((a, b) => b[1] - a[1]);
  return sorted.map(([code, share]) => `${valueText(code, v)} ${probability(share)}`).join("\n");
}

function valueHover(record, t, v) {
  const entry = entryOf(record, t, v);
  const head = `${facts.variables[v].name}, ${sliceName(record, t)}: `;
  if (entry.state === "observed") return head + valueText(entry.value, v);
  return `${head}${entry.state}\n${answerText(entry.answer, v)}`;
}

// Between which values a strip is drawn: those of this sequence and its answers.
function spanOf(record, v) {
  let [low, high] = [Infinity, -Infinity];
  const widen = (value) => {
    if (!Number.isFinite(value)) return;
    low = Math.min(low, value);
    high = Math.max(high, value);
  };
  for (let t = 0; t < record.length + record.steps; t++) {
    const { value, answer } = entryOf(record, t, v);
    if (value !== undefined) widen(value);
    else if (answer) [answer.low, answer.point, answer.high].forEach(widen);
  }
  if (low > high) ({ low, high } = facts.variables[v]);
  return high > low ? [low, high] : [low - 0.5, high + 0.5];
}

function drawNumbers(record, v, [low, high]) {
  return (context, axis, height) => {
    const y = (value) => 5 + ((high - value) / (high - low)) * (height - 10);
    const middle = (t) => axis.x(t + 0.5);
    const radius = axis.cell > 12 ? 2.6 : 1.8;
    const [from, to] = [Math.max(0, axis.first - 1), Math.min(axis.last + 1, axis.count)];
    const seen = [];
    const line = new Path2D();
    context.fillStyle = colour("faint");
    context.fillRect(0, height - 1, axis.room, 1);
    context.strokeStyle = colour("accent");
    context.lineWidth = 1.3;
    for (let t = from; t < to; t++) {
      const { state, value, answer } = entryOf(record, t, v);
      if (state === "observed") {
        line[seen.at(-1) === t - 1 ? "lineTo" : "moveTo"](middle(t), y(value));
        seen.push(t);
      } else if (answer) {
        band(context, axis.x(t), axis.cell - 0.5, y(answer.high), y(answer.low));
        circle(context, middle(t), y(answer.point), radius, colour("paper"));
        context.stroke();
      } else hatch(context, axis.x(t), 4, axis.cell - 1, height - 8);
    }
    context.stroke(line);
    for (const t of seen) circle(context, middle(t), y(record.columns[v][t]), radius, colour("accent"));
  };
}

function band(context, x, width, top, bottom) {
  context.globalAlpha = 0.28;
  context.fillStyle = colour("accent");
  context.fillRect(x, top, width, Math.max(bottom - top, 1.5));
  context.globalAlpha = 1;
}

function circle(context, x, y, radius, fill) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fillStyle = fill;
  context.fill();
}

function drawCategories(record, v) {
  const count = facts.variables[v].categories.length;
  return (context, axis, height) => {
    const gap = axis.cell > 10 ? 1 : 0;
    const body = height - 4;
    for (let t = axis.first; t < axis.last; t++) {
      const { state, value, answer } = entryOf(record, t, v);
      const [x, width] = [axis.x(t), axis.cell - gap];
      if (state === "observed") {
        context.fillStyle = categoryColour(value, count);
        context.fillRect(x, 2, width, body);
        continue;
      }
      hatch(context, x, 2, width, body);
      if (!answer) continue;
      let y = 2 + body;
      const inset = axis.cell > 10 ? 2 : 0;
      for (const [code, share] of answer.shares) {
        context.fillStyle = categoryColour(code, count);
        context.fillRect(x + inset, y - share * body, width - 2 * inset, share * body);
        y -= share * body;
      }
      context.strokeStyle = colour("muted");
      context.strokeRect(x + inset + 0.5, 2.5, Math.max(width - 2 * inset - 1, 0.5), body - 1);
    }
  };
}

function strip(record, axis, v) {
  const variable = facts.variables[v];
  const labels = make("div", { class: "labels", "aria-hidden": "true" });
  const name = make("div", { class: "name", title: variable.name }, variable.name);
  const say = (t) => valueHover(record, t, v);
  let track = null;
  if (variable.categories.length) {
    track = new Track(axis, CATEGORY_HEIGHT, drawCategories(record, v), say);
    labels.append(name);
  } else {
    const span = spanOf(record, v);
    track = new Track(axis, NUMBER_HEIGHT, drawNumbers(record, v, span), say);
    const end = (value) => make("div", { class: "end" }, brief(value));
    labels.append(end(span[1]), name, end(span[0]));
  }
  const element = row(labels, track.element);
  element.classList.add("strip");
  return element;
}

// The categories' colours, once for variables that share them.
export function categoryKey(variables) {
  const keys = new Map();
  for (const v of variables) {
    const { categories, name } = facts.variables[v];
    if (!categories.length) continue;
    const same = JSON.stringify(categories);
    if (!keys.has(same)) keys.set(same, { categories, names: [] });
    keys.get(same).names.push(name);
  }
  return [...keys.values()].slice(0, 8).map(({ categories, names }) => {
    const marks = categories.slice(0, 10).map((category, code) => {
      const mark = make("i", { "aria-hidden": "true" });
      mark.style.background = categoryColour(code, categories.length);
      return make("span", {}, mark, category);
    });
    if (categories.length > 10) marks.push(make("span", {}, `and ${categories.length - 10} more`));
    const who = names.length > 3 ? `${names.slice(0, 2).join(", ")} and ${names.length - 2} more` : names.join(", ");
    return make("div", { class: "key" }, make("span", {}, `${who}:`), ...marks);
  });
}

export function valueCharts(record, axis, variables) {
  const strips = variables.map((v) => strip(record, axis, v));
  return [...strips, tickRow(axis)];
}

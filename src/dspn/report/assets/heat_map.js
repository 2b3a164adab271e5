// Surprise of slices and of entries.

import { brief, clamp, exact, make } from "./dom.js";
import { colour, heatColour } from "./colours.js";
import { entryOf, facts, sliceName, surpriseOf } from "./records.js";
import { Track, blank, hatch, row, tickRow } from "./axis.js";
import { hideTooltip, showTooltip } from "./tooltip.js";
import { answerText, valueText } from "./values.js";

const SLICES = 72;
const ROW_HEIGHT = 20;

export function sliceText(record, t) {
  const name = sliceName(record, t).replace("s", "S");
  if (t >= record.length) return `${name}: forecast`;
  return `${name}\nsurprise ${exact(record.slices[t])} nats given the slices before it`;
}

export function entryText(record, t, v) {
  const entry = entryOf(record, t, v);
  const head = `${facts.variables[v].name}, ${sliceName(record, t)}`;
  if (entry.state !== "observed") return `${head}: ${entry.state}\n${answerText(entry.answer, v)}`;
  const surprise = surpriseOf(record, t, v);
  const usual = `usual for this variable: ${brief(facts.variables[v].usual)}`;
  return `${head}: ${valueText(entry.value, v)}\nsurprise ${exact(surprise)} nats given all other entries\n${usual}`;
}

function drawSlices(record) {
  const finite = record.slices.filter(Number.isFinite);
  const high = finite.reduce((a, b) => Math.max(a, b), 0);
  const least = finite.reduce((a, b) => Math.min(a, b), 0);
  // A slice without observations has a surprise of 0, up to rounding.
  const low = least > -1e-6 ? 0 : least;
  const span = high - low || 1;
  return {
    high,
    low,
    draw: (context, axis, height) => {
      const y = (value) => 4 + ((high - value) / span) * (height - 8);
      const gap = axis.cell > 12 ? 2 : 1;
      for (let t = axis.first; t < Math.min(axis.last, record.length); t++) {
        const value = record.slices[t];
        if (Number.isNaN(value)) {
          hatch(context, axis.x(t), 4, axis.cell - gap, height - 8);
          continue;
        }
        const impossible = !Number.isFinite(value);
        const [top, bottom] = impossible ? [4, height - 4] : [y(Math.max(value, 0)), y(Math.min(value, 0))];
        context.fillStyle = colour(impossible ? "alarm" : "accent");
        context.fillRect(axis.x(t), top, axis.cell - gap, Math.max(bottom - top, 1));
      }
      context.fillStyle = colour("line");
      context.fillRect(0, Math.round(y(0)), axis.room, 1);
      if (!axis.steps) return;
      context.fillStyle = colour("muted");
      context.font = "11px system-ui, sans-serif";
      context.textBaseline = "top";
      if (axis.steps * axis.cell > 60) context.fillText("forecast", axis.x(record.length) + 6, 6);
    },
  };
}

export function sliceChart(record, axis) {
  const own = drawSlices(record);
  const track = new Track(axis, SLICES, own.draw, (t) => sliceText(record, t));
  const labels = make(
    "div",
    { class: "labels ends-only", "aria-hidden": "true" },
    make("span", {}, `${brief(own.high)} nats`),
    make("span", {}, brief(own.low)),
  );
  return [row(labels, track.element), tickRow(axis)];
}

function drawCells(record, variables) {
  return (context, axis) => {
    const gap = axis.cell > 10 ? 1 : 0;
    for (let t = axis.first; t < Math.min(axis.last, record.length); t++) {
      variables.forEach((v, place) => {
        const [x, y] = [axis.x(t), place * ROW_HEIGHT];
        const surprise = surpriseOf(record, t, v);
        if (Number.isNaN(surprise)) {
          hatch(context, x, y, axis.cell - gap, ROW_HEIGHT - 1);
          return;
        }
        context.fillStyle = heatColour((surprise - facts.variables[v].usual) / facts.scale);
        context.fillRect(x, y, axis.cell - gap, ROW_HEIGHT - 1);
      });
    }
    axis.frame(context, gap, variables.length * ROW_HEIGHT);
  };
}

// One cell of the grid is an element: the one that has, or would take, the focus.
class Cursor {
  constructor(record, axis, variables, track) {
    Object.assign(this, { record, axis, variables, track, t: 0, place: 0 });
    this.row = null;
    this.moved = false;
    this.put(false);
    track.canvas.addEventListener("click", (event) => {
      const { t, y } = track.place(event);
      if (t === null || t >= record.length) return;
      this.move(t, Math.floor(y / ROW_HEIGHT));
    });
  }

  // Until it is moved the cursor stands at the first slice in view.
  placed() {
    if (!this.moved) this.t = clamp(Math.ceil(this.axis.offset / this.axis.cell), 0, this.record.length - 1);
    this.put(this.row.contains(document.activeElement));
  }

  move(t, place) {
    this.moved = true;
    this.t = clamp(t, 0, this.record.length - 1);
    this.place = clamp(place, 0, this.variables.length - 1);
    this.axis.reveal(this.t);
    this.put(true);
  }

  put(focus) {
    const { axis, t, place } = this;
    const text = entryText(this.record, t, this.variables[place]);
    const cell = make("div", {
      class: "cursor", role: "gridcell", tabindex: "0", "aria-colindex": t + 1, "aria-label": text,
    });
    cell.style.left = `${t * axis.cell}px`;
    cell.style.top = `${place * ROW_HEIGHT}px`;
    cell.style.width = `${axis.cell}px`;
    cell.style.height = `${ROW_HEIGHT}px`;
    cell.addEventListener("keydown", (event) => this.pressed(event));
    cell.addEventListener("focus", () => {
      const box = cell.getBoundingClientRect();
      if (cell.matches(":focus-visible")) showTooltip(text, box.right, box.top);
    });
    cell.addEventListener("blur", hideTooltip);
    const next = make("div", { role: "row", "aria-rowindex": place + 1 }, cell);
    if (this.row) this.row.replaceWith(next);
    else this.track.space.append(next);
    this.row = next;
    if (focus) cell.focus({ preventScroll: true });
  }

  pressed(event) {
    const last = this.record.length - 1;
    const steps = {
      ArrowLeft: [this.t - 1, this.place],
      ArrowRight: [this.t + 1, this.place],
      ArrowUp: [this.t, this.place - 1],
      ArrowDown: [this.t, this.place + 1],
      Home: [0, event.ctrlKey ? 0 : this.place],
      End: [last, event.ctrlKey ? this.variables.length - 1 : this.place],
      PageUp: [this.t - 10, this.place],
      PageDown: [this.t + 10, this.place],
    };
    if (!(event.key in steps)) return;
    event.preventDefault();
    this.move(...steps[event.key]);
  }
}

export function heatKey(record) {
  const scale = make("canvas", { width: 140, height: 12, "aria-hidden": "true" });
  const context = scale.getContext("2d");
  for (let x = 0; x < 140; x++) {
    context.fillStyle = heatColour(x / 139);
    context.fillRect(x, 0, 1, 12);
  }
  const words = `usual for the variable (its median), to ${brief(facts.scale)} nats more`;
  return make("div", { class: "key" }, make("span", {}, scale, words), make("span", {}, `hatched: ${record.possible ? "missing" : "unknown"}`));
}

export function heatMap(record, axis, variables) {
  const height = variables.length * ROW_HEIGHT;
  const say = (t, y) => {
    const v = variables[clamp(Math.floor(y / ROW_HEIGHT), 0, variables.length - 1)];
    return t < record.length ? entryText(record, t, v) : sliceText(record, t);
  };
  const track = new Track(axis, height, drawCells(record, variables), say);
  const cursor = new Cursor(record, axis, variables, track);
  const labels = blank();
  for (const v of variables) {
    const { name } = facts.variables[v];
    const label = make("span", { title: name }, name);
    label.style.height = `${ROW_HEIGHT}px`;
    label.style.lineHeight = `${ROW_HEIGHT}px`;
    labels.append(label);
  }
  const grid = make(
    "div",
    {
      role: "grid",
      "aria-label": "Surprise of each entry, variables down and slices across",
      "aria-rowcount": variables.length,
      "aria-colcount": record.length,
    },
    track.element,
  );
  return { elements: [row(labels, grid), tickRow(axis)], placed: () => cursor.placed() };
}

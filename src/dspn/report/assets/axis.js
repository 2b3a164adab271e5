// The slices of a sequence from left to right, shared by all charts of it.

import { clamp, make, shortened } from "./dom.js";
import { colour } from "./colours.js";
import { order } from "./records.js";
import { hideTooltip, showTooltip } from "./tooltip.js";

const NARROWEST = 8;
const WIDEST = 34;
const LONGEST_NAME = 16;
const FONT = "11px system-ui, sans-serif";

// The day or the year that all dates share, which need not be said at each of them.
function sharedStart(texts) {
  for (const pattern of [/^\d{4}-\d\d-\d\d[ T](?=\d)/, /^\d{4}-(?=\d\d-\d\d)/]) {
    const start = texts[0].match(pattern)?.[0];
    if (start && texts.every((text) => text.startsWith(start))) return start;
  }
  return "";
}

function tickNames(record) {
  if (!record.order) return null;
  const start = sharedStart(record.order).length;
  return record.order.map((text) => shortened(text.slice(start), LONGEST_NAME));
}

export class Axis {
  constructor(record) {
    this.length = record.length;
    this.steps = record.steps;
    this.count = this.length + this.steps;
    this.names = tickNames(record);
    this.offset = 0;
    this.room = 0;
    this.cell = NARROWEST;
    this.most = 0;
    this.tracks = [];
    this.pending = 0;
    this.watchers = [];
  }

  // A view that was at the end stays there.
  fit(room) {
    const atEnd = this.offset >= this.most - 1;
    this.room = Math.max(40, Math.floor(room));
    this.cell = clamp(this.room / this.count, NARROWEST, WIDEST);
    if (this.cell * this.count > this.room + 1) this.cell = Math.max(NARROWEST, Math.floor(this.cell));
    this.most = Math.max(0, this.cell * this.count - this.room);
    if (this.most < 1) this.most = 0;
    for (const track of this.tracks) track.fit();
    this.offset = atEnd ? this.most : Math.min(this.offset, this.most);
    this.told();
    this.draw();
  }

  get width() {
    return Math.max(this.room, this.cell * this.count);
  }

  draw() {
    for (const track of this.tracks) track.paint();
  }

  x(t) {
    return t * this.cell - this.offset;
  }

  at(x) {
    return clamp(Math.floor((x + this.offset) / this.cell), 0, this.count - 1);
  }

  get first() {
    return Math.max(0, Math.floor(this.offset / this.cell));
  }

  get last() {
    return Math.min(this.count, Math.ceil((this.offset + this.room) / this.cell));
  }

  told() {
    for (const watcher of this.watchers) watcher();
  }

  scrolled(offset) {
    const wanted = clamp(offset, 0, this.most);
    if (Math.abs(wanted - this.offset) < 1) return;
    this.offset = wanted;
    this.told();
    cancelAnimationFrame(this.pending);
    this.pending = requestAnimationFrame(() => this.draw());
  }

  reveal(t) {
    const [left, right] = [Math.max(0, (t - 1) * this.cell), Math.min(this.count, t + 2) * this.cell];
    if (left < this.offset) this.scrolled(left);
    if (right > this.offset + this.room) this.scrolled(right - this.room);
  }

  // A line around the slices that were seen.
  frame(context, gap, height) {
    const left = this.x(0);
    context.strokeStyle = colour("line");
    context.strokeRect(left + 0.5, 0.5, Math.max(this.length * this.cell - gap - 1, 0), height - 2);
  }
}

// One canvas along the axis: draws the slices in view, and says what is under the pointer.
export class Track {
  constructor(axis, height, draw, say = null) {
    this.axis = axis;
    this.height = height;
    this.drawing = draw;
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.space = make("div", { class: "space" }, this.canvas);
    this.element = make("div", { class: "track" }, this.space);
    axis.tracks.push(this);
    if (say === null) return;
    this.canvas.addEventListener("pointermove", (event) => {
      const { t, y } = this.place(event);
      const text = t === null ? null : say(t, y);
      if (text) showTooltip(text, event.clientX, event.clientY);
      else hideTooltip();
    });
    this.canvas.addEventListener("pointerleave", hideTooltip);
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const inside = x + this.axis.offset < this.axis.cell * this.axis.count;
    return { t: inside ? this.axis.at(x) : null, y: event.clientY - box.top };
  }

  fit() {
    const { axis } = this;
    const scale = Math.max(1, devicePixelRatio || 1);
    this.space.style.width = `${axis.width}px`;
    this.space.style.height = `${this.height}px`;
    this.canvas.width = Math.round(axis.room * scale);
    this.canvas.height = Math.round(this.height * scale);
    this.canvas.style.width = `${axis.room}px`;
    this.canvas.style.height = `${this.height}px`;
    this.context = this.canvas.getContext("2d");
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
  }

  paint() {
    const { axis, context, height } = this;
    context.clearRect(0, 0, axis.room, height);
    if (axis.steps) {
      const from = Math.max(0, axis.x(axis.length));
      context.fillStyle = colour("forecast");
      context.fillRect(from, 0, Math.max(0, axis.x(axis.count) - from), height);
    }
    this.drawing(context, axis, height);
  }
}

function tickStep(cell, room) {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];
  return steps.find((step) => step * cell >= room) ?? 10000;
}

// Where the text ends, which stands inside the view and not on the one before.
function drawTick(context, axis, t, text, before) {
  const x = axis.x(t + 0.5);
  const half = context.measureText(text).width / 2;
  const middle = clamp(x, half, axis.room - half);
  context.fillRect(x - 0.5, 0, 1, 4);
  if (x < 0 || x > axis.room || middle - half < before) return before;
  context.fillText(text, middle, 6);
  return middle + half + 6;
}

function drawTicks(context, axis) {
  context.fillStyle = colour("muted");
  context.font = FONT;
  context.textBaseline = "top";
  context.textAlign = "center";
  const { names, length } = axis;
  const width = (text) => context.measureText(text).width;
  axis.widest ??= names ? Math.max(...names.slice(0, 500).map(width)) : width(String(length - 1));
  const step = tickStep(axis.cell, Math.max(axis.widest + 14, 34));
  // A name too near to the first of the slices to come is left out.
  const crowded = (t) => axis.steps && (length - t) * axis.cell < axis.widest / 2 + 16;
  let end = -Infinity;
  for (let t = Math.ceil(axis.first / step) * step; t < Math.min(axis.last, length); t += step) {
    if (!crowded(t)) end = drawTick(context, axis, t, names ? names[t] : String(t), end);
  }
  const ahead = tickStep(axis.cell, 34);
  for (let k = 1; k <= axis.steps; k += k === 1 && ahead > 2 ? ahead - 1 : ahead) {
    end = drawTick(context, axis, length + k - 1, `+${k}`, end);
  }
}

// Names of the slices: what the order column says, or numbers.
export function tickRow(axis) {
  const track = new Track(axis, 22, (context) => drawTicks(context, axis));
  const name = order ? order.name : "slice";
  const labels = make("div", { class: "labels", "aria-hidden": "true" }, make("span", { title: name }, name));
  return row(labels, track.element);
}

export function row(labels, ...tracks) {
  return make("div", { class: "row" }, labels, make("div", { class: "tracks" }, ...tracks));
}

export const blank = () => make("div", { class: "labels", "aria-hidden": "true" });

export function hatch(context, x, y, width, height) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = colour("hatch");
  context.lineWidth = 1;
  context.beginPath();
  for (let at = -height; at < width; at += 6) {
    context.moveTo(x + at, y + height);
    context.lineTo(x + at + height, y);
  }
  context.stroke();
  context.restore();
}

// The slices of a sequence from left to right, shared by all charts of it.

import { clamp, make } from "./dom.js";
import { colour } from "./colours.js";
import { hideTooltip, showTooltip } from "./tooltip.js";

const NARROWEST = 8;
const WIDEST = 34;

export class Axis {
  constructor(length, steps) {
    this.length = length;
    this.steps = steps;
    this.count = length + steps;
    this.offset = 0;
    this.room = 0;
    this.cell = NARROWEST;
    this.tracks = [];
    this.pending = 0;
  }

  fit() {
    this.room = Math.max(40, Math.floor(this.tracks[0].element.clientWidth));
    this.cell = clamp(this.room / this.count, NARROWEST, WIDEST);
    if (this.cell * this.count > this.room + 1) this.cell = Math.max(NARROWEST, Math.floor(this.cell));
    for (const track of this.tracks) track.fit();
    this.draw();
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

  scrolled(offset) {
    if (Math.abs(offset - this.offset) < 1) return;
    this.offset = offset;
    for (const track of this.tracks) track.follow();
    cancelAnimationFrame(this.pending);
    this.pending = requestAnimationFrame(() => this.draw());
  }

  reveal(t) {
    const [left, right] = [Math.max(0, (t - 1) * this.cell), Math.min(this.count, t + 2) * this.cell];
    if (left < this.offset) this.scrolled(left);
    if (right > this.offset + this.room) this.scrolled(right - this.room);
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
    this.element.addEventListener("scroll", () => axis.scrolled(this.element.scrollLeft), { passive: true });
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
    this.space.style.width = `${Math.max(axis.room, axis.cell * axis.count)}px`;
    this.space.style.height = `${this.height}px`;
    this.canvas.width = Math.round(axis.room * scale);
    this.canvas.height = Math.round(this.height * scale);
    this.canvas.style.width = `${axis.room}px`;
    this.canvas.style.height = `${this.height}px`;
    this.context = this.canvas.getContext("2d");
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    this.follow();
  }

  follow() {
    if (Math.abs(this.element.scrollLeft - this.axis.offset) >= 1) this.element.scrollLeft = this.axis.offset;
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

function tickStep(cell) {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];
  return steps.find((step) => step * cell >= 38) ?? 10000;
}

// Numbers of the slices; the last chart's carries the scroll bar.
export function tickTrack(axis) {
  const track = new Track(axis, 22, (context) => {
    const step = tickStep(axis.cell);
    context.fillStyle = colour("muted");
    context.strokeStyle = colour("line");
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "top";
    context.textAlign = "center";
    for (let t = Math.ceil(axis.first / step) * step; t < axis.last; t += step) {
      const x = axis.x(t + 0.5);
      context.fillRect(x - 0.5, 0, 1, 4);
      if (x >= 3 && x < axis.room - 8) context.fillText(String(t), x, 6);
    }
  });
  track.element.classList.add("bar-shown");
  return track.element;
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

// The sequences to choose from; only the rows in view are elements.

import { byId, clamp, counted, fixed, make } from "./dom.js";
import { nameOf, sequences } from "./records.js";

const HEIGHT = 44;
const SPARE = 6;

const names = new Intl.Collator("en", { numeric: true });
const byNumber = (key) => (a, b) => key(a) - key(b) || a - b;

// Records come with the most surprising first.
const orders = {
  "most surprising": (a, b) => a - b,
  "least surprising": (a, b) => b - a,
  "longest": byNumber((i) => -sequences.length[i]),
  "shortest": byNumber((i) => sequences.length[i]),
  "most missing": byNumber((i) => -sequences.missing[i]),
  "id": (a, b) => names.compare(nameOf(a), nameOf(b)) || a - b,
  "as given": byNumber((i) => sequences.number[i]),
};

function surpriseSpan() {
  const finite = Array.from(sequences.perSlice).filter(Number.isFinite);
  return [Math.min(...finite.slice(-1), Infinity), Math.max(...finite.slice(0, 1), -Infinity)];
}

export class List {
  constructor(choose) {
    this.choose = choose;
    this.box = byId("list");
    this.space = make("div", { role: "presentation" });
    this.box.append(this.space);
    this.span = surpriseSpan();
    this.box.style.setProperty("--rows", sequences.count);
    this.options = new Map();
    this.chosen = 0;
    this.pending = 0;
    for (const name of Object.keys(orders)) byId("order").append(make("option", {}, name));
    byId("order").addEventListener("change", () => this.arrange());
    byId("search").addEventListener("input", () => this.arrange());
    byId("search").addEventListener("keydown", (event) => event.key === "ArrowDown" && this.enter(event));
    this.box.addEventListener("scroll", () => this.render(), { passive: true });
    this.box.addEventListener("keydown", (event) => this.moved(event));
    new ResizeObserver(() => this.render()).observe(this.box);
    this.arrange();
  }

  enter(event) {
    event.preventDefault();
    this.box.focus();
  }

  arrange() {
    const wanted = byId("search").value.trim().toLowerCase();
    const all = Array.from({ length: sequences.count }, (_, i) => i);
    this.order = wanted ? all.filter((i) => nameOf(i).toLowerCase().includes(wanted)) : all;
    this.order.sort(orders[byId("order").value]);
    this.space.style.height = `${this.order.length * HEIGHT}px`;
    for (const option of this.options.values()) option.remove();
    this.options.clear();
    byId("found").textContent = wanted
      ? `${counted(this.order.length, "sequence")} of ${sequences.count.toLocaleString("en")}`
      : counted(sequences.count, "sequence");
    this.reveal();
    this.render();
  }

  select(place) {
    if (!this.order.length) return;
    this.chosen = this.order[clamp(place, 0, this.order.length - 1)];
    this.reveal();
    this.render();
    // Keys may repeat faster than a sequence is drawn.
    cancelAnimationFrame(this.pending);
    this.pending = requestAnimationFrame(() => this.choose(this.chosen));
  }

  moved(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / HEIGHT) - 1);
    const at = this.order.indexOf(this.chosen);
    const last = this.order.length - 1;
    const places = {
      ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: last,
    };
    if (!(event.key in places)) return;
    event.preventDefault();
    this.select(places[event.key]);
  }

  reveal() {
    const place = this.order.indexOf(this.chosen);
    if (place < 0) return;
    const [above, below] = [place * HEIGHT, (place + 1) * HEIGHT];
    if (above < this.box.scrollTop) this.box.scrollTop = above;
    const room = this.box.clientHeight;
    if (below > this.box.scrollTop + room) this.box.scrollTop = below - room;
  }

  render() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / HEIGHT) - SPARE);
    const shown = Math.ceil(this.box.clientHeight / HEIGHT) + 2 * SPARE;
    const last = Math.min(this.order.length, first + shown);
    for (const [place, option] of this.options) {
      if (place >= first && place < last) continue;
      option.remove();
      this.options.delete(place);
    }
    for (let place = first; place < last; place++) {
      if (!this.options.has(place)) this.add(place);
      const selected = this.order[place] === this.chosen;
      this.options.get(place).setAttribute("aria-selected", String(selected));
    }
    const at = this.order.indexOf(this.chosen);
    if (this.options.has(at)) this.box.setAttribute("aria-activedescendant", `option-${at}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  add(place) {
    const i = this.order[place];
    const bar = make("b");
    bar.style.width = `${100 * this.share(i)}%`;
    const missing = sequences.missing[i] ? `, ${sequences.missing[i].toLocaleString("en")} missing` : "";
    const option = make(
      "div",
      {
        class: "option",
        role: "option",
        id: `option-${place}`,
        "aria-setsize": this.order.length,
        "aria-posinset": place + 1,
      },
      make("b", {}, nameOf(i)),
      make("em", { title: "nats per slice" }, fixed(sequences.perSlice[i], 3)),
      make("small", {}, counted(sequences.length[i], "slice") + missing),
      make("i", { "aria-hidden": "true" }, bar),
    );
    option.style.top = `${place * HEIGHT}px`;
    option.addEventListener("click", () => this.select(place));
    this.options.set(place, option);
    this.space.append(option);
  }

  share(i) {
    const [low, high] = this.span;
    if (!Number.isFinite(sequences.perSlice[i])) return 1;
    return high > low ? (sequences.perSlice[i] - low) / (high - low) : 0.5;
  }
}

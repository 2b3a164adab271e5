// All charts of a sequence in one box that scrolls sideways, and one scroll bar that stays in view.

import { hideTooltip } from "./tooltip.js";
import { make } from "./dom.js";

export class Scroller {
  constructor(axis, ...parts) {
    this.axis = axis;
    this.panels = make("div", { class: "panels", id: "panels", tabindex: "-1" }, make("div", { class: "wide" }, ...parts));
    this.space = make("div");
    this.bar = make("div", {
      class: "scroll-bar", role: "scrollbar", tabindex: "0", "aria-controls": "panels",
      "aria-orientation": "horizontal", "aria-label": "Slices in view", "aria-valuemin": 0,
    }, this.space);
    this.dock = make("div", { class: "dock" }, this.bar);
    for (const box of [this.panels, this.bar]) {
      box.addEventListener("scroll", () => this.scrolled(box), { passive: true });
    }
    this.bar.addEventListener("keydown", (event) => this.pressed(event));
    axis.watchers.push(() => this.follow());
  }

  get elements() {
    return [this.panels, this.dock];
  }

  scrolled(box) {
    hideTooltip();
    this.axis.scrolled(box.scrollLeft);
  }

  fit() {
    const view = this.panels.clientWidth;
    this.panels.style.setProperty("--view", `${view}px`);
    const label = this.panels.querySelector(".labels").offsetWidth;
    this.axis.fit(view - label);
    // Both boxes scroll equally far.
    this.space.style.width = `${this.axis.most + this.axis.room}px`;
    this.dock.style.paddingLeft = `${label}px`;
    this.dock.hidden = this.axis.most === 0;
    this.follow();
  }

  follow() {
    const { axis } = this;
    for (const box of [this.panels, this.bar]) {
      if (Math.abs(box.scrollLeft - axis.offset) >= 1) box.scrollLeft = axis.offset;
    }
    this.bar.setAttribute("aria-valuemax", Math.round(axis.most));
    this.bar.setAttribute("aria-valuenow", Math.round(axis.offset));
    this.bar.setAttribute("aria-valuetext", `slices ${axis.first} to ${axis.last - 1} of ${axis.count}`);
  }

  pressed(event) {
    const { offset, cell, room, most } = this.axis;
    const places = {
      ArrowLeft: offset - 2 * cell,
      ArrowRight: offset + 2 * cell,
      PageUp: offset - 0.9 * room,
      PageDown: offset + 0.9 * room,
      Home: 0,
      End: most,
    };
    if (!(event.key in places)) return;
    event.preventDefault();
    this.axis.scrolled(places[event.key]);
  }
}

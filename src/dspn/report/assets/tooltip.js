// A few lines beside the pointer or the focus; what they say can be reached without them.

import { byId, clamp } from "./dom.js";

export function showTooltip(text, x, y) {
  const box = byId("tooltip");
  box.textContent = text;
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const room = document.documentElement.clientWidth;
  const above = y - height - 14;
  box.style.left = `${clamp(x + 14, 8, Math.max(8, room - width - 8))}px`;
  box.style.top = `${above > 8 ? above : y + 20}px`;
}

export function hideTooltip() {
  byId("tooltip").hidden = true;
}

addEventListener("scroll", hideTooltip, { passive: true });
addEventListener("keydown", (event) => event.key === "Escape" && hideTooltip());

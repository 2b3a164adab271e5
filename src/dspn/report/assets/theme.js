// Light and dark: as the system has it, until the switch is used.

import { byId } from "./dom.js";
import { isDark } from "./colours.js";

export function watchTheme(redraw) {
  const button = byId("theme");
  const name = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
  };
  const changed = () => {
    name();
    redraw();
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    changed();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  name();
}

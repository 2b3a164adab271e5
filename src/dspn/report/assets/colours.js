// Colours of marks and scales, in light and dark; every palette is safe for colour-blind readers.

import { byId, clamp } from "./dom.js";

const groups = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#9b8250"];
const categories = [
  "#3c83ba", "#f0c55c", "#2aa581", "#d98cb3", "#7cc4ee", "#b5703f", "#6a6ab0", "#b5c99a",
];
const binary = { light: ["#c9dbe9", "#1f5f99"], dark: ["#30475a", "#77b6e8"] };
const many = ["#482878", "#3e4a89", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b"];
const heat = {
  light: ["#ffffff", "#fdebd9", "#fbc490", "#ee8245", "#c93f2b", "#7d1128"],
  dark: ["#14181c", "#3a2724", "#7d3424", "#cf5528", "#f79a4a", "#ffe9ae"],
};

export const isDark = () =>
  document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;

const known = new Map();

// A colour of the style sheet as the canvas understands it.
export function colour(name) {
  const key = `${name} ${isDark()}`;
  if (!known.has(key)) {
    const probe = byId("tooltip");
    probe.style.color = `var(--${name})`;
    known.set(key, getComputedStyle(probe).color);
    probe.style.color = "";
  }
  return known.get(key);
}

const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

function between(steps, share) {
  const at = clamp(share, 0, 1) * (steps.length - 1);
  const low = Math.min(Math.floor(at), steps.length - 2);
  const [from, to] = [parts(steps[low]), parts(steps[low + 1])];
  const mixed = from.map((part, i) => Math.round(part + (at - low) * (to[i] - part)));
  return `rgb(${mixed.join(",")})`;
}

const mode = () => (isDark() ? "dark" : "light");

export const heatColour = (share) => between(heat[mode()], share);

export const groupColour = (group) =>
  group === undefined || group === null ? "#8c8c8c" : groups[group % groups.length];

export function groupShade(group, share) {
  const paper = isDark() ? "#14181c" : "#ffffff";
  return between([paper, groupColour(group)], share ** 0.7);
}

export function categoryColour(code, count) {
  if (count <= 2) return binary[mode()][code];
  if (count <= categories.length) return categories[code];
  return between(many, code / (count - 1));
}

// Elements, numbers and words.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function shape(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const byId = (id) => document.getElementById(id);

const minus = (text) => text.replace("-", "−");

// Seven digits are what a number of four bytes holds.
export function exact(value, digits = 7) {
  if (Number.isNaN(value)) return "unknown";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const rounded = Number(value.toPrecision(digits));
  const size = Math.abs(rounded);
  return minus(size >= 1e15 || (size > 0 && size < 1e-5) ? rounded.toExponential() : String(rounded));
}

export const brief = (value) => exact(value, 4);

export function fixed(value, decimals) {
  return Number.isFinite(value) ? minus(value.toFixed(decimals)) : exact(value);
}

export function probability(value) {
  if (value > 0 && value < 0.00005) return "< 0.0001";
  return value.toFixed(4);
}

export function counted(number, noun, plural = noun + "s") {
  return `${number.toLocaleString("en")} ${number === 1 ? noun : plural}`;
}

export function shortened(text, most) {
  return text.length <= most ? text : text.slice(0, most - 1).trimEnd() + "…";
}

export function named(names, most = 8) {
  const shown = names.slice(0, most).join(", ");
  return names.length > most ? `${shown} and ${counted(names.length - most, "more", "more")}` : shown;
}

export function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

// Rows of a name, a bar and a number.
export function bars(rows) {
  const box = make("div", { class: "bars" });
  for (const [name, share] of rows) {
    const bar = make("b");
    bar.style.width = `${100 * clamp(share, 0, 1)}%`;
    box.append(make("span", { title: name }, name), make("i", {}, bar), make("em", {}, brief(share)));
  }
  return box;
}

export function defined(entries) {
  const list = make("dl");
  for (const [name, value] of entries) list.append(make("dt", {}, name), make("dd", {}, value));
  return list;
}

// P(interface node | evidence) slice by slice.

import { clamp, counted, make, probability } from "./dom.js";
import { groupColour, groupShade } from "./colours.js";
import { facts, sliceName } from "./records.js";
import { Track, blank, row, tickRow } from "./axis.js";

const NODE_HEIGHT = 16;

function rowName({ group, position, nodes }, several) {
  const pooled = `${nodes} other${nodes === 1 ? "" : "s"}`;
  if (several) return `group ${group}: ${position ?? pooled}`;
  return position === null ? pooled : `node ${position}`;
}

// The rows that have some probability at a slice, as text.
export function posteriorText(record, t) {
  if (!record.possible || t >= record.length) return "";
  const { rows, probability: at, component } = record.interface;
  const several = facts.components[component].groups.length > 1;
  const said = rows.map((own, r) => [rowName(own, several), at(t, r)]).filter(([, share]) => share >= 0.01);
  return said.map(([name, share]) => `${name} ${probability(share)}`).join(", ");
}

export function posteriorWords({ component, rows }) {
  const own = facts.components[component];
  const words = [];
  if (rows.some(({ position }) => position === null)) {
    words.push("The nodes with the most probability in this sequence have a row each; the others of their group are pooled.");
  }
  const rest = own.groups.length - facts.mostGroups;
  if (rest > 0) words.push(`${counted(rest, "more group is", "more groups are")} not shown.`);
  return words.join(" ");
}

export function posteriorChart(record, axis) {
  const { rows, probability: at, component } = record.interface;
  const several = facts.components[component].groups.length > 1;
  const height = rows.length * NODE_HEIGHT;
  const say = (t, y) => {
    if (t >= record.length) return null;
    const r = clamp(Math.floor(y / NODE_HEIGHT), 0, rows.length - 1);
    return `${sliceName(record, t).replace("s", "S")}\n${rowName(rows[r], several)}\nprobability ${probability(at(t, r))}`;
  };
  const draw = (context) => {
    const gap = axis.cell > 10 ? 1 : 0;
    for (let t = axis.first; t < Math.min(axis.last, record.length); t++) {
      rows.forEach(({ group }, r) => {
        context.fillStyle = groupShade(group, at(t, r));
        context.fillRect(axis.x(t), r * NODE_HEIGHT, axis.cell - gap, NODE_HEIGHT - 1);
      });
    }
    axis.frame(context, gap, height);
  };
  const track = new Track(axis, height, draw, say);
  const labels = blank();
  for (const own of rows) {
    const name = rowName(own, several);
    const label = make("span", { title: name }, name);
    label.style.height = label.style.lineHeight = `${NODE_HEIGHT}px`;
    if (several) label.style.boxShadow = `inset -3px 0 0 ${groupColour(own.group)}`;
    if (several) label.style.paddingRight = "8px";
    labels.append(label);
  }
  return [row(labels, track.element), tickRow(axis)];
}

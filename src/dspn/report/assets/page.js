// Brings the parts of the page to life.

import { byId, counted, fixed } from "./dom.js";
import { nameOf, sequences } from "./records.js";
import { watchTheme } from "./theme.js";
import { startTemplates } from "./templates.js";
import { List } from "./list.js";
import { SequenceView } from "./sequence.js";

const redrawTemplate = startTemplates();
const view = new SequenceView();

const list = new List((i) => {
  view.show(i);
  const words = [counted(sequences.length[i], "slice"), `${fixed(sequences.perSlice[i], 3)} nats per slice`];
  byId("live").textContent = `Chosen: ${nameOf(i)}, ${words.join(", ")}`;
});

view.show(list.chosen);
watchTheme(() => {
  redrawTemplate();
  view.show(view.index);
});

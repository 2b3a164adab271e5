// What the page was given; the record of a sequence is read when it is first asked for.

import { byId } from "./dom.js";

export const facts = JSON.parse(byId("facts").textContent);

export function bytesOf(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

const numbers = (text, Type) => new Type(bytesOf(text).buffer);

function readSequences(own) {
  const size = numbers(own.size, Uint32Array);
  const start = new Float64Array(own.count + 1);
  for (let i = 0; i < own.count; i++) start[i + 1] = start[i] + size[i];
  return {
    count: own.count,
    ids: own.ids,
    number: numbers(own.number, Uint32Array),
    length: numbers(own.length, Uint32Array),
    missing: numbers(own.missing, Uint32Array),
    perSlice: numbers(own.perSlice, Float64Array),
    start,
  };
}

export const sequences = readSequences(facts.sequences);

export const nameOf = (i) =>
  sequences.ids === null ? `sequence ${sequences.number[i]}` : sequences.ids[i];

// What the order column of the table says of each slice, as texts; null without such a column.
function readOrder(own) {
  if (own === null) return null;
  const codes = numbers(own.codes, Uint32Array);
  const first = [0];
  for (let i = 0; i < sequences.count; i++) first.push(first[i] + sequences.length[i]);
  const of = (i) => Array.from(codes.subarray(first[i], first[i + 1]), (code) => own.texts[code]);
  return { name: own.name, of };
}

export const order = readOrder(facts.order);

let texts = null;

function recordText(i) {
  if (texts === null) texts = byId("records").textContent;
  return texts.slice(sequences.start[i], sequences.start[i + 1]);
}

// Numbers of 4, 2 and 1 byte, each width in the order in which it was written.
class Reader {
  constructor(bytes) {
    const [floats, shorts] = new Uint32Array(bytes.buffer, 0, 3);
    this.floats = new Float32Array(bytes.buffer, 12, floats);
    this.shorts = new Uint16Array(bytes.buffer, 12 + 4 * floats, shorts);
    this.bytes = new Uint8Array(bytes.buffer, 12 + 4 * floats + 2 * shorts);
    this.at = { floats: 0, shorts: 0, bytes: 0 };
  }

  take(stream, count) {
    const from = this.at[stream];
    this.at[stream] += count;
    return this[stream].subarray(from, from + count);
  }
}

function readColumn(reader, variable, length) {
  const count = variable.categories.length;
  if (!count) return reader.take("floats", length);
  const codes = count < 255 ? reader.take("bytes", length) : reader.take("shorts", length);
  const none = count < 255 ? 255 : 65535;
  return Float32Array.from(codes, (code) => (code === none ? NaN : code));
}

function readInterface(reader, length) {
  const [component, count] = reader.take("shorts", 2);
  const cells = reader.take("shorts", 3 * count);
  const rows = Array.from({ length: count }, (_, r) => ({
    group: cells[3 * r],
    position: cells[3 * r + 1] === 65535 ? null : cells[3 * r + 1],
    nodes: cells[3 * r + 2],
  }));
  const steps = reader.take("shorts", length * count);
  return { component, rows, probability: (t, r) => steps[t * count + r] / 65535 };
}

// Answers to `count` entries of a variable: a function from the entry to what is known of it.
function readAnswers(reader, variable, count) {
  const width = Math.min(variable.categories.length, facts.mostCategories);
  if (!width) {
    const cells = reader.take("floats", 4 * count);
    return (e) => {
      const [mean, low, median, high] = cells.subarray(4 * e, 4 * e + 4);
      return { mean, low, median, high, point: variable.kind === "count" ? median : mean };
    };
  }
  const codes = reader.take("shorts", width * count);
  const steps = reader.take("shorts", width * count);
  return (e) => {
    const own = Array.from({ length: width }, (_, k) => [
      codes[width * e + k],
      steps[width * e + k] / 65535,
    ]);
    return { shares: own, point: own.reduce((a, b) => (b[1] > a[1] ? b : a))[0] };
  };
}

// Where each missing entry of a column stands among its missing entries.
function placesOf(column) {
  let seen = 0;
  return Int32Array.from(column, (value) => (Number.isNaN(value) ? seen++ : -1));
}

function readRecord(i) {
  const reader = new Reader(bytesOf(recordText(i)));
  const length = sequences.length[i];
  const variables = facts.variables;
  const record = { index: i, length, possible: Number.isFinite(sequences.perSlice[i]) };
  record.order = order ? order.of(i) : null;
  record.slices = reader.take("floats", length);
  record.entries = reader.take("floats", length * variables.length);
  record.columns = variables.map((variable) => readColumn(reader, variable, length));
  record.places = record.columns.map(placesOf);
  record.steps = record.possible ? facts.steps : 0;
  if (!record.possible) return record;
  record.shares = Array.from(reader.take("shorts", facts.components.length), (n) => n / 65535);
  record.interface = readInterface(reader, length);
  const missing = record.columns.map((column) => column.filter(Number.isNaN).length);
  record.missing = variables.map((own, v) => readAnswers(reader, own, missing[v]));
  record.future = variables.map((own) => readAnswers(reader, own, record.steps));
  return record;
}

const kept = new Map();
const MOST_KEPT = 50;

export function recordOf(i) {
  if (!kept.has(i)) {
    if (kept.size >= MOST_KEPT) kept.delete(kept.keys().next().value);
    kept.set(i, readRecord(i));
  }
  return kept.get(i);
}

// How a slice is called: by its number, with what the order column says; those to come from +1 on.
export function sliceName(record, t) {
  if (t >= record.length) return `slice +${t - record.length + 1}`;
  return record.order ? `slice ${t}, ${order.name} ${record.order[t]}` : `slice ${t}`;
}

export const surpriseOf = (record, t, v) =>
  t < record.length ? record.entries[t * facts.variables.length + v] : NaN;

// An entry: observed with its value, or the answer to it where it is missing or to come.
export function entryOf(record, t, v) {
  if (t >= record.length) return { state: "forecast", answer: record.future[v](t - record.length) };
  const value = record.columns[v][t];
  if (!Number.isNaN(value)) return { state: "observed", value };
  return { state: "missing", answer: record.possible ? record.missing[v](record.places[v][t]) : null };
}

// The panel of a brushed range: sums and tables of what was allocated, freed and alive in it.

import { button, el, replace, section, tick } from "./dom.js";
import { bytes, signedBytes, whole, word } from "./format.js";
import { failure, keyed, tiles } from "./parts.js";
import { set } from "./state.js";
import { rowsOf, table } from "./table.js";

const SUMS = [
  ["allocated", "Allocated in it"],
  ["freed", "Freed in it"],
  ["alive", "Allocated in the range, alive at its end"],
  ["throughout", "Alive throughout"],
];

/** The panel of a brushed range. */
export function brushPanel(answer, head, acts) {
  const figures = [
    ["at its beginning", bytes(answer.at_begin)],
    ["highest in it", bytes(answer.highest)],
    ["at its end", bytes(answer.at_end), signedBytes(answer.at_end - answer.at_begin)],
    ...SUMS.map(([key, text]) => [text.toLowerCase(), bytes(answer[key].bytes), `${whole(answer[key].count)} allocations`]),
  ];
  const buttons = el(
    "div",
    { class: "bar" },
    button("Zoom to it", acts.zoom, { id: "brush-zoom" }),
    button("Operators in it", () => set({ view: "operators" }), { id: "brush-operators" }),
    button("Clear", acts.clear, { id: "brush-clear" }),
  );
  const note = answer.partial && el("p", { class: "note" }, answer.partial);
  const parts = SUMS.map((sum) => part(answer, sum, acts));
  return section(`Range ${acts.text}`, null, buttons, note, tiles(figures), parts, acts.more);
}

function part(answer, [key, text], acts) {
  const sum = answer[key];
  if (!sum.count) return null;
  const legend = sum.categories.map((name, at) => keyed(`${word(name)} ${bytes(sum.by_category[at])}`, sum.colours[at]));
  return el(
    "details",
    { "data-sum": key, open: key === "alive" },
    el("summary", {}, `${text}: ${bytes(sum.bytes)} in ${whole(sum.count)}`),
    el("div", { class: "legend" }, legend),
    table({
      id: `range-${key}`,
      name: `${key}-in-range`,
      columns: [...allocationColumns(), ...lifetimeColumns(acts.xText)],
      rows: rowsOf(sum.largest),
      count: sum.count,
      all: async () => rowsOf(await acts.all(key, sum.count)),
      sort: "bytes",
      open: (row) => acts.open(row.row),
    }),
  );
}

/** Columns of a table of single allocations. */
export function allocationColumns(colours = {}) {
  return [
    { key: "bytes", label: "size", kind: "bytes" },
    { key: "name", label: "name" },
    { key: "category", label: "category", width: "150px", colour: (row) => colours[row.category], text: (row) => word(row.category) },
    { key: "module", label: "module" },
    { key: "operator", label: "operator" },
    { key: "phase", label: "phase", width: "90px", text: (row) => (row.phase === "OTHER" ? "" : word(row.phase)) },
    { key: "step", label: "step", kind: "whole", width: "70px", text: (row) => (row.step >= 0 ? whole(row.step) : "") },
    { key: "line", label: "line" },
  ];
}

function lifetimeColumns(xText) {
  const end = (row) => row.x1 ?? Infinity;
  return [
    { key: "x0", label: "allocated", kind: "whole", width: "110px", text: (row) => (row.x0 === null ? "before" : xText(row.x0)) },
    { key: "x1", label: "freed", kind: "whole", width: "110px", value: end, text: (row) => (row.x1 === null ? "not freed" : xText(row.x1)) },
    {
      key: "lifetime",
      label: "lifetime",
      kind: "whole",
      width: "110px",
      value: (row) => end(row) - (row.x0 ?? -Infinity),
      text: (row) => (row.x0 === null || row.x1 === null ? "" : xText(row.x1 - row.x0)),
    },
  ];
}

/** A part of the panel that is fetched when it is opened. */
export function onOpening(id, title, fetched) {
  const place = el("div", {}, el("p", { class: "note" }, "loading"));
  const fill = async () => replace(place, await fetched().catch(failure));
  return el("details", { id, on: { toggle: (event) => event.target.open && fill() } }, el("summary", {}, title), place);
}

/** The allocator's log of a range; `ask(rare, order)` fetches a part of it, `open(row, x)` shows an event. */
export function eventList(ask, xText, open) {
  let rare = false;
  const kinds = el("p", { class: "note" });
  const place = el("div");
  const answered = async (order) => {
    const answer = await ask(rare, order);
    kinds.textContent = Object.entries(answer.counts).map(([name, count]) => `${name} ${whole(count)}`).join(" · ");
    return { rows: rowsOf(answer.columns), found: answer.found };
  };
  const columns = [
    { key: "event", label: "event", kind: "whole", width: "90px" },
    { key: "x", label: "at", kind: "whole", width: "120px", text: (row) => xText(row.x) },
    { key: "action", label: "action", width: "140px" },
    { key: "bytes", label: "size", kind: "bytes" },
    { key: "address", label: "address", width: "150px" },
    { key: "name", label: "name" },
    { key: "line", label: "line", width: "30%" },
  ];
  const fill = () => replace(place, table({ id: "range-events", name: "events-in-range", columns, ask: answered, sort: "event", rising: true, open: (row) => open(row.row, row.x) }));
  const only = tick("without allocations and frees", rare, (on) => {
    rare = on;
    fill();
  });
  fill();
  return el("div", {}, only, kinds, place);
}

/** The same sums computed from the bands of a report, which has no server. */
export function brushedHere(answer, [from, to], limit) {
  const { bands, shown, count } = answer.allocations;
  const all = bands.row.map((_, at) => at);
  const born = (at) => !bands.before[at] && bands.x0[at] >= from && bands.x0[at] <= to;
  const dies = (at) => !bands.alive[at] && bands.x1[at] >= from && bands.x1[at] <= to;
  const there = (at) => bands.x0[at] <= to && (bands.alive[at] || bands.x1[at] > to);
  const total = (x) => answer.total[Math.max(answer.x.findLastIndex((one) => one <= x), 0)];
  const inside = answer.total.filter((_, at) => answer.x[at] >= from && answer.x[at] <= to);
  const sum = (keep) => sumOf(answer, all.filter(keep), limit);
  return {
    at_begin: total(from),
    at_end: total(to),
    highest: inside.reduce((most, one) => Math.max(most, one), total(from)),
    allocated: sum(born),
    freed: sum(dies),
    alive: sum((at) => born(at) && there(at)),
    throughout: sum((at) => !born(at) && bands.x0[at] <= from && there(at)),
    partial: count > shown && `Sums of the ${whole(shown)} allocations drawn one by one, of ${whole(count)}: the report has no others.`,
  };
}

function sumOf(answer, kept, limit) {
  const { names, colours } = answer;
  const { bands, labels, modules, lines } = answer.allocations;
  const sizes = new Map();
  for (const at of kept) sizes.set(bands.layer[at], (sizes.get(bands.layer[at]) ?? 0) + bands.bytes[at]);
  const categories = [...sizes].sort((one, other) => other[1] - one[1]);
  const few = [...kept].sort((one, other) => bands.bytes[other] - bands.bytes[one]).slice(0, limit);
  const pick = (get) => few.map(get);
  return {
    bytes: kept.reduce((sum, at) => sum + bands.bytes[at], 0),
    count: kept.length,
    categories: categories.map(([code]) => names[code]),
    colours: categories.map(([code]) => colours[code]),
    by_category: categories.map(([, size]) => size),
    largest: {
      row: pick((at) => bands.row[at]),
      x0: pick((at) => (bands.before[at] ? null : bands.x0[at])),
      x1: pick((at) => (bands.alive[at] ? null : bands.x1[at])),
      bytes: pick((at) => bands.bytes[at]),
      category: pick((at) => names[bands.layer[at]]),
      name: pick((at) => labels[bands.label[at]] ?? ""),
      module: pick((at) => modules[bands.module[at]] ?? ""),
      line: pick((at) => lines[bands.line[at]] ?? ""),
      step: pick(() => -1),
      phase: pick(() => "OTHER"),
      operator: pick(() => ""),
    },
  };
}

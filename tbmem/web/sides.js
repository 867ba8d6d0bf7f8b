// Recordings side by side: their figures, the parts of their peaks and their curves.

import { partBars } from "./bars.js";
import { el, section } from "./dom.js";
import { deviceName } from "./format.js";
import { LineChart, plainX } from "./lines.js";
import { badge } from "./parts.js";
import { set } from "./state.js";
import { rowsOf, table } from "./table.js";
import { colours, lineColour } from "./theme.js";

const FIGURES = ["run", "file", "name", "device", "peak", "reserved", "efficiency_percent", "suspects", "link", "odd", "others"];
const MILLISECONDS = [["h", 3.6e6], ["min", 6e4], ["s", 1000], ["ms", 1], ["µs", 0.001]];

/** The whole comparison; `null` without recordings. */
export function sideBySide(answer) {
  if (!answer.run.length) return null;
  const sides = rowsOf(answer, FIGURES);
  const curves = new LineChart({ id: "sides-plot", label: "Memory over time of each recording", height: 350 }, chart(answer));
  const note = answer.curves.axis === "time" ? "each since its own beginning" : "by event of the allocator: not all have times";
  return [
    answer.message
      ? el("div", { class: "finding warning", id: "odd" }, el("p", {}, badge("ODD ONE OUT", "warning"), " ", answer.message))
      : sides.length > 2 && el("p", { class: "note" }, "None of them stands out."),
    section("Side by side", "each at its peak; click one to open it", figures(sides), partBars(...bars(answer, sides))),
    section("Memory over time", note, curves.node),
  ];
}

function figures(sides) {
  const most = Math.max(...sides.map((side) => side.peak), 1);
  const columns = [
    { key: "name", label: "recording", cell: (side) => el("span", {}, side.name, side.odd && " ", side.odd && badge("odd", "warning")) },
    { key: "device", label: "device", text: (side) => deviceName(side.device), width: "110px" },
    { key: "peak", label: "peak", kind: "bytes", bar: (side) => (100 * side.peak) / most, width: "170px" },
    { key: "reserved", label: "reserved", kind: "bytes" },
    { key: "efficiency_percent", label: "used at peak", kind: "percent", hint: "the peak, of the most that the allocator had reserved" },
    { key: "suspects", label: "suspected leaks", kind: "whole", width: "140px" },
  ].filter(({ key }) => sides.some((side) => side[key] !== null && side[key] !== ""));
  return table({ id: "sides", name: "side-by-side", columns, rows: sides, sort: null, open, search: sides.length > 8 });
}

function bars(answer, sides) {
  const parts = answer.words.map((word, at) => ({ word, colour: answer.colours[at] }));
  const rest = answer.others.some((size) => size > 0);
  if (rest) parts.push({ word: "All others", colour: colours().rest });
  const rows = sides.map((side, at) => ({
    name: side.name,
    title: side.name,
    total: side.peak,
    sizes: [...answer.bytes.map((sizes) => sizes[at]), ...(rest ? [side.others] : [])],
    odd: side.odd,
    open: () => open(side),
  }));
  return [parts, rows];
}

/** Opens the page of a recording, or its views in this page. */
function open(side) {
  if (side.link) location.assign(side.link.split("/").map(encodeURIComponent).join("/"));
  else set({ view: "peak", run: side.run, runs: null, file: side.file, device: side.device });
}

/** One line per recording; an outlier is emphasized. */
function chart({ name: names, odd, curves }) {
  const byTime = curves.axis === "time";
  const all = curves.x.map((x) => (byTime ? x.map((one) => one - x[0]) : x));
  const longest = Math.max(...all.map((x) => x.at(-1)), 1e-6);
  const [word, scale] = byTime ? timeUnit(longest) : ["", 1];
  const stepBack = odd.includes(true);
  const lines = names.map((name, at) => {
    const colour = odd[at] ? lineColour(1) : stepBack ? colours().rest : lineColour(at);
    const moment = all[at].length === 1;
    const x = (moment ? [0, longest] : all[at]).map((one) => one / scale);
    const y = moment ? [...curves.bytes[at], ...curves.bytes[at]] : curves.bytes[at];
    return { name: moment ? `${name} (one moment)` : name, x, y, colour, width: odd[at] ? 2.6 : 1.4, steps: true, dash: moment ? "dot" : "solid" };
  });
  const title = byTime ? `time since each recording began, ${word}` : "event of the allocator";
  const first = Math.min(0, ...lines.map(({ x }) => x[0]));
  return { lines, x: { title, extent: [first, longest / scale], text: plainX } };
}

function timeUnit(span) {
  return MILLISECONDS.find(([, size]) => span >= size) ?? MILLISECONDS.at(-1);
}

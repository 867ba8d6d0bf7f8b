// The table of the profiler's old Memory view, of the brushed range if there is one.

import { button, el, section } from "../dom.js";
import { fixed, signedBytes } from "../format.js";
import { emptyState, notesOf } from "../parts.js";
import { deviceChoice, noRecording } from "../shell.js";
import { get, set } from "../state.js";
import { rowsOf, table } from "../table.js";

const COLUMNS = [
  { key: "name", label: "operator" },
  { key: "calls", label: "calls", kind: "whole", width: "90px" },
  { key: "size_increase", label: "size increase", kind: "bytes", text: (row) => signed(row.size_increase), width: "135px", hint: "Allocated less freed, with the operators it calls" },
  { key: "self_size_increase", label: "self size increase", kind: "bytes", text: (row) => signed(row.self_size_increase), width: "170px", hint: "Without the operators it calls" },
  { key: "allocations", label: "allocations", kind: "whole" },
  { key: "self_allocations", label: "self allocations", kind: "whole", width: "155px" },
  { key: "allocated", label: "allocated", kind: "bytes" },
  { key: "self_allocated", label: "self allocated", kind: "bytes", width: "145px" },
];

export const operatorsView = { name: "operators", title: "Operators", needs: "recording", prefers: ["trace"], draw };

async function draw(context) {
  if (!context.file) return noRecording(context.item);
  const range = get("b0") && get("b1") ? { axis: get("axis"), from: get("b0"), to: get("b1") } : {};
  const answer = await context.ask("operators", { run: context.run, file: context.file, device: context.device, ...range });
  const bar = el("div", { class: "bar" }, deviceChoice(answer.head), rangeNote(answer));
  if (answer.empty) return el("div", {}, bar, emptyState(answer.empty), notesOf(answer.head.notes));
  const note = "self: without the operators that it calls itself";
  return el("div", {}, bar, section("Operators", note, operatorTable(answer, "operators")), notesOf(answer.head.notes));
}

/** The table; columns without data are left out. */
export function operatorTable(answer, id) {
  if (answer.empty) return emptyState(answer.empty);
  const columns = COLUMNS.filter((column) => answer.columns[column.key].some((value) => value !== null));
  return table({ id, name: id, columns, rows: rowsOf(answer.columns), sort: "self_allocated" });
}

function rangeNote({ axis }) {
  const whole = axis.range[0] <= axis.extent[0] && axis.range[1] >= axis.extent[1];
  if (whole) return el("span", { class: "note" }, "the whole recording: choose a range in the tab Timeline to narrow it");
  const unit = axis.axis === "time" ? " ms" : "";
  const text = axis.axis === "time" ? axis.range.map((one) => fixed(one, 2)) : axis.range.map((one) => Math.round(one));
  const clear = button("Whole recording", () => set({ b0: null, b1: null }), { id: "operators-whole" });
  return el("span", { id: "operators-range" }, `${axis.axis} ${text.join(" to ")}${unit} `, clear);
}

function signed(value) {
  return value === null ? "" : signedBytes(value);
}

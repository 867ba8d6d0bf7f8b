// The answer `compare` goes in; what grew and what shrank between two runs comes out.

import { button, el, section } from "../dom.js";
import { signedBytes, word } from "../format.js";
import { badge, changeText, emptyState, errorsOf, notesOf } from "../parts.js";
import { picker } from "../picker.js";
import { get, set } from "../state.js";
import { rowsOf, table } from "../table.js";

const TABLES = [
  ["by_category", "category"],
  ["by_module", "module"],
  ["by_line", "line"],
  ["by_operator", "operator"],
];

export const compareView = { name: "compare", title: "Compare", needs: "none", draw };

async function draw(context) {
  const { runs } = context.index;
  if (runs.length < 2) {
    const text = "This log folder has one run. Record a second one, and see here what grew.";
    return emptyState({ title: "Nothing to compare with", text, commands: ["tbmem demo --logdir runs --inject leak", "tbmem compare runs/BEFORE runs/AFTER"] });
  }
  const after = runs.find((one) => one.run === get("after"))?.run ?? context.run;
  const other = runs.find((one) => one.run !== after).run;
  const before = runs.find((one) => one.run === get("before"))?.run ?? other;
  const top = chooser(runs, before, after);
  let answer;
  try {
    answer = await context.ask("compare", { before, after, before_file: get("before_file"), after_file: get("after_file") });
  } catch (error) {
    return el("div", {}, top, emptyState({ title: "This could not be compared", text: error.message }));
  }
  if (answer.empty) return el("div", {}, top, errorsOf(answer.errors), emptyState(answer.empty));
  return el("div", {}, top, errorsOf(answer.errors), verdict(answer), whole(answer), recorded(answer, runs), notesOf(answer.notes));
}

function chooser(runs, before, after) {
  const items = runs.map((one) => ({ value: one.run, text: one.run }));
  const files = { before_file: null, after_file: null };
  const pick = (key) => ([value]) => set({ before, after, ...files, [key]: value });
  return el(
    "div",
    { class: "bar" },
    picker({ label: "Before", id: "pick-before", items, chosen: [before], pick: pick("before") }),
    button("⇄", () => set({ before: after, after: before, ...files }), { "aria-label": "Swap" }),
    picker({ label: "After", id: "pick-after", items, chosen: [after], pick: pick("after") }),
  );
}

function verdict(answer) {
  const grown = peakChange(answer);
  if (grown === null) return null;
  const kind = Math.abs(grown) < 1 ? "good" : grown > 0 ? "warning" : "good";
  const text = Math.abs(grown) < 1 ? "SAME" : grown > 0 ? "GREW" : "SHRANK";
  const what = answer.recordings.length ? "Recorded peak" : "Peak";
  const sentence = `${what} of ${answer.after} against ${answer.before}: ${changeText(grown)}.`;
  return el("div", { class: `finding ${kind}`, id: "grown" }, el("p", {}, badge(text, kind), " ", sentence));
}

/** Change of the peak in per cent: of the recording, else of the whole run. */
function peakChange(answer) {
  const totals = (answer.recordings[0] ?? answer.runs[0])?.totals;
  const at = totals?.name.findIndex((name) => name.includes("peak")) ?? -1;
  return at < 0 ? answer.grown_percent : totals.percent[at];
}

function whole(answer) {
  if (!answer.runs.length) return null;
  const lists = answer.runs.map((device) => el("div", {}, el("h3", {}, device.name), changes(`runs-${device.device}`, "figure", device.totals, false)));
  return section("Whole runs", "by their logs", lists);
}

function recorded(answer, runs) {
  if (!answer.recordings.length) return null;
  const parts = answer.recordings.map((device) =>
    el(
      "div",
      {},
      el("h3", {}, device.name),
      changes(`rec-${device.device}`, "figure", device.totals, false),
      TABLES.filter(([key]) => device[key].name.length).map(([key, name]) =>
        el("details", { open: key === "by_category" || key === "by_module" }, el("summary", {}, `By ${name}`), changes(`rec-${device.device}-${key}`, name, device[key], true)),
      ),
    ),
  );
  const nameOf = (run, file) => runs.find((one) => one.run === run)?.recordings.find((one) => one.file === file)?.name ?? file;
  const note = `${nameOf(answer.before, answer.before_file)} and ${nameOf(answer.after, answer.after_file)}, each at its peak`;
  return section("Recordings", note, parts);
}

/** `run_peak_bytes` as `Run peak`; names of modules and lines stay as they are. */
function written(text, kind) {
  if (kind === "category") return word(text);
  if (kind !== "figure") return text;
  const plain = text.replace(/_bytes$/, "").replaceAll("_", " ");
  return plain.charAt(0).toUpperCase() + plain.slice(1);
}

function changes(id, name, list, search) {
  const most = Math.max(...list.change.map(Math.abs), 1);
  const columns = [
    { key: "name", label: name, text: (row) => written(row.name, name) },
    { key: "before", label: "before", kind: "bytes" },
    { key: "after", label: "after", kind: "bytes" },
    {
      key: "change",
      label: "change",
      kind: "bytes",
      width: "180px",
      text: (row) => signedBytes(row.change),
      bar: (row) => (100 * Math.abs(row.change)) / most,
      colour: (row) => (row.change > 0 ? "var(--warn)" : "var(--good)"),
    },
    { key: "percent", label: "%", kind: "percent", width: "100px", text: (row) => (row.before === row.after ? "" : changeText(row.percent)) },
  ];
  return table({ id, name: `change-by-${name}`, columns, rows: rowsOf(list), sort: null, search });
}


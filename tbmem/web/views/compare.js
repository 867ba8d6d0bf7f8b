// Recordings side by side, and what grew between two of them.

import { isReport } from "../api.js";
import { detailPanel } from "../detail.js";
import { button, el, section } from "../dom.js";
import { deviceName, signedBytes, word } from "../format.js";
import { badge, emptyState, errorsOf, framesOf, notesOf, shortStack } from "../parts.js";
import { picker } from "../picker.js";
import { sideBySide } from "../sides.js";
import { get, set } from "../state.js";
import { rowsOf, table } from "../table.js";

const TABLES = [
  ["by_category", "category"],
  ["by_module", "module"],
  ["by_line", "line"],
  ["by_stack", "stack"],
  ["by_operator", "operator"],
];

export const compareView = { name: "compare", title: "Compare", needs: "none", draw };

async function draw(context) {
  const { runs } = context.index;
  if (runs.length < 2) {
    const text = "This log folder has one run. Record a second one, and see here what grew.";
    return emptyState({ title: "Nothing to compare with", text, commands: ["tbmem demo --logdir runs --inject leak", "tbmem compare runs/BEFORE runs/AFTER"] });
  }
  const [before, after] = pairOf(context);
  const top = chooser(runs, before, after);
  const asked = { before, after, before_file: get("before_file"), after_file: get("after_file") };
  let answer;
  let sides;
  try {
    [answer, sides] = await Promise.all([context.ask("compare", asked), context.ask("sides", asked)]);
  } catch (error) {
    return el("div", {}, top, emptyState({ title: "This could not be compared", text: error.message }));
  }
  const beside = sideBySide(sides);
  const changed = answer.empty ? emptyState(answer.empty) : [whole(answer), recorded(answer, runs), notesOf(answer.notes)];
  const told = [top, errorsOf(answer.errors), !answer.empty && verdict(answer)];
  // a report of several recordings shows all first, the tab the selection
  const parts = isReport() ? [beside, section("What changed", null, told), changed] : [told, beside, changed];
  return el("div", {}, parts.flat(2));
}

/** As chosen; else the run that is shown against the latest other, and in a report the last against the first. */
function pairOf({ index: { runs }, run }) {
  const after = get("after") || (isReport() || !run ? runs.at(-1).run : run);
  return [get("before") || runs.find((one) => one.run !== after).run, after];
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

function verdict({ headline }) {
  if (!headline) return null;
  const kind = headline.grew ? "warning" : "good";
  return el("div", { class: `finding ${kind}`, id: "grown" }, el("p", {}, badge(headline.label, kind), " ", headline.text));
}

function whole(answer) {
  if (!answer.runs.length) return null;
  const lists = answer.runs.map((device) => el("div", {}, el("h3", {}, device.name), changes(`runs-${device.device}`, "figure", device.totals, false)));
  return section("Whole runs", "by their logs", lists);
}

function recorded(answer, runs) {
  if (!answer.recordings.length) return null;
  const detail = detailPanel();
  const parts = answer.recordings.map((device) =>
    el(
      "div",
      {},
      el("h3", {}, device.before_device === device.device ? device.name : `${deviceName(device.before_device)} → ${device.name}`),
      changes(`rec-${device.device}`, "figure", device.totals, false),
      TABLES.filter(([key]) => device[key].name.length).map(([key, name]) =>
        el("details", { open: key === "by_category" || key === "by_module" }, el("summary", {}, `By ${name}`), part(device, key, name, detail)),
      ),
    ),
  );
  const nameOf = (run, file) => runs.find((one) => one.run === run)?.recordings.find((one) => one.file === file)?.name ?? file;
  const note = `${nameOf(answer.before, answer.before_file)} and ${nameOf(answer.after, answer.after_file)}, each at its peak`;
  return section("Recordings", note, parts, detail.node);
}

function part(device, key, name, detail) {
  const id = `rec-${device.device}-${key}`;
  if (key !== "by_stack") return changes(id, name, device[key], true);
  const open = (row) => detail.put(el("h2", {}, `${signedBytes(row.change)} at ${row.name}`), framesOf(row.frames));
  return changes(id, name, device[key], true, open);
}

function changes(id, name, list, search, open) {
  const most = Math.max(...list.change.map(Math.abs), 1);
  const columns = [
    { key: "name", label: open ? "line" : name, text: (row) => (name === "category" ? word(row.name) : (row.words ?? row.name)) },
    open && { key: "frames", label: "stack", text: (row) => shortStack(row.frames), value: (row) => row.frames.join("\n") },
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
    { key: "percent", label: "%", kind: "percent", width: "100px", text: (row) => (row.before === row.after ? "" : row.percent_text) },
  ].filter(Boolean);
  return table({ id, name: `change-by-${name}`, columns, rows: rowsOf(list), sort: null, search, open });
}


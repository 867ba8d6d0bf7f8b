// All runs as one table, those with problems first; a click opens a run's cards.

import { button, choice, el, labelled, section } from "../dom.js";
import { bytes, duration, known, moment, percent, signedBytes, whole } from "../format.js";
import { badge } from "../parts.js";
import { get, set } from "../state.js";
import { table } from "../table.js";

const HOUR = 3600;
const TIGHT = 10;

/** Filters: key in the address, label, and `[value, text, test(row, now)]` for each option; the first lets all pass. */
const FILTERS = [
  ["o.verdict", "Verdict", [["", "any"], ["problems", "problems", (row) => row.urgency > 0]]],
  [
    "o.state",
    "State",
    [["", "any"], ["running", "running", (row) => row.running], ["over", "finished", (row) => !row.running]],
  ],
  [
    "o.room",
    "Headroom",
    [["", "any"], ["tight", `below ${TIGHT} %`, (row) => known(row.headroom_percent) && row.headroom_percent < TIGHT]],
  ],
  ["o.growth", "Growth", [["", "any"], ["grows", "grows", (row) => row.growth_per_step >= 1]]],
  [
    "o.when",
    "Last line",
    [["", "any time"], ...[["hour", 1], ["day", 24], ["week", 168]].map(([name, hours]) => [
      name,
      `within the ${name}`,
      (row, now) => now - row.changed <= hours * HOUR,
    ])],
  ],
];

/** The table; `open(run)` shows a run's cards. */
export function triage(rows, open) {
  const verdicts = [...new Set(rows.map((row) => row.label).filter(Boolean))];
  const filters = FILTERS.map(([key, label, options]) => {
    const named = key === "o.verdict" ? verdicts.map((text) => [text, text.toLowerCase(), (row) => row.label === text]) : [];
    return [key, label, [...options, ...named]];
  });
  const now = Date.now() / 1000;
  const tests = filters.map(([key, , options]) => options.find(([value]) => value === get(key))?.[2]).filter(Boolean);
  const shown = rows.filter((row) => tests.every((test) => test(row, now)));
  const lists = filters.map(([key, label, options]) =>
    labelled(label, choice(options.map(([value, text]) => [value, text]), get(key), (value) => set({ [key]: value }), { id: key })),
  );
  const clear = tests.length > 0 && button("All runs", () => set(Object.fromEntries(FILTERS.map(([key]) => [key, null]))));
  const problems = rows.filter((row) => row.urgency > 0).length;
  return section(
    "Runs",
    `${whole(rows.length)} runs, ${problems ? `${whole(problems)} with a problem, on top` : "none with a problem"}`,
    el("div", { class: "bar triage-bar" }, lists, clear),
    table({ id: "runs", name: "runs", label: "Runs", columns: COLUMNS, rows: shown, open: (row) => open(row.run) }),
  );
}

const COLUMNS = [
  { key: "run", label: "run", width: "170px" },
  {
    key: "label",
    label: "verdict",
    width: "140px",
    order: (row) => row.urgency,
    cell: (row) => (row.label ? badge(row.label, row.urgency === 0 ? "good" : row.severity) : ""),
  },
  {
    key: "status_text",
    label: "state",
    width: "140px",
    cell: (row) => el("span", { class: `state ${row.status}` }, row.status.replaceAll("_", " ")),
  },
  { key: "reason", label: "why", width: "auto", value: (row) => [row.reason, row.line].filter(Boolean).join(" · ") },
  { key: "peak", label: "peak", kind: "bytes", width: "100px" },
  {
    key: "headroom",
    label: "headroom",
    kind: "bytes",
    width: "156px",
    order: (row) => row.headroom_percent ?? row.headroom,
    bar: (row) => row.headroom_percent,
    text: (row) => `${bytes(row.headroom)}${known(row.headroom_percent) ? ` (${percent(row.headroom_percent, 0)})` : ""}`,
  },
  {
    key: "growth_per_step",
    label: "per step",
    hint: "growth in bytes per step",
    kind: "bytes",
    width: "116px",
    text: (row) => (known(row.growth_per_step) && Math.abs(row.growth_per_step) >= 1 ? signedBytes(row.growth_per_step) : "–"),
  },
  { key: "step", label: "steps", kind: "whole", width: "68px" },
  { key: "seconds", label: "duration", kind: "whole", width: "92px", text: (row) => duration(row.seconds) },
  { key: "changed", label: "last line", kind: "whole", width: "104px", text: (row) => moment(row.changed).slice(5, 16) },
];

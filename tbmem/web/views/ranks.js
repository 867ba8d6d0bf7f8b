// All ranks side by side, with the outlier marked.

import { partBars } from "../bars.js";
import { el, section } from "../dom.js";
import { deviceName, known, signedBytes, whole, word } from "../format.js";
import { badge, emptyState, errorsOf, notesOf, severityOf, sparklines } from "../parts.js";
import { get, set } from "../state.js";
import { rowsOf, table } from "../table.js";

export const ranksView = { name: "ranks", title: "Ranks", needs: "run", draw };

async function draw(context) {
  const answer = await context.ask("ranks", { run: context.run, recordings: 1 });
  const rows = rowsOf(answer.columns);
  if (answer.empty && !rows.length) return el("div", {}, errorsOf(answer.errors), emptyState(answer.empty));
  const most = Math.max(...rows.map((row) => row.peak ?? row.allocated ?? 0), 1);
  const open = (row) => set({ view: "live", runs: null, run: context.run, on: get("on") && row.device });
  const columns = [
    { key: "rank", label: "rank", kind: "whole", width: "70px" },
    { key: "host", label: "host", width: "130px" },
    { key: "device", label: "device", text: (row) => deviceName(row.device), width: "90px" },
    { key: "verdict", label: "verdict", width: "150px", cell: (row) => verdict(row) },
    { key: "peak", label: "peak", kind: "bytes", bar: (row) => (100 * (row.peak ?? 0)) / most, colour: (row) => (row.odd ? "var(--warn)" : "var(--accent)"), width: "170px" },
    { key: "allocated", label: "allocated", kind: "bytes" },
    { key: "reserved", label: "reserved", kind: "bytes" },
    { key: "headroom", label: "headroom", kind: "bytes" },
    { key: "growth_per_step", label: "growth", kind: "bytes", width: "130px", text: (row) => (known(row.growth_per_step) ? `${signedBytes(row.growth_per_step)}/step` : "") },
    { key: "step", label: "step", kind: "whole", width: "80px" },
    { key: "levels", label: "over the steps", value: () => "", cell: (row) => el("div", {}, sparklines(row, row.odd ? "warning" : "info")), width: "180px" },
  ];
  const odd = answer.odd && el("div", { class: "finding warning", id: "odd" }, el("p", {}, badge("ODD ONE OUT", "warning"), " ", answer.odd));
  const list = table({ id: "ranks", name: `ranks-of-${context.run}`, columns, rows, sort: null, open, search: rows.length > 8 });
  const ranks = new Set(answer.columns.rank).size;
  const count = ranks > 1 ? `${whole(ranks)} ranks, the bars to one scale` : "one rank";
  const none = !answer.empty && !answer.odd && el("p", { class: "note" }, "No rank stands out.");
  return el(
    "div",
    {},
    errorsOf(answer.errors),
    odd,
    none,
    section("Ranks", count, list),
    answer.empty && emptyState(answer.empty),
    recordings(answer.recordings),
    notesOf(answer.notes),
  );
}

function verdict(row) {
  return el("span", {}, badge(row.label || "–", severityOf(row)), row.odd && " odd");
}

/** One bar for each rank's recorded peak, its categories to scale. */
function recordings(found) {
  if (!found?.rank.length) return null;
  const parts = found.categories.map((name, at) => ({ word: word(name), colour: found.colours[at] }));
  const rows = found.rank.map((rank, at) => ({
    name: `rank ${rank}`,
    title: found.file[at],
    total: found.peak[at],
    sizes: found.bytes.map((sizes) => sizes[at]),
    open: () => set({ view: "peak", file: found.file[at], device: found.device[at] }),
  }));
  return section("Recorded peaks", "of the latest recording of each rank, by category", partBars(parts, rows));
}

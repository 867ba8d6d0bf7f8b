// Allocations alive at the peak, broken down in six ways.

import { fetchView, isReport } from "../api.js";
import { allocationColumns } from "../brush.js";
import { detailPanel } from "../detail.js";
import { button, choice, el, labelled, replace, section } from "../dom.js";
import { bytes, percent, whole, word } from "../format.js";
import { emptyState, framesOf, keyed, notesOf, shortStack, tiles } from "../parts.js";
import { deviceChoice, noRecording } from "../shell.js";
import { get, set } from "../state.js";
import { rowsOf, table } from "../table.js";
import { onGround } from "../theme.js";
import { moduleTree } from "../tree.js";

const MOST = 2000;
const BASIS = { known: "address book", inferred: "inference", mixed: "both", none: "" };
const PARTS = [
  ["category", "Category"],
  ["phase", "Phase"],
  ["tree", "Module tree"],
  ["merged", "Merged modules"],
  ["stacks", "Stack traces"],
  ["lines", "Lines"],
  ["operators", "Operators"],
  ["tensors", "Tensors"],
];

export const peakView = { name: "peak", title: "Peak", needs: "recording", prefers: ["trace", "snapshot"], draw };

async function draw(context) {
  if (!context.file) return noRecording(context.item);
  const where = { run: context.run, file: context.file, device: context.device };
  const answer = await context.ask("peak", where);
  if (answer.empty) return el("div", {}, deviceChoice(answer.head), emptyState(answer.empty), notesOf(answer.head.notes));
  const detail = detailPanel(where.run, where.file);
  const place = el("div", { role: "tabpanel", id: "peak-part" });
  const show = () => replace(place, partOf(answer, { ...where, device: answer.head.device }, context, detail));
  const tabs = partTabs(show);
  show();
  return el(
    "div",
    { class: "peak" },
    el("div", { class: "bar" }, deviceChoice(answer.head)),
    tiles(figures(answer)),
    shareBar(answer.by_category, answer.peak.bytes),
    advice(answer),
    tabs,
    place,
    detail.node,
    notesOf(answer.head.notes),
  );
}

function figures(answer) {
  const { peak, capacity } = answer;
  const phase = peak.phase === "OTHER" ? "" : word(peak.phase);
  const when = [peak.step >= 0 && `step ${whole(peak.step)}`, phase, peak.line].filter(Boolean).join(" · ");
  const of = (size) => capacity && `${percent((100 * size) / capacity)} of ${bytes(capacity)}`;
  return [
    ["peak", bytes(peak.bytes), when],
    answer.reserved_peak !== null && ["reserved at most", bytes(answer.reserved_peak), of(answer.reserved_peak)],
    capacity && ["device", bytes(capacity), of(peak.bytes)],
    ["recording", answer.head.kind, `${answer.head.measure} bytes`],
  ];
}

/** The peak as one bar of its parts, to scale. */
function shareBar(shares, total) {
  const parts = shares.name.map((name, at) => {
    const share = (100 * shares.bytes[at]) / (total || 1);
    const text = `${word(name)} ${bytes(shares.bytes[at])}, ${percent(shares.percent[at])}`;
    const style = { width: `${share}%`, background: onGround(shares.colour[at]) || "var(--line)" };
    return share > 0.05 && el("span", { style, title: text });
  });
  const legend = shares.name.map((name, at) => shares.bytes[at] > 0 && keyed(`${word(name)} ${bytes(shares.bytes[at])}`, shares.colour[at]));
  const bar = el("div", { class: "share-bar", role: "img", "aria-label": "Parts of the peak" }, parts);
  return el("div", {}, bar, el("div", { class: "legend" }, legend));
}

function advice(answer) {
  const said = (one) => answer.advice.some((other) => other.message.includes(one.message));
  const suspects = answer.suspects.filter((one) => !said(one)).map((one) => el("li", {}, el("b", {}, "Accumulates: "), one.message));
  const wise = answer.advice.map((one) => el("li", {}, one.message, one.setting && [" ", el("code", {}, one.setting)]));
  const all = [...suspects, ...wise];
  return all.length ? el("ul", { class: "advice-list" }, all) : null;
}

function partTabs(show) {
  const list = el("div", { role: "tablist", class: "subtabs", "aria-label": "Peak by" });
  const tabs = PARTS.map(([key, text]) => {
    const press = () => {
      set({ part: key }, true);
      choose();
      show();
    };
    const tab = button(text, press, { role: "tab", "data-part": key, "aria-controls": "peak-part", id: `part-${key}` });
    return tab;
  });
  list.addEventListener("keydown", (event) => {
    const at = tabs.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1 }[event.key];
    if (to === undefined || at < 0) return;
    const tab = tabs[(to + tabs.length) % tabs.length];
    tab.focus();
    tab.click();
  });
  list.append(...tabs);
  choose();
  return list;

  function choose() {
    for (const tab of tabs) {
      const on = tab.dataset.part === part();
      tab.setAttribute("aria-selected", String(on));
      tab.tabIndex = on ? 0 : -1;
    }
  }
}

function part() {
  return PARTS.some(([key]) => key === get("part")) ? get("part") : "category";
}

function partOf(answer, where, context, detail) {
  const parts = {
    category: () => shareTable("peak-category", "category", answer.by_category, true),
    phase: () => shareTable("peak-phase", "phase", answer.by_phase),
    tree: () => moduleTree(answer.modules),
    merged: () => shareTable("peak-merged", "module", answer.merged),
    stacks: () => stackTable(answer.stacks, detail),
    lines: () => shareTable("peak-lines", "line", answer.by_line),
    operators: () => shareTable("peak-operators", "operator", answer.by_operator),
    tensors: () => tensorTable(where, context, detail),
  };
  return parts[part()]();
}

function shareTable(id, name, shares, categories = false) {
  const text = name === "category" || name === "phase" ? (row) => word(row.name) : undefined;
  const most = Math.max(...shares.percent, 1e-9);
  const columns = [
    { key: "name", label: name, text, colour: (row) => onGround(row.colour) },
    { key: "bytes", label: "at the peak", kind: "bytes", bar: (row) => (100 * row.percent) / most, colour: (row) => onGround(row.colour), width: "180px" },
    { key: "percent", label: "%", kind: "percent", width: "80px" },
    { key: "count", label: "allocations", kind: "whole" },
    { key: "end_bytes", label: "at the end", kind: "bytes" },
  ];
  if (categories) {
    columns.push({ key: "max_bytes", label: "most at any moment", kind: "bytes", width: "190px" });
    columns.push({ key: "basis", label: "known by", width: "130px", text: (row) => BASIS[row.basis] ?? row.basis });
  }
  return table({ id, name: `peak-by-${name}`, columns, rows: rowsOf(shares), sort: "bytes" });
}

function stackTable(stacks, detail) {
  const open = (row) => detail.put(el("h2", {}, `${bytes(row.bytes)} in ${whole(row.count)} allocations`), framesOf(ownOf(row)));
  const columns = [
    { key: "line", label: "the user's own line", text: (row) => row.line || row.frames[0] || "" },
    { key: "frames", label: "stack", text: (row) => shortStack(row.frames), value: (row) => row.frames.join("\n") },
    { key: "bytes", label: "at the peak", kind: "bytes", bar: (row) => row.percent, width: "180px" },
    { key: "percent", label: "%", kind: "percent", width: "80px" },
    { key: "count", label: "allocations", kind: "whole" },
  ];
  const rows = rowsOf(stacks);
  return table({ id: "peak-stacks", name: "peak-by-stack", columns, rows, sort: "bytes", open });
}

function ownOf({ frames, own }) {
  return frames.map((text, at) => ({ text, own: own[at] }));
}

function tensorTable(where, context, detail) {
  const place = el("div");
  const colours = context.index.colours.categories;
  const columns = allocationColumns(Object.fromEntries(Object.entries(colours).map(([name, one]) => [name, onGround(one)])));
  const open = (row) => detail.show(row.row);
  const common = { id: "peak-tensors", name: "tensors-at-the-peak", columns, sort: "bytes", open };
  const ask = (more = {}) => fetchView("tensors", { ...where, category: get("category"), limit: MOST, ...more });
  const fill = async () => {
    const first = await ask();
    const categories = [["", "all categories"], ...first.categories.map((one) => [one, word(one)])];
    const pick = (category) => {
      set({ category }, true);
      fill();
    };
    const filter = labelled("of", choice(categories, get("category"), pick, { id: "tensor-category" }));
    const fits = (row) => !get("category") || row.category === get("category");
    const list = isReport()
      ? table({ ...common, rows: rowsOf(first.columns).filter(fits) })
      : table({ ...common, ask: async (order) => answered(await ask(order)) });
    const kept = isReport() && first.count > first.columns.row.length;
    const note = kept && `the report has the ${whole(first.columns.row.length)} largest of ${whole(first.count)}`;
    replace(place, section("Tensors alive at the peak", note || "click one for its stack", el("div", { class: "bar" }, filter), list));
  };
  fill().catch((error) => replace(place, el("p", { class: "note" }, error.message)));
  return place;
}

function answered(answer) {
  return { rows: rowsOf(answer.columns), found: answer.found };
}

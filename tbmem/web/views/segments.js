// The allocator's state: segments and blocks to scale, and where memory is lost.

import { BlockMap, STATES } from "../blocks.js";
import { detailPanel } from "../detail.js";
import { el, labelled, replace, section } from "../dom.js";
import { bytes, known, percent, whole, word } from "../format.js";
import { badge, emptyState, facts, keyed, notesOf, tiles } from "../parts.js";
import { deviceChoice, noRecording } from "../shell.js";
import { get, set } from "../state.js";
import { rowsOf, table } from "../table.js";
import { onGround } from "../theme.js";

const GRADES = { excellent: "good", good: "info", poor: "warning" };
const LINES = [8, 16, 32, 64, 128];

export const segmentsView = { name: "segments", title: "Segments", needs: "recording", prefers: ["snapshot"], draw };

async function draw(context) {
  if (!context.file) return noRecording(context.item);
  const where = { run: context.run, file: context.file, device: context.device };
  const answer = await context.ask("segments", where);
  const top = el("div", { class: "bar" }, deviceChoice(answer.head));
  if (answer.empty) return el("div", {}, top, emptyState(answer.empty), notesOf(answer.head.notes));
  const detail = detailPanel(where.run, where.file);
  return el(
    "div",
    { class: "segments" },
    top,
    tiles(figures(answer)),
    partsBar(answer),
    blockMap(answer, detail),
    detail.node,
    section("Segments", listed(answer), segmentTable(answer)),
    settingsOf(answer),
    notesOf(answer.head.notes),
  );
}

/** The allocator's settings when the snapshot was taken. */
function settingsOf({ settings }) {
  const found = Object.entries(settings);
  if (!found.length) return null;
  return el("details", { id: "allocator-settings" }, el("summary", {}, `Allocator settings (${whole(found.length)})`), facts(found));
}

function figures(answer) {
  const free = answer.fragmentation;
  const fits = free.failing_request_fits_free_sum;
  const failed = known(free.failing_request_bytes) && [
    "request that failed",
    bytes(free.failing_request_bytes),
    fits ? "would have fitted into all free blocks together: fragmentation" : "more than all that was free",
  ];
  return [
    ["reserved", bytes(answer.reserved), answer.capacity && `of ${bytes(answer.capacity)}`],
    ["allocated", bytes(answer.allocated), `${whole(answer.blocks_count)} blocks in ${whole(answer.segments_count)} segments`],
    known(answer.efficiency_percent) && ["in use at the peak", percent(answer.efficiency_percent), [`of ${bytes(answer.reserved_peak)} `, badge(answer.grade, GRADES[answer.grade] ?? "info")]],
    known(free.fragmented_bytes) && ["fragmented", bytes(free.fragmented_bytes), `${whole(free.gaps)} gaps, the largest ${bytes(free.largest_gap_bytes)}`],
    known(free.cached_bytes) && ["cached", bytes(free.cached_bytes), "whole segments and pages: given back when needed"],
    failed,
  ];
}

/** Reserved memory as one bar of its parts, to scale. */
function partsBar({ parts, reserved }) {
  const spans = parts.name.map((name, at) => {
    const share = (100 * parts.bytes[at]) / (reserved || 1);
    const style = { width: `${share}%`, background: onGround(parts.colour[at]) };
    return share > 0.02 && el("span", { style, title: `${name} ${bytes(parts.bytes[at])}`, class: /fragment|gaps/.test(name) ? "hatched" : "" });
  });
  const legend = parts.name.map((name, at) => keyed(`${name} ${bytes(parts.bytes[at])}, ${percent(parts.percent[at])}`, parts.colour[at]));
  const bar = el("div", { class: "share-bar", role: "img", "aria-label": "Parts of reserved memory" }, spans);
  return section("Reserved memory", null, bar, el("div", { class: "legend" }, legend));
}

function blockMap(answer, detail) {
  if (!answer.segments.bytes.length) return null;
  const tip = el("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  const start = LINES.findIndex((one) => one >= (Number(get("lines")) || 16));
  const map = new BlockMap(answer, {
    lines: LINES[start],
    hover: (hit, event) => showTip(tip, answer, hit, event),
    press: (hit) => hit.block >= 0 && answer.blocks.row[hit.block] >= 0 && detail.show(answer.blocks.row[hit.block]),
  });
  const slider = el("input", { type: "range", min: 0, max: LINES.length - 1, step: 1, value: start, id: "segments-scale" });
  slider.addEventListener("input", () => {
    set({ lines: LINES[slider.value] }, true);
    map.setLines(LINES[slider.value]);
  });
  const used = new Set(answer.blocks.category.filter((_, at) => answer.blocks.state[at] === 1));
  const legend = el(
    "div",
    { class: "legend" },
    answer.words.map((text, at) => used.has(at) && keyed(text, answer.colours[at])),
    el("span", { class: "keyed" }, el("span", { class: "key hatched" }), STATES[0]),
    el("span", { class: "keyed" }, el("span", { class: "key cached" }), STATES[3]),
    answer.blocks.state.includes(2) && keyed("waits for a stream", "#CC79A7"),
  );
  const total = answer.segments.bytes.reduce((sum, one) => sum + one, 0);
  const note = `one line is about ${bytes(total / LINES[start])} wide`;
  return section("Blocks to scale", note, el("div", { class: "bar" }, labelled("larger", slider)), legend, map.node, tip);
}

function showTip(tip, answer, hit, event) {
  tip.hidden = !hit;
  if (!hit) return;
  const { segments, blocks, words } = answer;
  const { segment, block } = hit;
  const lines = [el("b", {}, block >= 0 ? bytes(blocks.bytes[block]) : "not listed")];
  if (block >= 0) {
    const asked = blocks.requested[block];
    const category = blocks.category[block];
    lines.push(el("div", {}, STATES[blocks.state[block]]));
    if (category >= 0) lines.push(keyed(words[category], answer.colours[category]));
    if (asked && asked !== blocks.bytes[block]) lines.push(el("div", { class: "note" }, `asked for ${bytes(asked)}`));
  }
  const kind = `${segments.kind[segment]} segment ${segments.address[segment]}, ${bytes(segments.bytes[segment])}`;
  lines.push(el("div", { class: "note" }, kind), el("div", { class: "note" }, `pool ${segments.pool[segment]}, stream ${segments.stream[segment]}`));
  replace(tip, lines);
  const right = event.clientX + tip.offsetWidth + 24 > document.documentElement.clientWidth;
  tip.style.left = `${right ? event.clientX - tip.offsetWidth - 14 : event.clientX + 14}px`;
  tip.style.top = `${event.clientY + 14}px`;
}

function listed({ segments, segments_count: count }) {
  return count > segments.bytes.length ? `the largest ${whole(segments.bytes.length)} of ${whole(count)}` : `${whole(count)}, the largest first`;
}

function segmentTable({ segments }) {
  const fields = ["address", "bytes", "allocated", "active", "requested", "cached", "fragmented", "stream", "kind", "pool", "expandable"];
  const rows = rowsOf(segments, fields);
  const columns = [
    { key: "address", label: "address" },
    { key: "bytes", label: "size", kind: "bytes" },
    { key: "allocated", label: "allocated", kind: "bytes", bar: (row) => (100 * row.allocated) / (row.bytes || 1), width: "150px" },
    { key: "free", label: "free", kind: "bytes", value: (row) => row.bytes - row.active },
    { key: "cached", label: "cached", kind: "bytes" },
    { key: "fragmented", label: "fragmented", kind: "bytes" },
    { key: "rounding", label: "lost to rounding", kind: "bytes", value: (row) => row.active - row.requested, width: "140px" },
    { key: "kind", label: "kind", width: "80px", text: (row) => word(row.kind) },
    { key: "pool", label: "pool", width: "90px" },
    { key: "stream", label: "stream", kind: "whole", width: "80px" },
    { key: "expandable", label: "expandable", width: "110px", value: (row) => (row.expandable ? "yes" : "no") },
  ];
  return table({ id: "segments", name: "segments", columns, rows, sort: "bytes" });
}

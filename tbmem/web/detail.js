// The panel with the details of one allocation.

import { fetchView, isReport } from "./api.js";
import { button, el, lazily, replace } from "./dom.js";
import { bytes, duration, whole, word } from "./format.js";
import { facts, failure, framesOf, keyed } from "./parts.js";

const BASIS = { known: "known from the address book", inferred: "inferred", none: "" };

/** The empty panel; `show(row)` fills it. */
export function detailPanel(run, file) {
  const node = el("aside", { class: "detail", hidden: true, "aria-label": "Allocation", tabindex: -1 });
  let turn;
  return { node, show };

  async function show(row) {
    const mine = (turn = {});
    node.hidden = false;
    replace(node, el("p", { class: "note" }, "loading"));
    let content;
    try {
      content = contentOf(await fetchView("stack", { run, file, row }));
    } catch (error) {
      content = failure(error);
    }
    if (mine !== turn) return;
    replace(node, button("×", () => (node.hidden = true), { class: "close", "aria-label": "Close" }), content);
    node.scrollIntoView({ block: "nearest" });
    node.focus({ preventScroll: true });
  }
}

/** The panel beside the charts: `peek(row)` while the pointer moves, `pin(row)` until it is closed. */
export function dockPanel(run, file) {
  const node = el("aside", { class: "detail dock", "aria-label": "Allocation", tabindex: -1 });
  let [turn, pinned] = [{}, false];
  const peek = lazily((row) => !pinned && fill(row), 90);
  clear();
  return { node, peek, pin };

  function clear() {
    pinned = false;
    node.dataset.pinned = "";
    const text = isReport() ? "Click on an allocation to see its stack." : "Point at an allocation to see its stack; click to keep it.";
    replace(node, el("p", { class: "note" }, text));
  }

  async function pin(row) {
    pinned = true;
    node.dataset.pinned = row;
    await fill(row);
    if (pinned) node.focus({ preventScroll: true });
  }

  async function fill(row) {
    const mine = (turn = {});
    let content;
    try {
      content = contentOf(await fetchView("stack", { run, file, row }));
    } catch (error) {
      content = failure(error);
    }
    if (mine !== turn) return;
    replace(node, pinned && button("×", clear, { class: "close", "aria-label": "Close" }), content);
    node.scrollTop = 0;
  }
}

function contentOf(one) {
  const rounded = one.rounded_bytes !== null && one.rounded_bytes !== one.bytes && ` (block ${bytes(one.rounded_bytes)})`;
  const basis = BASIS[one.basis] ?? one.basis;
  const list = facts([
    ["size", `${bytes(one.bytes)}${rounded || ""}, ${whole(one.bytes)} B`],
    ["category", el("span", {}, keyed(one.word, one.colour), basis && el("span", { class: "note" }, ` ${basis}`))],
    ["name", one.name],
    ["module", one.module],
    ["operator", one.operator],
    ["line", one.line && el("code", {}, one.line)],
    ["made", madeAt(one)],
    ["lived", livedFor(one)],
    ["address", one.address],
    ["stream", one.stream ? String(one.stream) : ""],
    ["context", one.context],
  ]);
  const stack = el("div", {}, el("h3", {}, "Stack, the innermost line first"), framesOf(one.frames));
  return el("div", {}, el("h2", {}, one.name || one.operator || word(one.category)), list, stack);
}

function madeAt(one) {
  if (one.alloc_event < 0) return "before the recording";
  const phase = one.phase && one.phase !== "OTHER" ? word(one.phase) : "";
  const when = one.begin_ms === null ? `event ${whole(one.alloc_event)}` : `${one.begin_ms.toFixed(3)} ms`;
  return [one.step >= 0 && `step ${whole(one.step)}`, phase, when].filter(Boolean).join(" · ");
}

function livedFor(one) {
  if (one.free_event === -1) return "to the end of the recording";
  if (one.free_event === -2) return "not known: its free was not recorded";
  if (one.begin_ms === null || one.end_ms === null) return `until event ${whole(one.free_event)}`;
  return duration((one.end_ms - one.begin_ms) / 1000);
}

// The panel docked beside the page, where what was clicked or brushed is shown.

import { fetchView } from "./api.js";
import { button, el, lazily, replace } from "./dom.js";
import { bytes, duration, whole, word } from "./format.js";
import { facts, failure, framesOf, keyed } from "./parts.js";

const BASIS = { known: "known from the address book", inferred: "inferred", none: "" };

/**
 * The panel of a recording: `show(row)` fills it with an allocation until it is closed, `peek(row)` while nothing is kept,
 * `put` with anything; `range` is its end. Without content it is hidden, or shows the hint.
 */
export function detailPanel(run, file, hint = null) {
  const place = el("div", { class: "detail", tabindex: -1 });
  const range = el("div", { id: "brushed", "aria-live": "polite" });
  const keydown = (event) => event.key === "Escape" && clear();
  const node = el("aside", { class: "dock", "aria-label": "Detail", on: { keydown } }, place, range);
  let [turn, kept] = [{}, false];
  const peek = lazily((row) => !kept && fill(row), 90);
  clear();
  return { node, range, show, peek, put };

  function clear() {
    [turn, kept] = [{}, false];
    place.hidden = hint === null;
    replace(place, hint !== null && el("p", { class: "note" }, hint));
  }

  async function show(row) {
    put(el("p", { class: "note" }, "loading"));
    await fill(row);
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
    if (kept) put(content);
    else replace(place, content);
  }

  function put(...content) {
    [turn, kept] = [{}, true];
    place.hidden = false;
    replace(place, button("×", clear, { class: "close", "aria-label": "Close" }), ...content);
    node.scrollTop = 0;
    place.focus({ preventScroll: true });
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
  const forward = one.forward_frames?.length > 0 && [el("h3", {}, "Where the forward pass called it"), framesOf(one.forward_frames)];
  return el("div", {}, el("h2", {}, one.name || one.operator || word(one.category)), list, stackOf(one.frames), forward);
}

function stackOf(frames) {
  return el("div", {}, el("h3", {}, "Stack, the innermost line first"), framesOf(frames));
}

/** A segment of the allocator; `frames` are `null` where they are not known. */
export function segmentContent(one, frames) {
  const list = facts([
    ["size", `${bytes(one.bytes)}, ${whole(one.bytes)} B`],
    ["reserved", one.begin],
    ["released", one.end],
    ["address", one.address],
    ["memory", one.pool],
    ["stream", one.stream ? String(one.stream) : ""],
  ]);
  return el("div", {}, el("h2", {}, one.expandable ? "Pages of an expandable segment" : "Segment"), list, frames && stackOf(frames));
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

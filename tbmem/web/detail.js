// The panel docked beside the page, where what was clicked or brushed is shown.

import { fetchView } from "./api.js";
import { button, el, replace } from "./dom.js";
import { bytes, duration, whole, word } from "./format.js";
import { facts, failure, framesOf, keyed } from "./parts.js";

const BASIS = { known: "known from the address book", inferred: "inferred", none: "" };

/** The empty panel of a recording; `show(row)` fills it with an allocation, `put` with anything, `range` is its end. */
export function detailPanel(run, file) {
  const place = el("div", { class: "detail", hidden: true, tabindex: -1 });
  const range = el("div", { id: "brushed", "aria-live": "polite" });
  const keydown = (event) => event.key === "Escape" && (place.hidden = true);
  const node = el("aside", { class: "dock", "aria-label": "Detail", on: { keydown } }, place, range);
  let turn;
  return { node, range, show, put };

  async function show(row) {
    put(el("p", { class: "note" }, "loading"));
    const mine = turn;
    let content;
    try {
      content = contentOf(await fetchView("stack", { run, file, row }));
    } catch (error) {
      content = failure(error);
    }
    if (mine === turn) put(content);
  }

  function put(...content) {
    turn = {};
    place.hidden = false;
    replace(place, button("×", () => (place.hidden = true), { class: "close", "aria-label": "Close" }), ...content);
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

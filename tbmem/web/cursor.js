// The allocator at the cursor of a timeline: segments and blocks, and whether one more request would fit.

import { fetchView, isReport } from "./api.js";
import { BlockMap, STATES } from "./blocks.js";
import { button, el, labelled, lazily, replace } from "./dom.js";
import { bytes, known, percent, whole } from "./format.js";
import { badge, facts, keyed } from "./parts.js";
import { get, set } from "./state.js";

const LINES = 8;
const MIB = 2 ** 20;
const USUAL = 512;
const WAIT = 60;

export class AllocatorCursor {
  /**
   * @param options.where  Run, file, device and axis.
   * @param options.xText  A value of x as text.
   * @param options.mark   `(x)`: draw the cursor; `null` for none.
   * @param options.dock   The panel of stacks.
   * @param options.failed Bytes of a request that failed in the recording, which are tried at first.
   */
  constructor({ where, xText, mark, dock, failed }) {
    Object.assign(this, { where, xText, mark, dock });
    this.usual = failed ? Number((failed / MIB).toFixed(2)) : USUAL;
    this.pinned = get("c0") ? Number(get("c0")) : null;
    this.at = this.pinned;
    this.none = isReport();
    this.when = el("span", { id: "cursor-when", "aria-live": "polite" });
    this.free = button("Let go", () => this.pin(null), { id: "cursor-free", hidden: this.pinned === null });
    this.figures = el("div", { id: "cursor-figures" });
    this.place = el("div");
    this.node = el("div", { id: "allocator", hidden: true });
    this.lazily = lazily(() => this.ask(), WAIT);
  }

  /** Draw the first state, once there are charts. */
  start() {
    if (isReport()) {
      this.node.hidden = false;
      replace(this.node, el("p", { class: "note" }, "The allocator's blocks at any event: in TensorBoard's Memory tab, from the recording's file."));
    }
    if (this.none) return;
    this.mark(this.at);
    this.ask();
  }

  /** Follow the pointer, unless a moment is pinned. */
  hover(x) {
    if (this.none || this.pinned !== null || x === null) return;
    this.at = x;
    this.mark(x);
    this.lazily();
  }

  /** Keep a moment; `null` follows the pointer again. */
  pin(x) {
    if (this.none) return;
    this.pinned = x;
    this.free.hidden = x === null;
    set({ c0: x }, true);
    if (x !== null) this.at = x;
    this.mark(this.at);
    this.ask();
  }

  async ask() {
    const turn = (this.turn = {});
    const { axis, run, file, device } = this.where;
    const size = this.wanted() * MIB;
    let answer;
    try {
      answer = await fetchView("state", { run, file, device, axis, at: this.at, size: Math.round(size) || null });
    } catch (error) {
      replace(this.when, error.message);
      return;
    }
    if (turn !== this.turn) return;
    this.none = Boolean(answer.empty);
    this.node.hidden = this.none;
    if (this.none) return this.mark(null);
    if (!this.map) this.build(answer);
    else this.map.update(answer);
    this.tell(answer);
  }

  /** The size that is tried, in MiB. */
  wanted() {
    return Math.max(Number(get("fit") || this.usual) || 0, 0);
  }

  build(answer) {
    const row = (hit) => (hit && hit.block >= 0 ? this.answer.blocks.row[hit.block] : -1);
    this.map = new BlockMap(answer, {
      lines: LINES,
      low: true,
      total: answer.reserved_peak,
      hover: (hit) => row(hit) >= 0 && this.dock.peek(row(hit)),
      press: (hit) => row(hit) >= 0 && this.dock.show(row(hit)),
    });
    const input = el("input", { type: "number", min: 1, step: "any", value: this.wanted(), id: "fit-size" });
    input.addEventListener("input", () => {
      set({ fit: input.value || null }, true);
      this.lazily();
    });
    this.verdict = el("output", { id: "fit-verdict", for: "fit-size" });
    const legend = el(
      "div",
      { class: "legend" },
      el("span", { class: "keyed", title: STATES[0] }, el("span", { class: "key hatched" }), "fragmented"),
      el("span", { class: "keyed", title: STATES[3] }, el("span", { class: "key cached" }), "cached"),
      keyed(STATES[2], "#CC79A7"),
    );
    const fit = el("div", { class: "bar fit" }, labelled("Would a request fit here? MiB", input), this.verdict);
    const title = "Segments by address, after the event under the cursor, in the colours of the charts; click a chart to hold the moment";
    const head = el("div", { class: "bar", title }, el("h2", {}, "Allocator"), this.when, this.free);
    replace(this.node, head, this.map.node, legend, this.figures, fit);
  }

  tell(answer) {
    this.answer = answer;
    this.node.dataset.event = answer.event;
    const when = this.where.axis === "event" ? "" : ` · ${this.xText(answer.x, 3)}`;
    replace(this.when, this.pinned === null ? "" : badge("held", "info"), ` event ${whole(answer.event)}${when}`);
    const free = answer.fragmentation;
    const share = (size) => (answer.reserved ? ` (${percent((100 * size) / answer.reserved)})` : "");
    replace(
      this.figures,
      facts([
        ["reserved", bytes(answer.reserved)],
        ["segments", whole(answer.segments_count)],
        ["in use", `${bytes(answer.active)}${share(answer.active)}`],
        ["cached", bytes(answer.cached)],
        ["fragmented", `${bytes(free.fragmented_bytes)}${share(free.fragmented_bytes)}`],
        ["gaps", whole(free.gaps)],
        ["largest free", bytes(free.largest_free_block_bytes)],
        ["largest gap", bytes(free.largest_gap_bytes)],
      ]),
    );
    const { fit } = answer;
    const more = fit && [`${bytes(fit.free)} free in ${whole(fit.free_blocks)} blocks of its pool and stream`];
    if (fit && known(fit.device_free)) more.push(`the device has ${bytes(fit.device_free)} left`);
    const severity = fit?.verdict === "fits" ? "good" : fit?.fits ? "info" : "critical";
    const told = fit && [badge(fit.verdict.toUpperCase(), severity), ` ${fit.sentence}`];
    replace(this.verdict, told ?? "");
    this.verdict.title = fit ? more.join("; ") : "";
  }
}

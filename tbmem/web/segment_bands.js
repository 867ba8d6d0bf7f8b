// Reserved memory over time: each segment a band over its lifetime, in the layer of its memory pool.

import { fetchView, isReport } from "./api.js";
import { foundAt, outline, paintBands } from "./bands.js";
import { segmentContent } from "./detail.js";
import { el, replace } from "./dom.js";
import { bytes, whole } from "./format.js";
import { failure, keyed } from "./parts.js";

export class SegmentBands {
  /**
   * @param options.where  Run, file, device and axis.
   * @param options.xText  A value of x as text.
   * @param options.dock   The panel beside the charts.
   */
  constructor({ where, xText, dock }) {
    Object.assign(this, { where, xText, dock });
    this.legend = el("div", { class: "legend", id: "pools" });
  }

  /** Fetch what is drawn; `range` has the parameters of the timeline. */
  async ask(range) {
    const answer = await fetchView("reserved", { ...this.where, ...range });
    this.answer = { ...answer, allocations: answer.segments };
    const { words, colours } = answer;
    replace(this.legend, words.map((text, at) => keyed(text, colours[at])));
  }

  paint(canvas, frame) {
    if (this.answer && !this.answer.empty) paintBands(canvas, frame, this.answer);
  }

  /** What is under the pointer, drawn around; `null` for nothing. */
  hover(frame, x, y) {
    const found = x === null || !this.answer || this.answer.empty ? null : foundAt(frame, this.answer, x, y);
    const band = found?.band ?? -1;
    frame.drawFront(band >= 0 ? (context) => outline(context, frame, this.answer, band) : undefined);
    return found;
  }

  tip(found) {
    const pool = keyed(this.answer.words[found.layer], this.answer.colours[found.layer]);
    if (found.band < 0) return [el("b", {}, bytes(found.bytes)), pool, el("div", { class: "note" }, "all without a band of their own together")];
    const one = this.segment(found.band);
    return [
      el("b", {}, bytes(one.bytes)),
      el("div", {}, one.expandable ? "pages of an expandable segment" : "segment"),
      pool,
      el("div", { class: "note" }, `${one.begin} – ${one.end}`),
      el("div", { class: "note" }, "click to keep its stack"),
    ];
  }

  /** Show a segment and its stack in the dock. */
  async show(band) {
    const one = this.segment(band);
    this.dock.put(segmentContent(one, null));
    if (isReport()) return;
    const { run, file, device } = this.where;
    const turn = (this.turn = {});
    try {
      const { frames } = await fetchView("segment", { run, file, device, segment: one.row });
      if (turn === this.turn) this.dock.put(segmentContent(one, frames));
    } catch (error) {
      if (turn === this.turn) this.dock.put(failure(error));
    }
  }

  /** How many are drawn, as text. */
  shown() {
    if (!this.answer) return "";
    const { shown, count } = this.answer.segments;
    return this.answer.empty ? "the recording does not say which memory was reserved when" : `${whole(shown)} of ${whole(count)} segments`;
  }

  segment(band) {
    const { bands } = this.answer.segments;
    const one = Object.fromEntries(Object.entries(bands).map(([name, values]) => [name, values[band]]));
    const text = (x) => this.xText(x, 3);
    const begin = one.before ? "before the recording" : text(one.x0);
    return { ...one, begin, end: one.alive ? "to the end" : text(one.x1), pool: this.answer.words[one.layer] };
  }
}

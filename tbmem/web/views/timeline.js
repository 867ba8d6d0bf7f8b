// The answers `timeline` and `allocations` go in; memory stacked by category and as bands of single allocations comes out.

import { fetchView, isReport } from "../api.js";
import { bandAt, outline, paintBands } from "../bands.js";
import { brushedHere, brushPanel } from "../brush.js";
import { detailPanel } from "../detail.js";
import { button, choice, el, labelled, lazily, replace, section } from "../dom.js";
import { bytes, known, percent, whole, word } from "../format.js";
import { Frame } from "../frame.js";
import { after, paintLayers, stretchAt, STRIP } from "../layers.js";
import { emptyState, failure, keyed, notesOf } from "../parts.js";
import { deviceChoice, noRecording } from "../shell.js";
import { get, set } from "../state.js";

const LARGEST = [50, 100, 250, 500, 1000, 2500, 5000, 10000];
const USUAL = 1000;

export const timelineView = { name: "timeline", title: "Timeline", needs: "recording", prefers: ["trace", "snapshot"], draw };

async function draw(context) {
  if (!context.file) return noRecording(context.item);
  const where = { run: context.run, file: context.file, device: context.device, axis: get("axis") };
  const [layers, bands] = await Promise.all([
    context.ask("timeline", { ...where, ...zoomed() }),
    context.ask("allocations", { ...where, ...zoomed(), largest: largest() }),
  ]);
  if (layers.empty) return el("div", {}, deviceChoice(layers.head), emptyState(layers.empty), notesOf(layers.head.notes));
  return new TimelinePage(where, layers, bands).node;
}

function zoomed() {
  return get("t0") && get("t1") ? { from: get("t0"), to: get("t1") } : {};
}

function largest() {
  return Number(get("largest")) || USUAL;
}

class TimelinePage {
  constructor(where, layers, bands) {
    this.where = { ...where, device: layers.head.device, axis: layers.axis.axis };
    this.layers = layers;
    this.bands = bands;
    this.tip = el("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    this.detail = detailPanel(where.run, where.file);
    this.brushed = el("div", { class: "brushed", id: "brushed", "aria-live": "polite" });
    this.info = el("span", { class: "note", id: "bands-shown" });
    this.refine = lazily(() => this.ask(), 160);
    this.makeFrames();
    this.node = el(
      "div",
      { class: "timeline" },
      this.bar(),
      section("By category", this.summary(), this.legend(), this.top.node),
      section("Allocations", "each one a band over its lifetime, the largest drawn one by one", this.bandBar(), this.low.node),
      this.detail.node,
      this.brushed,
      notesOf(layers.head.notes),
      this.tip,
    );
    const range = get("t0") && get("t1") ? [Number(get("t0")), Number(get("t1"))] : layers.axis.extent;
    this.showRange(range);
    if (get("b0") && get("b1")) this.brush([Number(get("b0")), Number(get("b1"))], false);
    this.tell();
  }

  makeFrames() {
    const common = {
      extent: this.layers.axis.extent,
      xText: (value, digits) => this.xText(value, digits),
      moved: (range) => this.moved(range),
      brushed: (range) => this.brush(range, true),
    };
    this.top = new Frame({
      ...common,
      label: `Memory over time by category. ${this.summary()}`,
      height: 320,
      strip: STRIP,
      paint: (canvas, frame) => paintLayers(canvas, frame, this.layers),
      hover: (x, y, event) => this.hoverLayers(x, y, event),
    });
    this.low = new Frame({
      ...common,
      label: "Allocations as bands over their lifetime; the tab Peak lists them as a table",
      height: 420,
      paint: (canvas, frame) => paintBands(canvas, frame, this.bands),
      hover: (x, y, event) => this.hoverBands(x, y, event),
      press: (x, y) => this.press(x, y),
    });
  }

  bar() {
    const { axis } = this.layers;
    const names = { time: "time", event: "events" };
    const axes = axis.axes.map((one) => [one, names[one] ?? one]);
    const pick = (value) => set({ axis: value, t0: null, t1: null, b0: null, b1: null });
    const modes = [["select", "choose a range"], ["pan", "move"]];
    const mode = choice(modes, "select", (value) => (this.top.mode = this.low.mode = value), { id: "drag-mode" });
    return el(
      "div",
      { class: "bar", role: "group", "aria-label": "Axis and zoom" },
      deviceChoice(this.layers.head),
      axes.length > 1 && labelled("over", choice(axes, axis.axis, pick, { id: "pick-axis" })),
      labelled("dragging", mode),
      el("span", { class: "grow" }),
      button("−", () => this.top.zoom(1 / 0.6), { "aria-label": "Zoom out" }),
      button("+", () => this.top.zoom(0.6), { "aria-label": "Zoom in", id: "zoom-in" }),
      button("◀", () => this.top.pan(-0.25), { "aria-label": "Earlier" }),
      button("▶", () => this.top.pan(0.25), { "aria-label": "Later" }),
      button("All", () => this.top.reset(), { id: "zoom-all" }),
      el("span", { class: "note keys" }, "wheel zooms (click first), Shift-drag moves, keys ← → + − 0"),
    );
  }

  bandBar() {
    const at = LARGEST.findIndex((one) => one >= largest());
    const text = el("output", {}, whole(LARGEST[at]));
    const slider = el("input", { type: "range", min: 0, max: LARGEST.length - 1, step: 1, value: at, id: "detail-slider" });
    slider.addEventListener("input", () => {
      text.textContent = whole(LARGEST[slider.value]);
      set({ largest: LARGEST[slider.value] }, true);
      this.refine();
    });
    return el("div", { class: "bar" }, labelled("detail: the largest", slider), text, this.info);
  }

  summary() {
    const { peak, capacity, head } = this.layers;
    const when = [peak.step >= 0 && `step ${whole(peak.step)}`, peak.phase !== "OTHER" && word(peak.phase), peak.line];
    const of = capacity ? ` of ${bytes(capacity)}` : "";
    return [`peak ${bytes(peak.bytes)}${of}`, ...when, `${head.measure} bytes`].filter(Boolean).join(" · ");
  }

  legend() {
    const { words, colours } = this.layers;
    const phases = new Map(this.layers.phases.label.map((label, at) => [label, this.layers.phases.colour[at]]));
    phases.delete("OTHER");
    return el(
      "div",
      { class: "legend", id: "categories" },
      words.map((text, at) => keyed(text, colours[at])),
      this.layers.reserved && el("span", { class: "keyed" }, el("span", { class: "key dashed", "aria-hidden": "true" }), "reserved"),
      phases.size > 0 && el("span", { class: "note" }, "strip below:"),
      [...phases].map(([label, colour]) => keyed(word(label), colour)),
    );
  }

  xText(value, digits) {
    if (this.layers.axis.axis === "event") return whole(value);
    const [first, last] = this.layers.axis.extent;
    if (last - first < 10000) return `${value.toFixed(digits)} ms`;
    return `${(value / 1000).toFixed(Math.max(0, digits + 3))} s`;
  }

  moved(range) {
    this.showRange(range);
    const [first, last] = this.layers.axis.extent;
    const all = range[0] <= first && range[1] >= last;
    set({ t0: all ? null : range[0], t1: all ? null : range[1] }, true);
    this.refine();
  }

  showRange(range) {
    const highest = this.highest(range);
    this.top.show(range, highest);
    this.low.show(range, Math.max(...this.within(this.bands.rest_x, this.bands.total, range), highest));
  }

  highest(range) {
    const { x, total, reserved } = this.layers;
    return Math.max(...this.within(x, total, range), ...(reserved ? this.within(x, reserved, range) : []));
  }

  within(x, values, [from, to]) {
    const begin = Math.max(after(x, from) - 1, 0);
    const found = values.slice(begin, after(x, to));
    return [found.reduce((most, one) => Math.max(most, one), 1)];
  }

  async ask() {
    if (isReport()) return;
    const turn = (this.turn = {});
    const range = zoomed();
    try {
      const [layers, bands] = await Promise.all([
        fetchView("timeline", { ...this.where, ...range }),
        fetchView("allocations", { ...this.where, ...range, largest: largest() }),
      ]);
      if (turn !== this.turn || !this.node.isConnected) return;
      [this.layers, this.bands] = [layers, bands];
    } catch (error) {
      replace(this.info, error.message);
      return;
    }
    this.showRange(this.top.range);
    this.tell();
    this.node.dataset.refined = String(Number(this.node.dataset.refined ?? 0) + 1);
  }

  tell() {
    const { shown, count, shown_bytes, count_bytes } = this.bands;
    const share = percent((100 * shown_bytes) / (count_bytes || 1), 0);
    const rest = count > shown ? `, ${share} of their bytes; the smaller ones grey on top` : "";
    this.info.textContent = `${whole(shown)} of ${whole(count)} allocations${rest}`;
  }

  async brush(range, user) {
    for (const frame of [this.top, this.low]) frame.setBrush(range);
    if (user) set({ b0: range?.[0] ?? null, b1: range?.[1] ?? null, axis: range ? this.where.axis : get("axis") }, true);
    if (!range) return replace(this.brushed);
    const turn = (this.brushTurn = {});
    let panel;
    try {
      const answer = await this.askBrush(range);
      panel = brushPanel(answer, this.layers.head, {
        open: (row) => this.detail.show(row),
        zoom: () => this.moved(range),
        clear: () => this.brush(null, true),
        text: range.map((value) => this.xText(value, this.layers.axis.axis === "event" ? 0 : 2)).join(" to "),
      });
    } catch (error) {
      panel = failure(error);
    }
    if (turn === this.brushTurn) replace(this.brushed, panel);
    return null;
  }

  async askBrush(range) {
    if (isReport()) return brushedHere(this.layers, this.bands, range);
    return fetchView("range", { ...this.where, from: range[0], to: range[1], limit: 200 });
  }

  hoverLayers(x, y, event) {
    if (x === null) return this.hideTip();
    const { layers } = this;
    const at = Math.max(after(layers.x, x) - 1, 0);
    const parts = layers.words.map((text, layer) => [text, layers.colours[layer], layers.bytes[layer][at]]);
    const lines = parts.filter(([, , size]) => size > 0).reverse();
    const phase = stretchAt(layers.phases, x);
    const step = stretchAt(layers.steps, x);
    const where = [step >= 0 && layers.steps.label[step], phase >= 0 && word(layers.phases.label[phase])];
    this.showTip(event, [
      el("b", {}, bytes(layers.total[at])),
      el("span", { class: "note" }, ` ${[this.xText(x, 2), ...where].filter(Boolean).join(" · ")}`),
      lines.map(([text, colour, size]) => el("div", { class: "tip-row" }, keyed(text, colour), bytes(size))),
      layers.reserved && known(layers.reserved[at]) && el("div", { class: "tip-row" }, "reserved", el("span", {}, bytes(layers.reserved[at]))),
    ]);
    return false;
  }

  hoverBands(x, y, event) {
    const band = x === null ? -1 : bandAt(this.bands, x, y);
    this.low.drawFront(band >= 0 ? (context) => outline(context, this.low, this.bands, band) : undefined);
    if (band < 0) return this.hideTip();
    const { bands, labels, lines, modules, words, colours } = this.bands;
    const text = (list, at) => (at >= 0 ? list[at] : "");
    const category = bands.category[band];
    this.showTip(event, [
      el("b", {}, bytes(bands.bytes[band])),
      el("div", {}, text(labels, bands.label[band])),
      keyed(words[category], colours[category]),
      text(modules, bands.module[band]) && el("div", { class: "note" }, text(modules, bands.module[band])),
      text(lines, bands.line[band]) && el("code", {}, text(lines, bands.line[band])),
      el("div", { class: "note" }, "click for the whole stack"),
    ]);
    return true;
  }

  press(x, y) {
    const band = bandAt(this.bands, x, y);
    if (band >= 0) this.detail.show(this.bands.bands.row[band]);
  }

  showTip(event, content) {
    replace(this.tip, ...content.flat());
    this.tip.hidden = false;
    const { clientWidth } = document.documentElement;
    const right = event.clientX + this.tip.offsetWidth + 24 > clientWidth;
    const low = event.clientY + this.tip.offsetHeight + 16 > window.innerHeight;
    this.tip.style.left = `${right ? event.clientX - this.tip.offsetWidth - 14 : event.clientX + 14}px`;
    this.tip.style.top = `${Math.max(4, low ? event.clientY - this.tip.offsetHeight - 8 : event.clientY + 14)}px`;
  }

  hideTip() {
    this.tip.hidden = true;
    return false;
  }
}

// Memory over time, stacked by category and, in the same layers, as bands of single allocations.

import { fetchView, isReport } from "../api.js";
import { foundAt, outline, paintBands } from "../bands.js";
import { brushedHere, brushPanel, eventList, onOpening } from "../brush.js";
import { AllocatorCursor } from "../cursor.js";
import { detailPanel } from "../detail.js";
import { button, choice, el, labelled, lazily, replace, section } from "../dom.js";
import { bytes, fixed, known, whole, word } from "../format.js";
import { Frame, plotWidth, Tip } from "../frame.js";
import { paintLayers, stretchAt, STRIP } from "../layers.js";
import { Minimap } from "../minimap.js";
import { emptyState, failure, keyed, notesOf } from "../parts.js";
import { deviceChoice, noRecording } from "../shell.js";
import { SegmentBands } from "../segment_bands.js";
import { lastUntil, momentAt } from "../stack.js";
import { get, set } from "../state.js";
import { operatorTable } from "./operators.js";

const LARGEST = [50, 100, 250, 500, 1000, 2500];
const USUAL = 1000;
const HIDDEN = 1440;
const WIDE = "(min-width: 901px)";
const [ABOVE, LEAST, MOST] = [370, 380, 740];
/** Pixels of the page above and between the charts, and the least and most for both charts together. */
const POINT = "Point at an allocation to see its stack; click to keep it.";
const KEYS = [
  ["first", "click a chart, or go to it with Tab"],
  ["wheel, W S", "zoom; with Shift the bytes"],
  ["A D, Shift-drag", "move"],
  ["0", "show all"],
  ["Shift ← →", "choose a range; with Alt its beginning"],
  ["↓ ↑, Enter", "go through the bands, show one"],
];
const CLICK = "Click on an allocation to see its stack.";

export const timelineView = { name: "timeline", title: "Timeline", needs: "recording", prefers: ["trace", "snapshot"], draw };

async function draw(context) {
  if (!context.file) return noRecording(context.item);
  const where = { run: context.run, file: context.file, device: context.device, axis: get("axis") };
  const columns = columnsOfPage();
  const answer = await context.ask("timeline", { ...where, ...wanted(columns) });
  if (answer.empty) return el("div", {}, deviceChoice(answer.head), emptyState(answer.empty), notesOf(answer.head.notes));
  return new TimelinePage(where, answer, columns).node;
}

/** The range, the allocations with a band of their own, and two points for each column of pixels. */
function wanted(columns = columnsOfPage()) {
  const range = get("t0") && get("t1") ? { from: get("t0"), to: get("t1") } : {};
  return { ...range, largest: largest(), points: 2 * columns };
}

/** Width of the charts; a default while the page is hidden. */
function columnsOfPage() {
  const main = document.querySelector("main");
  const { paddingLeft, paddingRight } = getComputedStyle(main);
  return plotWidth((main.clientWidth || HIDDEN) - parseFloat(paddingLeft) - parseFloat(paddingRight));
}

function largest() {
  return Math.min(Number(get("largest")) || USUAL, LARGEST.at(-1));
}

class TimelinePage {
  constructor(where, answer, columns) {
    this.where = { ...where, device: answer.head.device, axis: answer.axis.axis };
    this.answer = answer;
    this.columns = columns;
    this.tip = new Tip();
    this.detail = detailPanel(where.run, where.file, isReport() ? CLICK : POINT);
    this.allocator = new AllocatorCursor({
      where: this.where,
      dock: this.detail,
      failed: answer.marks.bytes[answer.marks.kind.lastIndexOf("oom")],
      xText: (value, digits) => this.xText(value, digits),
      mark: (x) => [this.top, this.low].forEach((frame) => frame.setCursor(x)),
    });
    this.segments = new SegmentBands({ where: this.where, dock: this.detail, xText: (value, digits) => this.xText(value, digits) });
    this.keys = el("div", { class: "legend", id: "categories" });
    this.info = el("span", { class: "note", id: "bands-shown" });
    this.refine = lazily(() => this.ask(), 160);
    this.makeFrames();
    this.allocator.start();
    this.node = el(
      "div",
      { class: "timeline" },
      this.bar(),
      this.map.node,
      section("By category", this.summary(), this.keys, this.top.node),
      el("section", { "aria-label": "Bands" }, this.bandBar(), this.segments.legend, this.low.node),
      this.detail.node,
      notesOf(answer.head.notes),
      this.tip.node,
    );
    this.settle();
    const range = get("t0") && get("t1") ? [Number(get("t0")), Number(get("t1"))] : answer.axis.extent;
    this.showRange(range);
    if (get("b0") && get("b1")) this.brush([Number(get("b0")), Number(get("b1"))], false);
    this.tell();
    if (this.ofSegments()) this.ask();
    this.node.dataset.columns = columns;
    new ResizeObserver(() => this.resized()).observe(this.node);
  }

  /** The allocator lies in the panel beside the charts, and above the panel where that lies below them. */
  settle() {
    const wide = matchMedia(WIDE);
    const place = () => (wide.matches ? this.detail.node.prepend(this.allocator.node) : this.detail.node.before(this.allocator.node));
    wide.addEventListener("change", place);
    place();
  }

  /** Fetch again for the current number of columns. */
  resized() {
    if (!this.node.clientWidth || this.columns === this.top.wide) return;
    this.columns = this.top.wide;
    this.refine();
  }

  makeFrames() {
    const common = {
      extent: this.answer.axis.extent,
      xText: (value, digits) => this.xText(value, digits),
      moved: (range) => this.moved(range),
      brushed: (range) => this.brush(range, true),
      scaled: (band) => this.scaled(band),
    };
    const room = Math.min(Math.max(window.innerHeight - ABOVE, LEAST), MOST);
    this.map = new Minimap({ extent: common.extent, moved: common.moved });
    this.fillMap();
    this.top = new Frame({
      ...common,
      label: `Memory over time by category. ${this.summary()}`,
      height: Math.round(0.45 * room),
      strip: STRIP,
      paint: (canvas, frame) => paintLayers(canvas, frame, this.answer),
      hover: (x, y, event) => this.hoverLayers(x, y, event),
      press: (x) => this.allocator.pin(x),
    });
    this.low = new Frame({
      ...common,
      label: "Allocations as bands over their lifetime: arrows down and up go through them by size, Enter opens one",
      height: Math.round(0.55 * room),
      paint: (canvas, frame) => (this.ofSegments() ? this.segments.paint(canvas, frame) : paintBands(canvas, frame, this.answer)),
      hover: (x, y, event) => this.hoverBands(x, y, event),
      press: (x, y) => this.press(x, y),
      keys: {
        ArrowDown: () => this.choose(1),
        ArrowUp: () => this.choose(-1),
        Enter: () => this.chosen >= 0 && this.open(this.chosen),
      },
    });
    this.chosen = -1;
  }

  bar() {
    const { axis } = this.answer;
    const names = { time: "time", event: "events" };
    const axes = axis.axes.map((one) => [one, names[one] ?? one]);
    const pick = (value) => set({ axis: value, t0: null, t1: null, b0: null, b1: null, c0: null });
    const modes = [["select", "choose a range"], ["pan", "move"]];
    const mode = choice(modes, "select", (value) => (this.top.mode = this.low.mode = value), { id: "drag-mode" });
    return el(
      "div",
      { class: "bar", role: "group", "aria-label": "Axis and zoom" },
      deviceChoice(this.answer.head),
      axes.length > 1 && labelled("over", choice(axes, axis.axis, pick, { id: "pick-axis" })),
      labelled("dragging", mode),
      el("span", { class: "grow" }),
      button("−", () => this.top.zoom(1 / 0.6), { "aria-label": "Zoom out" }),
      button("+", () => this.top.zoom(0.6), { "aria-label": "Zoom in", id: "zoom-in" }),
      button("◀", () => this.top.pan(-0.25), { "aria-label": "Earlier" }),
      button("▶", () => this.top.pan(0.25), { "aria-label": "Later" }),
      button("All", () => this.top.reset(), { id: "zoom-all" }),
      el("details", { class: "keys" }, el("summary", {}, "Keys"), el("dl", { class: "facts" }, KEYS.flat().map((text, at) => el(at % 2 ? "dd" : "dt", {}, text)))),
    );
  }

  bandBar() {
    const at = LARGEST.findIndex((one) => one >= largest());
    const text = el("output", {}, whole(LARGEST[at]));
    const kinds = [["", "Allocations"], ["segments", "Segments"]];
    const pick = (value) => {
      set({ bands: value || null }, true);
      this.chosen = -1;
      this.refine();
    };
    const kind = choice(kinds, get("bands"), pick, { id: "pick-bands", "aria-label": "Bands" });
    const slider = el("input", { type: "range", min: 0, max: LARGEST.length - 1, step: 1, value: at, id: "detail-slider" });
    slider.addEventListener("input", () => {
      text.textContent = whole(LARGEST[slider.value]);
      set({ largest: LARGEST[slider.value] }, true);
      this.refine();
    });
    const title = "Each allocation is a band within its category's layer, each segment one within its memory pool's; pale: those without a band of their own";
    return el("div", { class: "bar", title }, kind, labelled("at most", slider), text, this.info);
  }

  summary() {
    const { peak, capacity, head } = this.answer;
    const when = [peak.step >= 0 && `step ${whole(peak.step)}`, peak.phase !== "OTHER" && word(peak.phase), peak.line];
    const of = capacity ? ` of ${bytes(capacity)}` : "";
    return [`peak ${bytes(peak.bytes)}${of}`, ...when, `${head.measure} bytes`].filter(Boolean).join(" · ");
  }

  legend() {
    const { words, colours, phases, reserved } = this.answer;
    const strip = new Map(phases.label.map((label, at) => [label, phases.colour[at]]));
    strip.delete("OTHER");
    return [
      ...words.map((text, at) => keyed(text, colours[at])),
      reserved && el("span", { class: "keyed" }, el("span", { class: "key dashed", "aria-hidden": "true" }), "reserved"),
      strip.size > 0 && el("span", { class: "note" }, "strip below:"),
      ...[...strip].map(([label, colour]) => keyed(word(label), colour)),
    ];
  }

  xText(value, digits) {
    if (this.answer.axis.axis === "event") return whole(value);
    const [first, last] = this.answer.axis.extent;
    if (last - first < 10000) return `${fixed(value, digits)} ms`;
    return `${fixed(value / 1000, Math.max(0, digits + 3))} s`;
  }

  moved(range) {
    this.showRange(range);
    const [first, last] = this.answer.axis.extent;
    const all = range[0] <= first && range[1] >= last;
    set({ t0: all ? null : range[0], t1: all ? null : range[1] }, true);
    this.refine();
  }

  showRange(range) {
    const highest = this.highest(range);
    this.map.show(range);
    this.top.show(range, highest);
    this.low.show(range, highest);
  }

  /** Both charts show the same bytes. */
  scaled(band) {
    for (const frame of [this.top, this.low]) {
      frame.band = band;
      frame.draw();
    }
  }

  async fillMap() {
    const { extent, range } = this.answer.axis;
    if (isReport() || (range[0] <= extent[0] && range[1] >= extent[1])) return this.map.setCurve(this.answer);
    return this.map.setCurve(await fetchView("timeline", { ...this.where, points: 2 * this.columns, largest: 0 }).catch(() => this.answer));
  }

  highest(range) {
    const { x, total, reserved } = this.answer;
    return Math.max(...this.within(x, total, range), ...(reserved ? this.within(x, reserved, range) : []));
  }

  within(x, values, [from, to]) {
    const found = values.slice(Math.max(lastUntil(x, from), 0), lastUntil(x, to) + 1);
    return [found.reduce((most, one) => Math.max(most, one), 1)];
  }

  /** Whether the lower chart shows segments. */
  ofSegments() {
    return get("bands") === "segments";
  }

  /** What the lower chart draws: layers and their bands. */
  drawn() {
    return this.ofSegments() ? this.segments.answer : this.answer;
  }

  async askSegments() {
    this.segments.legend.hidden = !this.ofSegments();
    if (this.ofSegments()) await this.segments.ask(wanted(this.columns));
  }

  async ask() {
    if (isReport()) {
      await this.askSegments();
      this.showRange(this.top.range);
      this.tell();
      return;
    }
    const turn = (this.turn = {});
    const { columns } = this;
    try {
      const [answer] = await Promise.all([fetchView("timeline", { ...this.where, ...wanted(columns) }), this.askSegments()]);
      if (turn !== this.turn || !this.node.isConnected) return;
      this.answer = answer;
      this.chosen = -1;
    } catch (error) {
      replace(this.info, error.message);
      return;
    }
    this.showRange(this.top.range);
    this.tell();
    this.node.dataset.columns = columns;
    this.node.dataset.refined = String(Number(this.node.dataset.refined ?? 0) + 1);
  }

  tell() {
    replace(this.keys, ...this.legend());
    this.segments.legend.hidden = !this.ofSegments();
    if (this.ofSegments()) {
      this.info.textContent = this.segments.shown();
      return;
    }
    const { shown, count } = this.answer.allocations;
    const others = shown < largest() ? "the others are shorter than a pixel" : "the others pale, together";
    this.info.textContent = `${whole(shown)} of ${whole(count)} allocations${count > shown ? `; ${others}` : ""}`;
  }

  async brush(range, user) {
    for (const frame of [this.top, this.low]) frame.setBrush(range);
    if (user) set({ b0: range?.[0] ?? null, b1: range?.[1] ?? null, axis: range ? this.where.axis : get("axis") }, true);
    const turn = (this.brushTurn = {});
    if (!range) return replace(this.detail.range);
    let panel;
    try {
      const answer = await this.askBrush(range);
      panel = brushPanel(answer, this.answer.head, {
        open: (row) => this.detail.show(row),
        all: async (key, count) => (await this.askBrush(range, count))[key].largest,
        zoom: () => this.moved(range),
        clear: () => this.brush(null, true),
        xText: (value) => this.xText(value, 3),
        more: isReport() ? [] : this.partsOf(range),
        text: range.map((value) => this.xText(value, this.answer.axis.axis === "event" ? 0 : 2)).join(" to "),
      });
    } catch (error) {
      panel = failure(error);
    }
    if (turn !== this.brushTurn) return null;
    replace(this.detail.range, panel);
    if (user) this.detail.node.scrollTop = this.detail.range.offsetTop;
    return null;
  }

  /** Operators and the allocator's log of a range. */
  partsOf([from, to]) {
    const ask = (view, more) => fetchView(view, { ...this.where, from, to, ...more });
    const open = (row, x) => {
      if (row >= 0) this.detail.show(row);
      this.allocator.pin(x);
    };
    const askEvents = (rare, order) => ask("events", { rare: rare ? 1 : null, ...order });
    const events = async () => eventList(askEvents, (x) => this.xText(x, 3), open);
    return [
      onOpening("range-operators", "Operators in it", async () => operatorTable(await ask("operators"), "operators-in-range")),
      onOpening("range-log", "Events in it, one by one", events),
    ];
  }

  async askBrush(range, limit = 200) {
    if (isReport()) return brushedHere(this.answer, range, limit);
    return fetchView("range", { ...this.where, from: range[0], to: range[1], limit });
  }

  hoverLayers(x, y, event) {
    this.allocator.hover(x);
    if (x === null) return this.hideTip();
    const layers = this.answer;
    const at = momentAt(this.top, layers, x);
    if (at < 0) return this.hideTip();
    const parts = layers.words.map((text, layer) => [text, layers.colours[layer], layers.bytes[layer][at]]);
    const lines = parts.filter(([, , size]) => size > 0).reverse();
    const phase = stretchAt(layers.phases, x);
    const step = stretchAt(layers.steps, x);
    const where = [step >= 0 && layers.steps.label[step], phase >= 0 && word(layers.phases.label[phase])];
    this.tip.show(event, [
      el("b", {}, bytes(layers.total[at])),
      el("span", { class: "note" }, ` ${[this.xText(x, 2), ...where].filter(Boolean).join(" · ")}`),
      lines.map(([text, colour, size]) => el("div", { class: "tip-row" }, keyed(text, colour), bytes(size))),
      layers.reserved && known(layers.reserved[at]) && el("div", { class: "tip-row" }, "reserved", el("span", {}, bytes(layers.reserved[at]))),
    ]);
    return false;
  }

  hoverBands(x, y, event) {
    if (this.ofSegments()) return this.hoverSegments(x, y, event);
    const found = x === null ? null : foundAt(this.low, this.answer, x, y);
    const band = found?.band ?? -1;
    this.allocator.hover(x);
    if (band >= 0 && !isReport()) this.detail.peek(this.answer.allocations.bands.row[band]);
    this.low.drawFront(band >= 0 ? (context) => outline(context, this.low, this.answer, band) : undefined);
    if (!found) return this.hideTip();
    const { words, colours } = this.answer;
    const category = keyed(words[found.layer], colours[found.layer]);
    this.tip.show(event, [el("b", {}, bytes(found.bytes)), band < 0 ? this.restTip(found.layer, category) : this.bandTip(band, category)]);
    return band >= 0;
  }

  hoverSegments(x, y, event) {
    this.allocator.hover(x);
    const found = this.segments.hover(this.low, x, y);
    if (!found) return this.hideTip();
    this.tip.show(event, this.segments.tip(found));
    return found.band >= 0;
  }

  bandTip(band, category) {
    const { bands, labels, lines, modules } = this.answer.allocations;
    const text = (list, at) => (at >= 0 ? list[at] : "");
    return [
      el("div", {}, text(labels, bands.label[band])),
      category,
      text(modules, bands.module[band]) && el("div", { class: "note" }, text(modules, bands.module[band])),
      text(lines, bands.line[band]) && el("code", {}, text(lines, bands.line[band])),
      el("div", { class: "note" }, "click to keep its stack"),
    ];
  }

  restTip(layer, category) {
    const unlisted = this.answer.allocations.unlisted[layer];
    const more = isReport() ? "" : "; zoom in or ask for more detail to see them";
    return [
      category,
      el("div", { class: "note" }, `all without a band of their own together${more}`),
      unlisted > 0 && el("div", { class: "note" }, `${bytes(unlisted)} of it in allocations that the recording does not list`),
    ];
  }

  press(x, y) {
    const shown = this.drawn();
    const band = shown && !shown.empty ? (foundAt(this.low, shown, x, y)?.band ?? -1) : -1;
    if (band >= 0) this.open(band);
    this.allocator.pin(x);
  }

  /** Show a band's allocation or segment in the dock. */
  open(band) {
    if (this.ofSegments()) this.segments.show(band);
    else this.detail.show(this.answer.allocations.bands.row[band]);
  }

  /** Mark the next smaller or larger band of those that are visible. */
  choose(by) {
    const shown = this.drawn();
    if (!shown || shown.empty) return;
    const { bands } = shown.allocations;
    const [from, to] = this.low.range;
    const visible = bands.row.map((_, at) => at).filter((at) => bands.x0[at] <= to && (bands.alive[at] || bands.x1[at] >= from));
    visible.sort((one, other) => bands.bytes[other] - bands.bytes[one]);
    if (!visible.length) return;
    const place = Math.min(Math.max(visible.indexOf(this.chosen) + by, 0), visible.length - 1);
    const band = (this.chosen = visible[place]);
    this.low.drawFront((context) => outline(context, this.low, shown, band));
    const edges = this.low.node.getBoundingClientRect();
    const layer = bands.layer[band];
    const at = { clientX: edges.left + this.low.x(Math.max(bands.x0[band], from)), clientY: edges.top + 40 };
    if (this.ofSegments()) return this.tip.show(at, this.segments.tip({ band, layer }));
    const category = keyed(shown.words[layer], shown.colours[layer]);
    this.tip.show(at, [el("b", {}, bytes(bands.bytes[band])), this.bandTip(band, category)]);
  }

  hideTip() {
    this.tip.hide();
    return false;
  }
}

// A canvas with axes that can be zoomed, panned and brushed, and that reports what lies under the pointer.
//
// The owner of the frame paints the area between the axes. A second canvas on top holds the highlight and the brush, so
// that moving the pointer repaints nothing else.

import { el, replace } from "./dom.js";
import { fixed, unitFor } from "./format.js";
import { colours } from "./theme.js";

const LEFT = 62;
const RIGHT = 28;
const TOP = 18;
const BOTTOM = 24;
const STEP = 0.2;
const NUDGE = 0.02;
const TALL = 30;

export class Frame {
  /**
   * @param options.label   Accessible name.
   * @param options.height  Pixels.
   * @param options.strip   Pixels kept free under the plot for a strip.
   * @param options.extent  Whole range of x.
   * @param options.box     Dragging zooms to the box that was dragged, in x, in y or in both; else it brushes.
   * @param options.xText   A value of x as text.
   * @param options.paint   `(context, frame)`: draw between the axes.
   * @param options.moved   `(range, done)`: the user zoomed or panned.
   * @param options.brushed `(range)`: the user brushed a range; `null` when it is cleared.
   * @param options.hover   `(x, y, event)`: the pointer is there; `null` when it left. Returns whether something is.
   * @param options.press   `(x, y)`: a click.
   * @param options.keys    Further keys and what they do.
   * @param options.scaled  `(band)`: the user zoomed vertically; `null` for all.
   */
  constructor(options) {
    this.options = { height: 300, strip: 0, ...options };
    this.extent = options.extent;
    this.range = [...options.extent];
    this.floor = 0;
    this.top = 1;
    this.band = null;
    this.brush = null;
    this.cursor = null;
    this.mode = "select";
    this.back = el("canvas", { "aria-hidden": "true" });
    this.front = el("canvas", { tabindex: 0, role: "img", "aria-label": options.label });
    this.node = el("div", { class: "frame", style: { height: `${this.options.height}px` } }, this.back, this.front);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  /** Pixels of an x. */
  x(value) {
    const [from, to] = this.range;
    return LEFT + ((value - from) / (to - from || 1)) * this.wide;
  }

  /** Pixels of an amount of bytes. */
  y(value) {
    return TOP + (1 - (value - this.least) / (this.most - this.least)) * this.high;
  }

  /** Lowest and highest amount between the axes. */
  get least() {
    return this.band?.[0] ?? this.floor;
  }

  get most() {
    return this.band?.[1] ?? this.top;
  }

  /** Position of the plot on the canvas, in device pixels. */
  get pixels() {
    const ratio = window.devicePixelRatio || 1;
    const [left, top, wide, high] = [LEFT, TOP, this.wide, this.high].map((value) => Math.round(value * ratio));
    return { left, top, wide, high };
  }

  /** The column of device pixels of an x. */
  columnOf(value) {
    const [from, to] = this.range;
    const { wide } = this.pixels;
    return Math.min(Math.floor(((value - from) / (to - from || 1)) * wide), wide - 1);
  }

  /** The x at which a column begins. */
  columnX(column) {
    return LEFT + (column / this.pixels.wide) * this.wide;
  }

  /** Pixels between the axes. */
  get wide() {
    return plotWidth(this.node.clientWidth);
  }

  get high() {
    return Math.max(this.options.height - TOP - BOTTOM - this.options.strip, 1);
  }

  get left() {
    return LEFT;
  }

  get bottom() {
    return TOP + this.high;
  }

  /** The x of a pixel. */
  xAt(pixel) {
    const [from, to] = this.range;
    return from + ((pixel - LEFT) / this.wide) * (to - from);
  }

  yAt(pixel) {
    return this.least + (1 - (pixel - TOP) / this.high) * (this.most - this.least);
  }

  /** Show another range, clipped to the extent, and amounts up to `most`. */
  show(range, most, least = 0) {
    this.range = this.cut(range);
    this.floor = least;
    this.top = least + Math.max(most - least, 1) * 1.04;
    this.draw();
  }

  /** Zoom by a factor around an x, as buttons and keys do. */
  zoom(factor, around = (this.range[0] + this.range[1]) / 2) {
    const [from, to] = this.range;
    this.move([around - (around - from) * factor, around + (to - around) * factor], true);
  }

  /** Pan by a share of the visible range. */
  pan(share) {
    const width = this.range[1] - this.range[0];
    this.move([this.range[0] + share * width, this.range[1] + share * width], true);
  }

  /** Zoom vertically by a factor around an amount of bytes. */
  zoomBytes(factor, around = (this.least + this.most) / 2) {
    if (!this.options.scaled) return;
    const low = Math.max(around - (around - this.least) * factor, 0);
    const high = Math.min(around + (this.most - around) * factor, this.top);
    this.scale(low <= 0 && high >= this.top ? null : [low, Math.max(high, low + this.top / 1e5)]);
  }

  scale(band) {
    this.band = band;
    this.options.scaled?.(band);
    this.draw();
  }

  /** Mark an x by an upright line; `null` for none. */
  setCursor(x) {
    this.cursor = x;
    this.drawFront();
  }

  /** Show the whole extent. */
  reset() {
    this.scale(null);
    this.move([...this.extent], true);
  }

  /** Set the brushed range without calling `brushed`. */
  setBrush(range) {
    this.brush = range;
    this.drawFront();
  }

  draw() {
    if (!this.node.clientWidth) return;
    const context = fresh(this.back, this.node.clientWidth, this.options.height);
    this.axes(context);
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, this.wide, TOP + this.high + this.options.strip + 2);
    context.clip();
    this.options.paint(context, this);
    context.restore();
    this.drawFront();
  }

  /** Redraw brush and highlight; `mark(context)` outlines what the pointer is on. */
  drawFront(mark) {
    if (!this.node.clientWidth) return;
    const context = fresh(this.front, this.node.clientWidth, this.options.height);
    context.beginPath();
    context.rect(LEFT, 0, this.wide, this.options.height);
    context.clip();
    if (this.brush) {
      const [from, to] = this.brush.map((value) => this.x(value));
      const rows = this.dragged?.rows ?? [TOP, this.bottom];
      context.fillStyle = "rgba(86,180,233,0.22)";
      context.fillRect(from, rows[0], to - from, rows[1] - rows[0] + this.options.strip);
      context.fillStyle = "#56B4E9";
      context.fillRect(from, TOP, 1.5, this.high + this.options.strip);
      context.fillRect(to - 1.5, TOP, 1.5, this.high + this.options.strip);
    }
    if (this.cursor !== null) {
      context.fillStyle = colours().ink;
      context.fillRect(Math.round(this.x(this.cursor)), TOP, 1, this.high + this.options.strip);
    }
    mark?.(context);
  }

  cut([from, to]) {
    const [first, last] = this.extent;
    const least = (last - first) * 1e-6 || 1e-9;
    const width = Math.min(Math.max(to - from, least), last - first);
    const begin = Math.min(Math.max(from, first), last - width);
    return [begin, begin + width];
  }

  move(range, done) {
    this.range = this.cut(range);
    this.options.moved?.(this.range, done);
    this.draw();
  }

  axes(context) {
    const { muted, grid } = colours();
    const unit = unitFor(this.most);
    context.font = '11px Roboto, system-ui, "DejaVu Sans", Arial, sans-serif';
    context.fillStyle = muted;
    context.strokeStyle = grid;
    context.lineWidth = 1;
    context.textAlign = "right";
    context.textBaseline = "middle";
    const ys = ticks(this.least / unit.bytes, this.most / unit.bytes, 6);
    for (const value of ys.values) {
      const y = Math.round(this.y(value * unit.bytes)) + 0.5;
      line(context, LEFT, y, LEFT + this.wide, y);
      context.fillText(`${fixed(value, ys.digits)} ${unit.name}`, LEFT - 6, y);
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    const base = this.bottom + this.options.strip;
    const xs = ticks(this.range[0], this.range[1], Math.max(3, Math.floor(this.wide / 110)));
    for (const value of xs.values) {
      const x = this.x(value);
      line(context, x, base, x, base + 4);
      context.fillText(this.options.xText(value, xs.digits), x, base + 6);
    }
  }

  listen() {
    const { front } = this;
    front.addEventListener("pointerdown", (event) => this.down(event));
    front.addEventListener("pointermove", (event) => this.over(event));
    front.addEventListener("pointerup", (event) => this.up(event));
    front.addEventListener("pointerleave", () => {
      if (!this.dragged) this.options.hover?.(null);
    });
    front.addEventListener("dblclick", () => this.reset());
    front.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    front.addEventListener("keydown", (event) => this.key(event));
  }

  down(event) {
    if (event.button !== 0) return;
    this.front.setPointerCapture(event.pointerId);
    const pan = this.mode === "pan" || event.shiftKey;
    this.dragged = { from: event.offsetX, fromRow: event.offsetY, range: this.range, pan, far: false };
  }

  over(event) {
    const drag = this.dragged;
    if (!drag) {
      const inside = event.offsetX >= LEFT && event.offsetY >= TOP && event.offsetY <= this.bottom;
      const found = inside && this.options.hover?.(this.xAt(event.offsetX), this.yAt(event.offsetY), event);
      if (!inside) this.options.hover?.(null);
      this.front.style.cursor = found ? "pointer" : this.mode === "pan" ? "grab" : "crosshair";
      return;
    }
    const down = this.options.box ? Math.abs(event.offsetY - drag.fromRow) : 0;
    drag.far ||= Math.max(Math.abs(event.offsetX - drag.from), down) > 4;
    if (!drag.far) return;
    if (drag.pan) {
      const by = ((drag.from - event.offsetX) / this.wide) * (drag.range[1] - drag.range[0]);
      this.move([drag.range[0] + by, drag.range[1] + by], false);
    } else {
      drag.rows = down > TALL ? this.rowsOf(drag.fromRow, event.offsetY) : null;
      const narrow = drag.rows && Math.abs(event.offsetX - drag.from) < TALL / 2;
      this.setBrush(narrow ? [...this.range] : this.cutBrush(this.xAt(drag.from), this.xAt(event.offsetX)));
    }
  }

  up(event) {
    const drag = this.dragged;
    this.dragged = null;
    if (!drag) return;
    if (!drag.far) this.options.press?.(this.xAt(event.offsetX), this.yAt(event.offsetY));
    else if (drag.pan) this.options.moved?.(this.range, true);
    else if (this.options.box) this.zoomTo(this.brush, drag.rows);
    else this.options.brushed?.(this.brush);
  }

  zoomTo(range, rows) {
    this.brush = null;
    if (rows) {
      const [high, low] = rows.map((row) => this.yAt(row));
      this.band = [low, Math.max(high, low + this.top / 1000)];
    }
    this.move(range, true);
  }

  rowsOf(one, other) {
    const inside = (row) => Math.min(Math.max(row, TOP), this.bottom);
    return [inside(Math.min(one, other)), inside(Math.max(one, other))];
  }

  cutBrush(one, other) {
    const [first, last] = this.extent;
    const inside = (value) => Math.min(Math.max(value, first), last);
    return [inside(Math.min(one, other)), inside(Math.max(one, other))];
  }

  /** Zoom if the chart has the focus, or with Ctrl; otherwise the wheel scrolls the page. */
  wheel(event) {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== this.front) return;
    event.preventDefault();
    // with Shift some browsers turn the wheel sideways
    const factor = Math.exp(Math.max(-60, Math.min(60, event.deltaY || event.deltaX)) * 0.006);
    if (event.shiftKey) this.zoomBytes(factor, this.yAt(event.offsetY));
    else this.zoom(factor, this.xAt(event.offsetX));
  }

  /** Move an end of the brushed range; without one, begin one in the middle of what is visible. */
  moveBrush(end, by) {
    const [from, to] = this.range;
    const range = this.brush ? [...this.brush] : [from + 0.45 * (to - from), from + 0.55 * (to - from)];
    if (this.brush) range[end] += by * NUDGE * (to - from);
    this.setBrush(this.cutBrush(Math.min(range[0], range[1 - end]), Math.max(range[1], range[1 - end])));
    this.options.brushed?.(this.brush);
  }

  key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by && event.shiftKey && !this.options.box) {
      event.preventDefault();
      this.moveBrush(event.altKey ? 0 : 1, by);
      return;
    }
    const acts = {
      ...this.options.keys,
      ArrowLeft: () => this.pan(-STEP),
      ArrowRight: () => this.pan(STEP),
      "+": () => this.zoom(0.6),
      "=": () => this.zoom(0.6),
      w: () => this.zoom(0.6),
      s: () => this.zoom(1 / 0.6),
      a: () => this.pan(-STEP),
      d: () => this.pan(STEP),
      W: () => this.zoomBytes(0.6),
      S: () => this.zoomBytes(1 / 0.6),
      "-": () => this.zoom(1 / 0.6),
      0: () => this.reset(),
      Escape: () => {
        this.setBrush(null);
        this.options.brushed?.(null);
      },
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}

/** The tooltip beside the pointer. */
export class Tip {
  constructor() {
    this.node = el("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  }

  show(event, content) {
    const { node } = this;
    replace(node, ...content.flat());
    node.hidden = false;
    const right = event.clientX + node.offsetWidth + 24 > document.documentElement.clientWidth;
    const low = event.clientY + node.offsetHeight + 16 > window.innerHeight;
    node.style.left = `${Math.max(4, right ? event.clientX - node.offsetWidth - 14 : event.clientX + 14)}px`;
    node.style.top = `${Math.max(4, low ? event.clientY - node.offsetHeight - 8 : event.clientY + 14)}px`;
  }

  hide() {
    this.node.hidden = true;
  }
}

/** Pixels between the axes of a frame of a given width. */
export function plotWidth(wide) {
  return Math.max(wide - LEFT - RIGHT, 1);
}

/** Round values between two others, at most so many, and the digits they need. */
export function ticks(from, to, most) {
  const raw = (to - from) / Math.max(most, 1) || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= raw * 0.999) ?? raw;
  const values = [];
  for (let at = Math.ceil(from / step - 1e-9); at * step <= to + step * 1e-9; at++) values.push(at * step);
  return { values, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

/** Resize a canvas to its displayed size in device pixels, and clear it. */
export function fresh(canvas, wide, high) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(wide * ratio);
  canvas.height = Math.round(high * ratio);
  canvas.style.width = `${wide}px`;
  canvas.style.height = `${high}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, wide, high);
  return context;
}

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

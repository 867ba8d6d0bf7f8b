// The whole recording in one line above the charts; dragging chooses what they show.

import { el } from "./dom.js";
import { fresh, plotWidth } from "./frame.js";
import { lastUntil } from "./stack.js";
import { colours } from "./theme.js";

const HIGH = 40;
const LEFT = 62;
const NEAR = 4;

export class Minimap {
  /**
   * @param options.extent  Whole range of x.
   * @param options.moved   `(range)`: another range was chosen.
   */
  constructor({ extent, moved }) {
    this.extent = extent;
    this.range = extent;
    this.curve = { x: [], total: [] };
    this.moved = moved;
    const label = "The whole recording: drag to choose what the charts show";
    this.canvas = el("canvas", { role: "img", "aria-label": label, title: label });
    this.node = el("div", { class: "minimap", style: { height: `${HIGH}px` } }, this.canvas);
    this.canvas.addEventListener("pointerdown", (event) => this.down(event));
    this.canvas.addEventListener("pointermove", (event) => this.over(event));
    this.canvas.addEventListener("pointerup", (event) => this.up(event));
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  /** Set the curve of the whole recording. */
  setCurve({ x, total }) {
    this.curve = { x, total };
    this.draw();
  }

  /** Mark what the charts show. */
  show(range) {
    this.range = range;
    this.draw();
  }

  get wide() {
    return plotWidth(this.node.clientWidth);
  }

  x(value) {
    const [first, last] = this.extent;
    return LEFT + ((value - first) / (last - first || 1)) * this.wide;
  }

  xAt(pixel) {
    const [first, last] = this.extent;
    const share = Math.min(Math.max((pixel - LEFT) / this.wide, 0), 1);
    return first + share * (last - first);
  }

  draw() {
    if (!this.node.clientWidth) return;
    const context = fresh(this.canvas, this.node.clientWidth, HIGH);
    const { muted, grid, ink } = colours();
    const { x, total } = this.curve;
    const most = total.reduce((highest, one) => Math.max(highest, one), 1);
    context.fillStyle = grid;
    context.fillRect(LEFT, HIGH - 1, this.wide, 1);
    context.fillStyle = muted;
    for (let column = 0; column < this.wide && x.length; column++) {
      const from = Math.max(lastUntil(x, this.xAt(LEFT + column)), 0);
      const to = Math.max(lastUntil(x, this.xAt(LEFT + column + 1)), from);
      let highest = 0;
      for (let at = from; at <= to; at++) highest = Math.max(highest, total[at]);
      const high = (highest / most) * (HIGH - 4);
      context.fillRect(LEFT + column, HIGH - high, 1, high);
    }
    const [begin, end] = this.range.map((value) => this.x(value));
    context.fillStyle = "rgba(86,180,233,0.3)";
    context.fillRect(begin, 0, Math.max(end - begin, 2), HIGH);
    context.strokeStyle = ink;
    context.strokeRect(begin + 0.5, 0.5, Math.max(end - begin - 1, 1), HIGH - 1);
  }

  down(event) {
    if (event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    const at = this.xAt(event.offsetX);
    const all = this.range[0] <= this.extent[0] && this.range[1] >= this.extent[1];
    const inside = !all && at > this.range[0] && at < this.range[1];
    this.dragged = { from: event.offsetX, at, range: inside ? this.range : null };
  }

  over(event) {
    const drag = this.dragged;
    if (!drag || Math.abs(event.offsetX - drag.from) < NEAR) return;
    const at = this.xAt(event.offsetX);
    if (drag.range) {
      const [first, last] = this.extent;
      const by = Math.min(Math.max(at - drag.at, first - drag.range[0]), last - drag.range[1]);
      this.moved(drag.range.map((value) => value + by));
    } else this.moved([Math.min(drag.at, at), Math.max(drag.at, at)]);
  }

  up() {
    this.dragged = null;
  }
}

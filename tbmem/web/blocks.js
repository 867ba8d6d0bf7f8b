// Draws the allocator's segments and blocks to scale on a canvas of several lines.

import { el } from "./dom.js";
import { bytes } from "./format.js";
import { fresh } from "./frame.js";
import { colours, onGround } from "./theme.js";

const [LINE, GAP] = [20, 5];
const [LOW_LINE, LOW_GAP] = [12, 3];
const BETWEEN = 3;
const MOST_LINES = 400;

export const FREE_GAP = 0;
export const ALLOCATED = 1;
export const PENDING = 2;
export const CACHED = 3;
export const STATES = ["fragmented: free between used blocks", "allocated", "waits for a stream", "cached: free in whole segments or pages"];

/** A canvas of all blocks; one line is `total / lines` bytes wide. */
export class BlockMap {
  /**
   * @param answer         The answer.
   * @param options.lines  How many lines it should fill.
   * @param options.total  Bytes that fill the lines; by default all segments.
   * @param options.low    Whether the lines are low ones, for a panel.
   * @param options.hover  `(hit, event)` with `{segment, block}`, or `null`.
   * @param options.press  `(hit)`.
   */
  constructor(answer, { lines, total, low, hover, press }) {
    this.answer = answer;
    [this.high, this.gap] = low ? [LOW_LINE, LOW_GAP] : [LINE, GAP];
    this.lines = lines;
    this.total = total;
    this.canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": label(answer) });
    this.node = el("div", { class: "block-map" }, this.canvas);
    this.canvas.addEventListener("pointermove", (event) => hover(this.hit(event), event));
    this.canvas.addEventListener("pointerleave", () => hover(null));
    this.canvas.addEventListener("click", (event) => {
      const hit = this.hit(event);
      if (hit) press(hit);
    });
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  /** Set the number of lines. */
  setLines(lines) {
    this.lines = lines;
    this.wide = 0;
    this.draw();
  }

  /** Show another state. */
  update(answer) {
    this.answer = answer;
    this.canvas.setAttribute("aria-label", label(answer));
    this.wide = 0;
    this.draw();
  }

  draw() {
    const wide = this.node.clientWidth;
    if (!wide || wide === this.wide) return;
    this.wide = wide;
    this.place(wide);
    const lines = this.pieces.reduce((most, piece) => Math.max(most, piece.line + 1), this.total ? this.lines : 1);
    const high = lines * (this.high + this.gap);
    const context = fresh(this.canvas, wide, high);
    this.hatch = hatch(context);
    for (const piece of this.pieces) this.paint(context, piece);
  }

  /** Cut each segment into pieces that fit on the lines. */
  place(wide) {
    const { segments } = this.answer;
    const total = this.total || segments.bytes.reduce((sum, one) => sum + one, 0) || 1;
    this.scale = (wide * this.lines) / total;
    this.pieces = [];
    let [line, x] = [0, 0];
    segments.bytes.forEach((size, segment) => {
      let left = Math.max(size * this.scale, 1);
      let from = 0;
      if (x > 0 && left <= wide && x + left > wide) [line, x] = [line + 1, 0];
      while (left > 0.01 && line < MOST_LINES) {
        const part = Math.min(left, wide - x);
        this.pieces.push({ segment, line, x, wide: part, from, to: from + part / this.scale });
        from += part / this.scale;
        left -= part;
        x += part + BETWEEN;
        if (x >= wide - 1) [line, x] = [line + 1, 0];
      }
    });
  }

  paint(context, piece) {
    const { blocks, segments, colours: categories } = this.answer;
    const top = piece.line * (this.high + this.gap);
    context.fillStyle = colours().grid;
    context.fillRect(piece.x, top, piece.wide, this.high);
    for (let block = segments.start[piece.segment]; block < segments.start[piece.segment + 1]; block++) {
      const begin = Math.max(blocks.offset[block], piece.from);
      const end = Math.min(blocks.offset[block] + blocks.bytes[block], piece.to);
      if (end <= begin) continue;
      const x = piece.x + (begin - piece.from) * this.scale;
      const wide = (end - begin) * this.scale;
      context.fillStyle = this.colour(block, categories, blocks);
      context.fillRect(x, top, Math.max(wide - (wide > 3 ? 0.6 : 0), 0.4), this.high);
    }
    context.strokeStyle = colours().muted;
    context.lineWidth = 1;
    context.strokeRect(piece.x + 0.5, top + 0.5, Math.max(piece.wide - 1, 0.5), this.high - 1);
  }

  colour(block, categories, blocks) {
    const state = blocks.state[block];
    if (state === FREE_GAP) return this.hatch;
    if (state === CACHED) return colours().grid;
    if (state === PENDING) return "#CC79A7";
    const category = blocks.category[block];
    return onGround(category >= 0 ? categories[category] : "#A6A9AC");
  }

  hit(event) {
    const line = Math.floor(event.offsetY / (this.high + this.gap));
    if (event.offsetY - line * (this.high + this.gap) > this.high) return null;
    const piece = this.pieces?.find((one) => one.line === line && event.offsetX >= one.x && event.offsetX <= one.x + one.wide);
    if (!piece) return null;
    const at = piece.from + (event.offsetX - piece.x) / this.scale;
    const { blocks, segments } = this.answer;
    for (let block = segments.start[piece.segment]; block < segments.start[piece.segment + 1]; block++) {
      if (at >= blocks.offset[block] && at < blocks.offset[block] + blocks.bytes[block]) return { segment: piece.segment, block };
    }
    return { segment: piece.segment, block: -1 };
  }
}

/** Stripes for fragmented blocks, which distinguish them from cached blocks without colour. */
function hatch(context) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const inner = tile.getContext("2d");
  inner.fillStyle = colours().paper;
  inner.fillRect(0, 0, 6, 6);
  inner.strokeStyle = "#D55E00";
  inner.lineWidth = 2;
  inner.beginPath();
  inner.moveTo(-1, 7);
  inner.lineTo(7, -1);
  inner.moveTo(-4, 4);
  inner.lineTo(4, -4);
  inner.moveTo(2, 10);
  inner.lineTo(10, 2);
  inner.stroke();
  return context.createPattern(tile, "repeat");
}

function label(answer) {
  const gaps = answer.fragmentation.fragmented_bytes;
  return `${answer.segments_count} segments, ${bytes(answer.reserved)} reserved, ${bytes(gaps)} fragmented; the table below lists them`;
}

// Line charts: curves, marks and shaded ranges in a Frame, with a legend, hover values and zoom by dragging a box.

import { el, replace, svg } from "./dom.js";
import { bytes, fixed, known, whole } from "./format.js";
import { Frame, Tip } from "./frame.js";
import { lastUntil } from "./stack.js";
import { colours } from "./theme.js";

const DASHES = { solid: [], dash: [7, 5], dot: [2, 4] };
const NEAR = 11;
const MANY = 24;
const MARK = 6;

export class LineChart {
  /**
   * @param options.id     Of the element.
   * @param options.label  Accessible name.
   * @param options.height Pixels of the plot.
   * @param options.moved  `(range)`: the user zoomed or panned; `null` for everything.
   * @param chart          What is drawn; all amounts are bytes:
   *   `lines`      `{name, x, y, colour, dash, width, steps, filled}`; `null` in `y` is a gap, `steps` keeps a value
   *                until the next point
   *   `marks`      `{x, y, text, colour, symbol, press}`; `symbol` is `diamond`, `cross` or `circle`
   *   `levels`     `{y, text, colour}`: horizontal lines
   *   `ranges`     `{y0, y1, text, colour}`: shaded ranges of amounts
   *   `stretches`  `{x0, x1, text, colour}`: shaded ranges of x
   *   `uprights`   `{x, colour}`: vertical lines
   *   `cones`      `{x, y, limit, at, low, high, colour, text}`: what is expected, from a point to a limit, which is
   *                reached between two x, or never (`null`)
   *   `bottom`     lowest amount of the axis, 0 if it is missing
   *   `top`        highest amount that must be in the picture; a level above it is only named
   *   `x`          `{title, extent, range, text}`; `text(value, digits)` is a value of x as text
   */
  constructor({ id, label, height, moved }, chart) {
    this.hidden = new Set();
    this.moved = moved;
    this.tip = new Tip();
    this.legend = el("div", { class: "legend" });
    this.title = el("p", { class: "note axis-title" });
    this.chart = chart;
    this.frame = new Frame({
      label,
      height,
      box: true,
      extent: chart.x.extent,
      xText: (value, digits) => this.chart.x.text(value, digits),
      paint: (context) => this.paint(context),
      moved: (range) => this.zoomed(range),
      hover: (x, y, event) => this.hover(x, y, event),
      press: (x, y) => this.markAt(x, y)?.press?.(),
    });
    this.node = el("div", { class: "plot", id }, this.legend, this.frame.node, this.title, this.tip.node);
    this.draw(chart);
  }

  /** Replace what is drawn. */
  draw(chart) {
    this.chart = { marks: [], levels: [], ranges: [], stretches: [], uprights: [], cones: [], ...chart };
    const { lines, x, top, bottom } = this.chart;
    this.frame.extent = x.extent;
    this.frame.show(x.range ?? x.extent, top ?? Math.max(1, ...lines.map((line) => highest(line.y))), bottom);
    replace(this.legend, lines.length <= MANY && lines.map((line) => this.key(line)));
    this.title.textContent = x.title;
    this.node.chart = { ...this.chart, range: this.frame.range };
  }

  /** A line of the legend; a click hides its curve or shows it again. */
  key({ name, colour, dash = "solid" }) {
    const stroke = { x1: 0, x2: 24, y1: 5, y2: 5, stroke: colour, "stroke-width": 2, "stroke-dasharray": DASHES[dash].join(" ") };
    const sample = svg("svg", { width: 24, height: 10, "aria-hidden": "true" }, svg("line", stroke));
    const press = () => {
      if (!this.hidden.delete(name)) this.hidden.add(name);
      key.setAttribute("aria-pressed", String(!this.hidden.has(name)));
      this.frame.draw();
    };
    const key = el("button", { type: "button", class: "line-key", "aria-pressed": String(!this.hidden.has(name)), on: { click: press } }, sample, name);
    return key;
  }

  zoomed(range) {
    this.node.chart.range = range;
    const [first, last] = this.frame.extent;
    this.moved?.(range[0] <= first && range[1] >= last ? null : range);
  }

  shown() {
    return this.chart.lines.filter((line) => !this.hidden.has(line.name));
  }

  paint(context) {
    const { chart, frame } = this;
    const floor = frame.bottom;
    const ceiling = floor - frame.high;
    context.textBaseline = "top";
    context.textAlign = "left";
    for (const { x0, x1, text, colour } of chart.stretches) {
      const [from, to] = [Math.max(frame.x(x0), frame.left), frame.x(x1)];
      if (to < from) continue;
      context.fillStyle = colour;
      context.fillRect(from, ceiling, Math.max(to - from, 1), frame.high);
      context.fillStyle = colours().muted;
      if (to - from > context.measureText(text).width) context.fillText(text, from + 2, ceiling + 3);
    }
    for (const { y0, y1, text, colour } of chart.ranges) {
      const high = Math.max(frame.y(y0) - frame.y(y1), 2);
      context.fillStyle = colour;
      context.fillRect(frame.left, frame.y(y1), frame.wide, high);
      context.fillStyle = colours().muted;
      context.textAlign = "right";
      context.fillText(text, frame.left + frame.wide - 4, frame.y(y0) + 3);
      context.textAlign = "left";
    }
    for (const { x, colour } of chart.uprights) stroke(context, colour, 1.5, [6, 5], [[frame.x(x), ceiling], [frame.x(x), floor]]);
    for (const cone of chart.cones) paintCone(context, cone, frame);
    for (const line of this.shown()) this.paintLine(context, line);
    const right = frame.left + frame.wide;
    let above = right - 4;
    for (const { y, text, colour } of chart.levels) {
      const inside = y <= frame.most;
      const at = inside ? frame.y(y) : ceiling;
      if (inside) stroke(context, colour, 1.2, [2, 3], [[frame.left, at], [right, at]]);
      context.fillStyle = colour;
      context.textAlign = "right";
      context.textBaseline = "bottom";
      context.fillText(inside ? text : `${text} ↑`, inside ? right - 4 : above, at - 2);
      if (!inside) above -= context.measureText(`${text} ↑`).width + 16;
    }
    for (const mark of chart.marks) paintMark(context, mark, frame.x(mark.x), frame.y(mark.y));
  }

  paintLine(context, { x, y, colour, dash = "solid", width = 1.7, steps, filled }) {
    const { frame } = this;
    const [begin, end] = [Math.max(lastUntil(x, frame.range[0]), 0), Math.min(lastUntil(x, frame.range[1]) + 2, x.length)];
    let piece = [];
    const flush = () => {
      if (filled && piece.length) fillBelow(context, piece, frame.y(0), `${colour}22`);
      if (piece.length === 1) dot(context, piece[0], colour);
      else stroke(context, colour, width, DASHES[dash], piece);
      piece = [];
    };
    for (let at = begin; at < end; at++) {
      if (!known(y[at])) {
        flush();
        continue;
      }
      const point = [frame.x(x[at]), frame.y(y[at])];
      if (steps && piece.length) piece.push([point[0], piece.at(-1)[1]]);
      piece.push(point);
    }
    flush();
  }

  /** The mark under a point of the chart. */
  markAt(x, y) {
    const { frame } = this;
    const far = (mark) => Math.hypot(frame.x(mark.x) - frame.x(x), frame.y(mark.y) - frame.y(y));
    return this.chart.marks.filter((mark) => far(mark) <= NEAR).sort((one, other) => far(one) - far(other))[0];
  }

  hover(x, y, event) {
    const mark = x !== null && this.markAt(x, y);
    this.frame.drawFront();
    if (mark) this.tip.show(event, [mark.text]);
    else if (x === null || !this.tell(x, y, event)) this.tip.hide();
    return Boolean(mark?.press);
  }

  /** The values of the curves at an x; with very many curves only of the nearest one. */
  tell(x, y, event) {
    const { frame } = this;
    let found = this.shown().map((line) => pointAt(line, x, frame)).filter((point) => point && known(point.y));
    if (this.chart.lines.length > MANY) {
      const far = (point) => Math.abs(frame.y(point.y) - frame.y(y));
      found = found.sort((one, other) => far(one) - far(other)).slice(0, 1);
    }
    if (!found.length) return false;
    const nearest = found.reduce((best, point) => (Math.abs(point.x - x) < Math.abs(best.x - x) ? point : best));
    const digits = Number.isInteger(nearest.x) ? 0 : 3;
    const rows = found.map(({ line, y: value }) => el("div", { class: "tip-row" }, el("span", { style: { color: line.colour } }, line.name), bytes(value)));
    this.tip.show(event, [el("b", {}, `${this.chart.x.title}: ${this.chart.x.text(nearest.x, digits)}`), rows]);
    const inside = found.filter((point) => frame.least <= point.y && point.y <= frame.most);
    frame.drawFront((context) => inside.forEach((point) => dot(context, [frame.x(point.x), frame.y(point.y)], point.line.colour)));
    return true;
  }
}

/** A number of steps, seconds or per cent as text. */
export function plainX(value, digits) {
  return digits > 0 ? fixed(value, digits) : whole(value);
}

/** The largest of some amounts, of which some may be missing. */
export function highest(values) {
  return values.reduce((most, value) => (value !== null && value > most ? value : most), 0);
}

/** The point of a line that is shown under an x: the nearest one, of a line in steps the last one. */
function pointAt(line, x, frame) {
  let at = lastUntil(line.x, x);
  const there = at >= 0 && at + 1 < line.x.length;
  if (at < 0 || (there && !line.steps && line.x[at + 1] - x < x - line.x[at])) at += 1;
  if (at >= line.x.length) return null;
  const away = Math.abs(frame.x(line.x[at]) - frame.x(x));
  return there || away <= 2 * NEAR ? { line, x: line.x[at], y: line.y[at] } : null;
}

function paintMark(context, { symbol, colour }, x, y) {
  const corners = { diamond: [[0, -1], [1, 0], [0, 1], [-1, 0]], cross: [[-1, -1], [1, 1], [0, 0], [1, -1], [-1, 1], [0, 0]] }[symbol];
  context.beginPath();
  if (corners) for (const [right, down] of corners) context.lineTo(x + MARK * right, y + MARK * down);
  else context.arc(x, y, MARK - 1, 0, 2 * Math.PI);
  context.closePath();
  context.fillStyle = colour;
  context.strokeStyle = symbol === "cross" ? colour : colours().ink;
  context.lineWidth = symbol === "cross" ? 3 : 1;
  if (symbol !== "cross") context.fill();
  context.stroke();
}

function paintCone(context, { x, y, limit, at, low, high, colour, text }, frame) {
  const [begin, reached, early] = [[frame.x(x), frame.y(y)], [frame.x(at), frame.y(limit)], [frame.x(low), frame.y(limit)]];
  const right = frame.left + frame.wide;
  const late = high === null ? [[right, reached[1]], [right, begin[1]]] : [[frame.x(high), reached[1]]];
  context.beginPath();
  for (const [across, down] of [begin, early, reached, ...late]) context.lineTo(across, down);
  context.fillStyle = `${colour}33`;
  context.fill();
  stroke(context, colour, 1.7, [6, 4], [begin, reached]);
  dot(context, reached, colour);
  context.fillStyle = colours().ink;
  context.textBaseline = "top";
  context.textAlign = reached[0] + context.measureText(text).width + 12 > right ? "right" : "left";
  context.fillText(text, reached[0] + (context.textAlign === "right" ? -8 : 8), reached[1] + 6);
}

function dot(context, [x, y], colour) {
  context.beginPath();
  context.arc(x, y, 3.5, 0, 2 * Math.PI);
  context.fillStyle = colour;
  context.fill();
}

function fillBelow(context, points, floor, colour) {
  context.beginPath();
  context.moveTo(points[0][0], floor);
  for (const [x, y] of points) context.lineTo(x, y);
  context.lineTo(points.at(-1)[0], floor);
  context.fillStyle = colour;
  context.fill();
}

function stroke(context, colour, width, dash, points) {
  context.beginPath();
  for (const [x, y] of points) context.lineTo(x, y);
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.setLineDash(dash);
  context.stroke();
  context.setLineDash([]);
}

// The answer `allocations` goes in; each allocation is painted as a band over its lifetime, and found under the pointer.

import { after, fillBetween } from "./layers.js";
import { colours, onGround } from "./theme.js";

const SHADES = [1, 0.86, 0.93, 0.79];
const LEAST = 0.12;

/** Paint all bands in sight, and what is not drawn one by one on top of them. */
export function paintBands(context, frame, answer) {
  const { bands } = answer;
  const painted = answer.colours.map((colour) => SHADES.map((shade) => shaded(onGround(colour), shade)));
  const { paper } = colours();
  const [from, to] = [frame.left, frame.left + frame.wide];
  for (let band = 0; band < bands.row.length; band++) {
    const high = bands.bytes[band] / frame.scale;
    if (high < LEAST || bands.x1[band] < frame.range[0] || bands.x0[band] > frame.range[1]) continue;
    context.fillStyle = painted[bands.category[band]][bands.row[band] & 3];
    const last = bands.start[band + 1] - 1;
    const gap = high > 4 ? 0.6 : 0;
    for (let corner = bands.start[band]; corner <= last; corner++) {
      const begin = Math.max(frame.x(answer.corner_x[corner]), from);
      const end = Math.min(frame.x(corner < last ? answer.corner_x[corner + 1] : bands.x1[band]), to);
      if (end <= begin) continue;
      const top = frame.y(answer.corner_y[corner]) - high;
      context.fillRect(begin, top, Math.max(end - begin, 0.4), high - gap);
    }
    if (gap && frame.x(bands.x0[band]) > from) {
      context.fillStyle = paper;
      context.fillRect(frame.x(bands.x0[band]), frame.y(answer.corner_y[bands.start[band]]) - high, 0.6, high - gap);
    }
  }
  paintRest(context, frame, answer);
}

/** The band under a point; -1 for none. */
export function bandAt(answer, x, y) {
  const { bands } = answer;
  for (let band = 0; band < bands.row.length; band++) {
    if (x < bands.x0[band] || x > bands.x1[band]) continue;
    const low = cornerAt(answer, band, x);
    if (low <= y && y < low + bands.bytes[band]) return band;
  }
  return -1;
}

/** Draw a line around a band. */
export function outline(context, frame, answer, band) {
  const { bands } = answer;
  const last = bands.start[band + 1] - 1;
  const lower = [];
  context.beginPath();
  for (let corner = bands.start[band]; corner <= last; corner++) {
    const begin = frame.x(answer.corner_x[corner]);
    const end = frame.x(corner < last ? answer.corner_x[corner + 1] : bands.x1[band]);
    const base = answer.corner_y[corner];
    const top = frame.y(base + bands.bytes[band]);
    if (corner === bands.start[band]) context.moveTo(begin, top);
    context.lineTo(begin, top);
    context.lineTo(end, top);
    lower.unshift([end, frame.y(base)], [begin, frame.y(base)]);
  }
  for (const [x, y] of lower) context.lineTo(x, y);
  context.closePath();
  context.strokeStyle = colours().ink;
  context.lineWidth = 1.6;
  context.stroke();
}

function cornerAt(answer, band, x) {
  let [low, high] = [answer.bands.start[band], answer.bands.start[band + 1]];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (answer.corner_x[middle] <= x) low = middle;
    else high = middle;
  }
  return answer.corner_y[low];
}

function paintRest(context, frame, answer) {
  const begin = Math.max(after(answer.rest_x, frame.range[0]) - 1, 0);
  const end = Math.min(after(answer.rest_x, frame.range[1]) + 1, answer.rest_x.length);
  const high = answer.total.slice(begin, end);
  const low = high.map((total, at) => total - answer.rest_bytes[begin + at]);
  context.fillStyle = colours().rest;
  fillBetween(context, frame, answer.rest_x, begin, end, low, high);
}

function shaded(colour, shade) {
  const number = parseInt(colour.slice(1), 16);
  const part = (shift) => Math.round(((number >> shift) & 255) * shade);
  return `rgb(${part(16)},${part(8)},${part(0)})`;
}

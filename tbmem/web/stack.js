// Paints memory as stacked layers, column by column: a column of pixels shows the highest point within it.
//
// Every edge is the cumulative sum rounded to a whole pixel, so that layers neither overlap nor leave gaps, and two
// charts of the same points have the same outline.

import { colours } from "./theme.js";

/** The number of the last value that is not larger than x; -1 for none. */
export function lastUntil(values, x) {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function lastBefore(values, x) {
  let found = lastUntil(values, x);
  while (found >= 0 && values[found] >= x) found -= 1;
  return found;
}

/**
 * Which moment each column of a frame's pixels shows, as runs of columns that show the same one, from left to right.
 * Moments never go back. What lies outside of the answer's range belongs to no run: nothing is known of it.
 */
export function runsOf(frame, answer) {
  const { wide } = frame.pixels;
  const [first, last] = answer.axis.range;
  const [low, high] = frame.range;
  if (high <= low) return { moment: [answer.total.indexOf(Math.max(...answer.total))], begin: [0], end: [wide] };
  const runs = { moment: [], begin: [], end: [] };
  let at = lastBefore(answer.x, low);
  for (let column = 0; column < wide; column++) {
    const from = low + (column / wide) * (high - low);
    const to = low + ((column + 1) / wide) * (high - low);
    let [highest, carried] = [at, true];
    while (at + 1 < answer.x.length && (answer.x[at + 1] < to || (column === wide - 1 && answer.x[at + 1] <= high))) {
      at += 1;
      // what is carried over from the left is shown unless it ends where the column begins
      if (highest < 0 || (carried && answer.x[at] <= from) || answer.total[at] > answer.total[highest]) highest = at;
      carried = false;
    }
    if (highest < 0 || to < first || from > last) continue;
    const latest = runs.moment.length - 1;
    if (latest >= 0 && runs.moment[latest] === highest && runs.end[latest] === column) runs.end[latest] = column + 1;
    else {
      runs.moment.push(highest);
      runs.begin.push(column);
      runs.end.push(column + 1);
    }
  }
  return runs;
}

/** The moment that is shown under an x; -1 for none. */
export function momentAt(frame, answer, x) {
  const runs = runsOf(frame, answer);
  const column = frame.columnOf(x);
  const run = lastUntil(runs.begin, column);
  return run >= 0 && column < runs.end[run] ? runs.moment[run] : -1;
}

/** Bytes below a layer at the points of the runs. */
export function below(answer, runs, layer) {
  const sums = new Float64Array(runs.moment.length);
  for (let lower = 0; lower < layer; lower++) {
    const bytes = answer.bytes[lower];
    for (let run = 0; run < sums.length; run++) sums[run] += bytes[runs.moment[run]];
  }
  return sums;
}

/** Pixels between a frame's axes, to be filled in whole columns and rows. */
export class Pixels {
  constructor(frame) {
    this.place = frame.pixels;
    this.image = new ImageData(this.place.wide, this.place.high);
    this.values = new Uint32Array(this.image.data.buffer);
    this.least = frame.least;
    this.scale = this.place.high / (frame.most - frame.least);
  }

  /** The row at which an amount of bytes ends. */
  row(bytes) {
    const { high } = this.place;
    return Math.min(Math.max(Math.round(high - (bytes - this.least) * this.scale), 0), high);
  }

  /** Fill rows from `top` to before `bottom` of columns from `begin` to before `end`. */
  fill(begin, end, top, bottom, colour) {
    const { wide } = this.place;
    for (let row = top; row < bottom; row++) this.values.fill(colour, row * wide + begin, row * wide + end);
  }

  /** Fill each layer of an answer. */
  fillLayers(answer, runs, tones) {
    const sums = new Float64Array(runs.moment.length);
    for (let layer = 0; layer < answer.names.length; layer++) {
      const bytes = answer.bytes[layer];
      for (let run = 0; run < sums.length; run++) {
        const bottom = this.row(sums[run]);
        sums[run] += bytes[runs.moment[run]];
        this.fill(runs.begin[run], runs.end[run], this.row(sums[run]), bottom, tones[layer]);
      }
    }
  }

  /** Copy the pixels to the frame's canvas. */
  show(context) {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [this.place.wide, this.place.high];
    canvas.getContext("2d").putImageData(this.image, 0, 0);
    context.save();
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(canvas, this.place.left, this.place.top);
    context.restore();
  }
}

/** A colour `#rrggbb` as the value of a pixel; mixed with the ground's, or darker. */
export function tone(colour, { share = 1, shade = 1 } = {}) {
  const [own, ground] = [parts(colour), parts(colours().paper)];
  const [red, green, blue] = own.map((value, at) => Math.round((value * share + ground[at] * (1 - share)) * shade));
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

function parts(colour) {
  const number = parseInt(colour.slice(1), 16);
  return [(number >> 16) & 255, (number >> 8) & 255, number & 255];
}

// Draws single allocations as bands within the layers of their categories, and finds the band under the pointer.

import { below, lastUntil, Pixels, runsOf, tone } from "./stack.js";
import { colours, onGround } from "./theme.js";

const SHADES = [1, 0.86, 0.93, 0.79];
const EDGE = 0.62;
const PALE = 0.42;
const EDGED = 4;

/** Paint the layers pale, and each band on top; allocations without a band remain pale. */
export function paintBands(context, frame, answer) {
  const runs = runsOf(frame, answer);
  const pixels = new Pixels(frame);
  const own = answer.colours.map(onGround);
  pixels.fillLayers(answer, runs, own.map((colour) => tone(colour, { share: PALE })));
  const tones = own.map((colour) => SHADES.map((shade) => tone(colour, { shade })));
  const edges = own.map((colour) => tone(colour, { shade: EDGE }));
  const edged = EDGED * (window.devicePixelRatio || 1);
  const { row } = answer.allocations.bands;
  eachBand(answer, runs, (band, layer, from, to, base, size) => {
    const colour = tones[layer][row[band] & 3];
    const begins = from > 0 && runs.end[to - 1] - runs.begin[from] >= edged;
    for (let run = from; run < to; run++) {
      const [top, bottom] = [pixels.row(base[run] + size), pixels.row(base[run])];
      if (top === bottom) continue;
      pixels.fill(runs.begin[run], runs.end[run], top, bottom, colour);
      if (bottom - top < edged) continue;
      pixels.fill(runs.begin[run], runs.end[run], top, top + 1, edges[layer]);
      if (run === from && begins) pixels.fill(runs.begin[run], runs.begin[run] + 1, top, bottom, edges[layer]);
    }
  });
  pixels.show(context);
}

/**
 * The hit at a point: `{ layer, band, bytes }`, the band being -1 for the allocations without one; `null` for
 * nothing.
 */
export function foundAt(frame, answer, x, y) {
  const all = runsOf(frame, answer);
  const column = frame.columnOf(x);
  const at = lastUntil(all.begin, column);
  if (at < 0 || column >= all.end[at] || y < 0) return null;
  const moment = all.moment[at];
  const layer = layerAt(answer, moment, y);
  if (layer < 0) return null;
  const found = { layer, band: -1, bytes: answer.bytes[layer][moment] };
  eachBand(answer, { moment: [moment] }, (band, its, from, to, base, size) => {
    if (its !== layer || to <= from) return;
    if (base[0] <= y && y < base[0] + size) [found.band, found.bytes] = [band, size];
    else if (found.band < 0) found.bytes -= size;
  });
  return found;
}

/** Draw the outline of a band. */
export function outline(context, frame, answer, wanted) {
  const runs = runsOf(frame, answer);
  eachBand(answer, runs, (band, layer, from, to, base, size) => {
    if (band !== wanted || to <= from) return;
    const lower = [];
    context.beginPath();
    for (let run = from; run < to; run++) {
      const [begin, end] = [frame.columnX(runs.begin[run]), frame.columnX(runs.end[run])];
      const [top, bottom] = [frame.y(base[run] + size), frame.y(base[run])];
      if (run === from) context.moveTo(begin, top);
      context.lineTo(begin, top);
      context.lineTo(end, top);
      lower.unshift([end, bottom], [begin, bottom]);
    }
    for (const [x, y] of lower) context.lineTo(x, y);
    context.closePath();
    context.strokeStyle = colours().ink;
    context.lineWidth = 1.6;
    context.stroke();
  });
}

/**
 * Call `act(band, layer, from, to, base, size)` for each band, from the lowest to the highest: it is there in the runs
 * from `from` to before `to`, and lies at `base[run]` bytes.
 */
function eachBand(answer, runs, act) {
  const { layer, first, last, bytes } = answer.allocations.bands;
  let base = new Float64Array(runs.moment.length);
  let latest = -1;
  for (let band = 0; band < layer.length; band++) {
    if (layer[band] !== latest) {
      latest = layer[band];
      base = below(answer, runs, latest);
    }
    const [from, to] = [lastUntil(runs.moment, first[band] - 1) + 1, lastUntil(runs.moment, last[band] - 1) + 1];
    act(band, latest, from, to, base, bytes[band]);
    for (let run = from; run < to; run++) base[run] += bytes[band];
  }
}

function layerAt(answer, moment, y) {
  let sum = 0;
  return answer.bytes.findIndex((bytes) => (sum += bytes[moment]) > y);
}

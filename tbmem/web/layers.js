// Draws memory stacked by category, with phases, steps, marks and the peak.

import { bytes, word } from "./format.js";
import { lastUntil, Pixels, runsOf, tone } from "./stack.js";
import { colours, onGround } from "./theme.js";

export const STRIP = 16;

/** Paint the stack and what is marked on it into a frame. */
export function paintLayers(context, frame, answer) {
  const pixels = new Pixels(frame);
  pixels.fillLayers(answer, runsOf(frame, answer), answer.colours.map((colour) => tone(onGround(colour))));
  pixels.show(context);
  if (answer.reserved) {
    context.setLineDash([5, 4]);
    strokeSteps(context, frame, answer, answer.reserved, colours().muted);
    context.setLineDash([]);
  }
  paintSteps(context, frame, answer.steps);
  paintPhases(context, frame, answer.phases);
  paintMarks(context, frame, answer);
}

/** Index of the range that contains an x; -1 for none. */
export function stretchAt(stretches, x) {
  return stretches.begin.findIndex((begin, at) => begin <= x && x < stretches.end[at]);
}

function strokeSteps(context, frame, answer, values, colour) {
  const { x } = answer;
  const last = frame.x(Math.min(frame.range[1], answer.axis.range[1]));
  const [begin, end] = [Math.max(lastUntil(x, frame.range[0]), 0), lastUntil(x, frame.range[1]) + 1];
  context.beginPath();
  for (let at = begin; at < end; at++) {
    context.lineTo(frame.x(x[at]), frame.y(values[at]));
    context.lineTo(at + 1 < end ? frame.x(x[at + 1]) : last, frame.y(values[at]));
  }
  context.strokeStyle = colour;
  context.lineWidth = 1.3;
  context.stroke();
}

function paintSteps(context, frame, stretches) {
  const { ink, muted } = colours();
  context.strokeStyle = muted;
  context.fillStyle = ink;
  context.lineWidth = 1;
  context.textAlign = "left";
  context.textBaseline = "top";
  context.setLineDash([2, 3]);
  let free = -Infinity;
  stretches.begin.forEach((begin, at) => {
    const x = Math.round(frame.x(begin)) + 0.5;
    if (x < frame.left - 200 || x > frame.left + frame.wide) return;
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, frame.bottom);
    context.stroke();
    const place = Math.max(x, frame.left) + 3;
    if (place < free || frame.x(stretches.end[at]) < place + 10) return;
    context.fillText(stretches.label[at], place, 3);
    free = place + context.measureText(stretches.label[at]).width + 6;
  });
  context.setLineDash([]);
}

function paintPhases(context, frame, stretches) {
  context.textAlign = "center";
  context.textBaseline = "middle";
  stretches.begin.forEach((begin, at) => {
    const from = Math.max(frame.x(begin), frame.left);
    const to = Math.min(frame.x(stretches.end[at]), frame.left + frame.wide);
    if (to <= from || stretches.label[at] === "OTHER") return;
    context.fillStyle = stretches.colour[at];
    context.fillRect(from, frame.bottom + 2, Math.max(to - from, 0.5), STRIP - 4);
    const text = word(stretches.label[at]);
    if (to - from < context.measureText(text).width + 8) return;
    context.fillStyle = "#1F2933";
    context.fillText(text, (from + to) / 2, frame.bottom + STRIP / 2 + 0.5);
  });
}

function paintMarks(context, frame, answer) {
  const { ink } = colours();
  answer.marks.x.forEach((x, at) => {
    const kind = answer.marks.kind[at];
    upright(context, frame, x, kind === "oom" ? "#D55E00" : ink, kind === "oom" ? "out of memory" : kind);
  });
  const { peak } = answer;
  if (peak.x === null) return;
  const [x, y] = [frame.x(peak.x), frame.y(peak.bytes)];
  context.fillStyle = ink;
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x - 5, y - 8);
  context.lineTo(x + 5, y - 8);
  context.fill();
  context.textAlign = x > frame.left + frame.wide - 130 ? "right" : "left";
  context.textBaseline = "bottom";
  halo(context, `peak ${bytes(peak.bytes)}`, x + (context.textAlign === "left" ? 8 : -8), y);
}

function upright(context, frame, at, colour, text) {
  const x = frame.x(at);
  context.fillStyle = colour;
  context.fillRect(x - 1, frame.y(frame.most), 2, frame.high);
  context.fillStyle = colours().ink;
  context.textAlign = "left";
  context.textBaseline = "top";
  halo(context, text, x + 4, frame.y(frame.most) + 34);
}

function halo(context, text, x, y) {
  context.save();
  context.strokeStyle = colours().paper;
  context.lineWidth = 3;
  context.lineJoin = "round";
  context.strokeText(text, x, y);
  context.restore();
  context.fillText(text, x, y);
}

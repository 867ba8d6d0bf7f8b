// What the charts of the Live view draw: curves with an axis from the data, marks where they happened, forecasts.

import { bytes, deviceName, duration, known, moment, signedBytes, whole } from "../format.js";
import { plainX } from "../lines.js";
import { severityOf } from "../parts.js";
import { get } from "../state.js";
import { colours, lineColour } from "../theme.js";

/** `[key, text, dash]` of the curves of each chart. */
export const LEVELS = [["allocated", "allocated", "solid"]];
export const PEAKS = [
  ["peak", "peak", "solid"],
  ["reserved", "reserved", "dash"],
  ["device_used", "used on the device, all processes", "dot"],
];
export const HOST = [
  ["host", "resident (RSS)", "solid"],
  ["workers", "worker processes", "dot"],
];

const SEVERITY = { critical: "#D55E00", warning: "#E69F00", info: "#0072B2", good: "#009E73" };
const COLOUR = { allocated: 0, peak: 1, host: 2, device_used: 3, workers: 3, reserved: 4 };
/** Smallest height of an axis as a share of its highest amount: 1 % of it is half of the chart. */
const LEAST = 0.02;
/** Share of a curve's points that an axis may leave out below: those of the first steps. */
const SETTLING = 0.02;
const CONES = 4;
const GOES_ON = ["running", "starting", "unknown"];
/** Room for a mark as a share of a chart's width. */
const MARK = 0.01;

/** A chart of some kinds of curves; `marks` are in the answer's terms. */
export function chartOf(answer, series, kinds, marks) {
  const found = curvesOf(answer, series, kinds);
  const capacities = [...new Set(series.map((one) => one.capacity).filter(known))];
  const device = kinds !== HOST;
  const [from, to] = [get("from"), get("to")];
  return {
    lines: found,
    levels: device ? capacities.map(capacityLine) : [],
    stretches: device ? stretches(answer) : [],
    uprights: device ? answer.ooms.map((oom) => ({ x: oom.x, colour: SEVERITY.critical })) : [],
    marks,
    ...scaleOf([...found.map((one) => one.y), marks.map((mark) => mark.y)], device ? capacities : []),
    x: { title: titleOf(answer), extent: wholeRange(answer), range: from && to ? [Number(from), Number(to)] : null, text: plainX },
  };
}

/** The forecasts that come first, each with the curve that it goes on from, up to the capacity. */
export function forecastChart(answer) {
  const shown = answer.forecasts.slice(0, CONES);
  const own = (one) => answer.series.filter((other) => isOf(one, other)).map((other) => [other, one]);
  const pairs = shown.flatMap(own);
  const lines = pairs.map(([series, { line }], at) => curve(series, [line, line, "solid"], lineColour(pairs.length < 2 ? COLOUR[line] : at), pairs.length < 2 ? "" : nameOf(series, answer.series)));
  const cones = pairs.map(([, one], at) => ({
    x: one.from_x,
    y: one.from_y,
    limit: one.limit,
    at: one.x,
    low: one.x_low ?? one.x,
    high: one.x_high,
    colour: lines[at].colour,
    text: `full at step ~${whole(one.step)}`,
  }));
  // later ones may reach out of the picture
  const last = Math.min(cones[0].high ?? Infinity, 2 * cones[0].at - cones[0].x);
  const limits = [...new Set(shown.map((one) => one.limit))];
  return {
    lines,
    cones,
    levels: limits.map((limit) => (shown.find((one) => one.limit === limit).is_capacity ? capacityLine(limit) : { ...capacityLine(limit), text: `limit ${bytes(limit)}` })),
    top: Math.max(...limits),
    x: { title: titleOf(answer), extent: [answer.extent[0], last], text: plainX },
  };
}

/** A forecast in a sentence. */
export function forecastText(one, answer) {
  const late = one.step_high === null ? "at the earliest" : `to ${whole(one.step_high)}`;
  const range = one.step_low === null ? "" : ` (${whole(one.step_low)} ${late})`;
  const goesOn = GOES_ON.includes(answer.status[one.run]?.status);
  const time = one.seconds === null || !goesOn ? "" : `, ${duration(one.seconds)} after the last row, at ${moment(one.time)}`;
  const rate = `${signedBytes(one.bytes_per_step)} per step`;
  const series = answer.series.find((other) => isOf(one, other));
  const place = answer.series.length > 1 && series ? `${nameOf(series, answer.series)}: ` : "";
  const what = one.is_capacity ? `The capacity of ${bytes(one.limit)}` : `The limit of ${bytes(one.limit)}`;
  return `${place}${what} ${goesOn ? "is" : "would be"} reached at step ~${whole(one.step)}${range}${time}, if it ${goesOn ? "goes" : "went"} on at ${rate}.`;
}

/** Marks of the findings and of out-of-memory that lie on some curves. */
export function marksOf(answer, series, curves, press) {
  const own = (one) => series.some((other) => isOf(one, other));
  const symbol = (finding) => (finding.kind === "oom" ? "cross" : "diamond");
  const told = (finding) => (finding.kind === "oom" ? `out of memory at step ${finding.last_step}` : `${finding.label} at step ${finding.last_step}`);
  return answer.findings.flatMap((finding, number) => {
    if (finding.quiet || finding.x === null || !curves.includes(finding.curve) || !own(finding)) return [];
    const y = finding.y ?? levelAt(series.find((other) => isOf(finding, other)), finding.x);
    const colour = SEVERITY[severityOf(finding)];
    return [{ x: finding.x, y, text: `${told(finding)}: click for the evidence`, colour, symbol: symbol(finding), press: () => press(number) }];
  });
}

/** The label of a kind of curve; a peak is named after its counter. */
export function wordFor(series, key, text) {
  return key === "peak" ? series.peak_word : text;
}

/** Run, rank and device, where they differ. */
export function nameOf(one, all) {
  const differs = (key) => new Set(all.map((other) => other[key])).size > 1;
  const parts = [differs("run") && one.run, differs("rank") && `rank ${one.rank}`, differs("device") && deviceName(one.device)];
  return parts.filter(Boolean).join(" · ") || one.name;
}

/** Lowest and highest amount of an axis: those of the data, and the capacity if it is near. */
function scaleOf(lists, capacities) {
  const sorted = lists.map((list) => list.filter(known).sort((one, other) => one - other)).filter((list) => list.length);
  if (!sorted.length) return { bottom: 0, top: 1 };
  const top = Math.max(1, ...sorted.map((list) => list.at(-1)));
  const low = Math.min(...sorted.map((list) => list[Math.floor(SETTLING * (list.length - 1))]));
  const span = Math.max(top - low, LEAST * top);
  const near = capacities.filter((one) => one >= top && one - top <= span);
  const bottom = low < span / 3 ? 0 : Math.max((top + low - span) / 2 - 0.05 * span, 0);
  return { bottom, top: Math.max(top, bottom + 1.05 * span, ...near) };
}

function curvesOf(answer, series, kinds) {
  return series.flatMap((one, at) => {
    const found = kinds.filter(([key]) => one[key].some(known));
    const name = series.length > 1 ? nameOf(one, answer.series) : "";
    return found.map((kind) => {
      const colour = lineColour(series.length > 1 ? at : COLOUR[kind[0]]);
      return curve(one, series.length > 1 && found.length < 2 ? [kind[0], kind[1], "solid"] : kind, colour, name);
    });
  });
}

function curve(one, [key, text, dash], colour, name) {
  const x = (key === "peak" && one.peak_x) || one.x;
  return { name: [name, wordFor(one, key, text)].filter(Boolean).join(" · "), x, y: one[key], colour, dash };
}

function isOf(one, series) {
  return ["run", "rank", "device"].every((key) => series[key] === one[key]);
}

function capacityLine(capacity) {
  return { y: capacity, text: `capacity ${bytes(capacity)}`, colour: colours().capacity };
}

function levelAt(one, x) {
  let at = one.x.findIndex((value) => value >= x);
  if (at < 0) at = one.x.length - 1;
  return one.peak[at] ?? one.highest[at] ?? one.allocated[at] ?? 0;
}

function titleOf(answer) {
  return answer.x === "step" ? "step" : "seconds since the run began";
}

/** Steps that the profiler recorded, each range once. */
function stretches(answer) {
  const pad = padOf(answer);
  const found = answer.windows.map(({ x0, x1 }) => [`${x0} ${x1}`, { x0: x0 - pad, x1: x1 + pad, text: "profiler", colour: colours().window }]);
  return [...new Map(found).values()];
}

/** Half of a step, where x is steps. */
function padOf(answer) {
  return answer.x === "step" ? 0.5 : 0;
}

/** From the first window or point to the last, with room for a mark. */
function wholeRange(answer) {
  const pad = padOf(answer);
  const room = MARK * (answer.extent[1] - answer.extent[0]);
  const begins = answer.windows.map((window) => window.x0 - pad);
  const marks = [...answer.ooms, ...answer.findings.filter((finding) => !finding.quiet && finding.x !== null)];
  const ends = [...answer.windows.map((window) => window.x1 + pad), ...marks.map((mark) => mark.x + room)];
  return [Math.min(answer.extent[0], ...begins), Math.max(answer.extent[1], ...ends)];
}

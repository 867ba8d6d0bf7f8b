// The recorded steps laid over each other: only what differs from the typical step is coloured.

import { choice, el, labelled, section } from "../dom.js";
import { bytes, duration, signedBytes, whole, word } from "../format.js";
import { LineChart } from "../lines.js";
import { emptyState } from "../parts.js";
import { deviceChoice, noRecording } from "../shell.js";
import { get, set } from "../state.js";
import { table } from "../table.js";
import { colours, stepColour } from "../theme.js";

export const stepsView = { name: "steps", title: "Steps", needs: "recording", draw };

const EACH = "duration on the host's clock, and by phase: each lasts from its first allocation to that of another; bytes that the step allocated and freed";

async function draw(context) {
  if (!context.file) return noRecording(context.item);
  const { run, file, device } = context;
  const answer = await context.ask("steps", { run, file, device });
  const each = answer.each.length ? section("Each step", EACH, eachStep(answer)) : null;
  if (answer.empty) return el("div", {}, deviceChoice(answer.head), emptyState(answer.empty), each);
  const base = get("fold") === "begin";
  const modes = [["level", "level"], ["begin", "from the step's begin"]];
  const mode = choice(modes, get("fold") || "level", (value) => set({ fold: value === "level" ? null : value }), { id: "fold" });
  const chart = new LineChart({ id: "steps-plot", label: "Steps laid over each other", height: 420 }, folded(answer, base));
  chart.frame.band = bandOf(chart.chart);
  const some = answer.steps.length < answer.count ? `${whole(answer.steps.length)} of ${whole(answer.count)} steps` : `${whole(answer.count)} steps`;
  return el(
    "div",
    {},
    el("div", { class: "bar" }, deviceChoice(answer.head), labelled("show", mode), el("span", { class: "note" }, summary(answer))),
    section("Steps laid over each other", `${some}; grey: as the typical step, coloured: different, later steps redder`, chart.node),
    each,
    section("What differs", "source lines that allocate more in one step, or whose memory stays after each", differences(answer)),
  );
}

/** A step's number; nothing between two steps. */
function stepText(value) {
  const number = Math.round(value);
  return Math.abs(value - number) < 1e-6 ? whole(number) : "";
}

function summary({ steps, lines }) {
  const kept = lines.reduce((sum, line) => sum + line.kept_each, 0);
  const [high] = [...steps].sort((one, other) => highest(other) - highest(one));
  const parts = [`highest in step ${whole(high.step)}: ${bytes(highest(high))}`];
  if (kept > 0) parts.push(`at least ${bytes(kept)} stay after each step`);
  return parts.join(" · ");
}

function highest(step) {
  return Math.max(...step.bytes.filter((value) => value !== null));
}

/** One grey line of each step, and the parts that differ in colour on top. */
function folded({ steps, typical, edges }, base) {
  const x = typical.map((_, at) => (100 * at) / typical.length);
  const from = (step) => (base ? step.bytes[0] : 0);
  const level = (step) => step.bytes.map((value) => (value === null ? null : value - from(step)));
  const typicalFrom = base ? typical[0] : 0;
  const same = { name: "typical", x, y: typical.map((value) => value - typicalFrom), colour: colours().muted, width: 5 };
  const tolerance = Math.max(0.002 * Math.max(...typical), 4096);
  const lines = steps
    .map((step, at) => {
      const y = level(step);
      const differs = base ? y.map((value, column) => Math.abs(value - same.y[column]) > tolerance) : step.differs;
      const shown = y.map((value, column) => (differs[column] || differs[column + 1] || differs[column - 1] ? value : null));
      return { name: `step ${step.step}`, x, y: shown, colour: stepColour(at / Math.max(steps.length - 1, 1)), width: 1.4 };
    })
    .filter((line) => line.y.some((value) => value !== null));
  const values = [...lines.flatMap((line) => line.y), ...same.y].filter((value) => value !== null);
  const names = ["backward", "optimizer"];
  const uprights = edges.map((edge) => ({ x: (100 * edge) / typical.length, colour: colours().grid, text: names[edges.indexOf(edge)] }));
  return {
    lines: [same, ...lines],
    uprights,
    top: Math.max(...values),
    x: { title: "share of the step, in %; dashed: the backward pass and the optimizer begin", extent: [0, 100], text: (value) => `${Math.round(value)} %` },
  };
}

/** The axis of bytes from the data: a leak of one per cent is to be seen. */
function bandOf({ lines }) {
  const values = lines.flatMap((line) => line.y).filter((value) => value !== null);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const room = Math.max(most - least, 1) * 0.05;
  return [least - room, most + room];
}

function differences({ lines, steps }) {
  const columns = [
    { key: "line", label: "line", width: "46%" },
    { key: "kept_each", label: "stays after each step", kind: "bytes", width: "160px" },
    { key: "excess", label: "one step above the others", kind: "bytes", width: "190px", value: (row) => row.most - row.typical, text: (row) => `${signedBytes(row.most - row.typical)} in step ${row.most_step}` },
    { key: "typical", label: "typical step", kind: "bytes" },
  ];
  const found = lines.map((line) => ({ ...line, steps: steps.length }));
  return table({ id: "steps-lines", name: "steps", columns, rows: found, sort: null, search: found.length > 8 });
}

/** Duration of each step and phase, and what it allocated and freed. */
function eachStep({ each }) {
  const time = (key, label) => ({ key, label, kind: "whole", width: "110px", text: (row) => (row[key] < 0 ? duration(null) : `${(row[key] / 1e6).toFixed(3)} ms`) });
  const columns = [
    { key: "step", label: "step", kind: "whole", width: "70px" },
    time("ns", "duration"),
    time("forward_ns", word("FORWARD")),
    time("backward_ns", word("BACKWARD")),
    time("optimizer_ns", word("OPTIMIZER")),
    time("other_ns", word("OTHER")),
    { key: "allocated_bytes", label: "allocated", kind: "bytes" },
    { key: "freed_bytes", label: "freed", kind: "bytes" },
  ];
  return el("div", {}, each.length > 1 ? new LineChart({ id: "steps-freed", label: "Allocated and freed bytes of each step", height: 160 }, allocatedAndFreed(each)).node : null, table({ id: "steps-each", name: "each step", columns, rows: each, sort: null }));
}

/** What each step allocated, and what it freed: a step between the lines keeps the difference. */
function allocatedAndFreed(each) {
  const x = each.map((row) => row.step);
  const line = (name, key, colour) => ({ name, x, y: each.map((row) => row[key]), colour, width: 1.4 });
  const lines = [line("allocated", "allocated_bytes", stepColour(1)), line("freed", "freed_bytes", stepColour(0))];
  return {
    lines,
    uprights: [],
    top: Math.max(...lines.flatMap(({ y }) => y)),
    x: { title: "step", extent: [x[0], x[x.length - 1]], text: stepText },
  };
}

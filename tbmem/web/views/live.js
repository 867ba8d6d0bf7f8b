// Memory over steps or time, with findings, recorded windows and out-of-memory marked.

import { button, choice, el, labelled, lazily, replace, section, tick } from "../dom.js";
import { bytes, deviceName, known, whole } from "../format.js";
import { highest, LineChart, plainX } from "../lines.js";
import { badge, emptyState, errorsOf, findingItem, severityOf } from "../parts.js";
import { get, set } from "../state.js";
import { colours, lineColour } from "../theme.js";

const KINDS = [
  ["allocated", "allocated", "solid"],
  ["reserved", "reserved", "dash"],
  ["peak", "peak", "solid"],
  ["device_used", "used on the device, all processes", "dot"],
];
const HOST = [
  ["host", "resident (RSS)", "solid"],
  ["workers", "worker processes", "dot"],
];
const NEAR = 0.6;
const MOST_WINDOWS = 40;
const SEVERITY = { critical: "#D55E00", warning: "#E69F00", info: "#0072B2", good: "#009E73" };

export const liveView = { name: "live", title: "Live", needs: "runs", draw };

async function draw(context) {
  const answer = await ask(context);
  if (answer.empty) return el("div", {}, errorsOf(answer.errors), emptyState(answer.empty));
  return new LivePage(context, answer).node;
}

function ask(context) {
  const [from, to] = [get("from"), get("to")];
  const zoomed = from && to ? { from, to } : {};
  return context.ask("live", { run: context.runs, x: get("x") || "step", ...zoomed });
}

class LivePage {
  constructor(context, answer) {
    this.context = context;
    this.answer = answer;
    const moved = (range) => this.moved(range);
    this.device = new LineChart({ id: "live-plot", label: "Memory of the devices", height: 400, moved }, this.deviceChart());
    this.host = new LineChart({ id: "live-host", label: "Memory of the host", height: 210, moved }, this.hostChart());
    this.evidence = el("div", { class: "evidence", id: "live-evidence", "aria-live": "polite" });
    this.refine = lazily(() => this.zoomed(), 200);
    this.node = el("div", {}, errorsOf(answer.errors), this.bar(), this.device.node, this.hostPart(), this.evidence);
    this.node.append(...[this.findings(), this.windows(), this.latest()].filter(Boolean));
  }

  bar() {
    const x = choice([["step", "steps"], ["time", "time"]], get("x") || "step", (value) => set({ x: value, from: null, to: null }), { id: "live-x" });
    const shown = this.shown();
    const boxes = KINDS.filter(([key]) => this.has(key)).map(([key, text]) =>
      tick(wordFor(this.answer.series[0], key, text), shown.includes(key), (on) => {
        const next = KINDS.map(([one]) => one).filter((one) => (one === key ? on : shown.includes(one)));
        set({ show: next.join(",") || "none" });
      }),
    );
    const devices = [...new Set(this.answer.series.map((one) => one.device))];
    const only = devices.length > 1 && choice([["", "all devices"], ...devices.map((one) => [one, deviceName(one)])], get("on"), (on) => set({ on }), { id: "live-on" });
    return el(
      "div",
      { class: "bar", role: "group", "aria-label": "What is drawn" },
      labelled("over", x),
      only && labelled("of", only),
      boxes,
      el("span", { class: "grow" }),
      button("Whole run", () => [this.device, this.host].forEach((one) => one.frame.reset()), { id: "live-reset" }),
    );
  }

  has(key) {
    return this.answer.series.some((one) => one[key].some((value) => value !== null));
  }

  /** Kinds of curves: all for one device, fewer where several lie over each other. */
  shown() {
    const asked = get("show");
    if (asked) return asked.split(",");
    return this.series().length > 2 ? ["peak"] : KINDS.map(([key]) => key);
  }

  series() {
    const on = get("on");
    return this.answer.series.filter((one) => !on || one.device === on);
  }

  hostPart() {
    if (!this.has("host") && !this.has("workers")) return null;
    return el("div", {}, el("h3", {}, "Host memory"), this.host.node);
  }

  deviceChart() {
    return chart(this, KINDS.filter(([key]) => this.shown().includes(key)), this.series(), true);
  }

  hostChart() {
    const first = new Map();
    for (const one of this.series()) if (!first.has(`${one.run} ${one.rank}`)) first.set(`${one.run} ${one.rank}`, one);
    return chart(this, HOST, [...first.values()], false);
  }

  moved(range) {
    set({ from: range?.[0] ?? null, to: range?.[1] ?? null }, true);
    this.refine();
  }

  /** Fetch finer points of the visible range. */
  async zoomed() {
    const turn = (this.turn = {});
    const answer = await ask(this.context).catch(() => null);
    if (!answer || turn !== this.turn || !this.node.isConnected) return;
    this.answer = answer;
    this.device.draw(this.deviceChart());
    this.host.draw(this.hostChart());
    this.node.dataset.refined = String(answer.series[0]?.x.length ?? 0);
  }

  open(number) {
    const finding = this.answer.findings[number];
    replace(this.evidence, findingItem(finding, this.context.runs.length > 1));
    this.evidence.querySelector("details")?.setAttribute("open", "");
    this.evidence.scrollIntoView({ block: "nearest" });
  }

  findings() {
    const all = this.answer.findings.map((finding, number) => ({ finding, number }));
    const loud = all.filter((one) => !one.finding.quiet);
    if (!loud.length) return null;
    const several = this.context.runs.length > 1;
    const list = loud.slice(0, 60).map(({ finding, number }) => {
      const line = button("", () => this.open(number), { class: "finding-row" });
      const place = ` step ${whole(finding.last_step)}${several ? ` · ${finding.run}` : ""} `;
      line.append(badge(finding.label, severityOf(finding)), el("span", { class: "note" }, place), finding.message);
      return el("li", {}, line);
    });
    return section("Findings", "click one, or its mark above, for the evidence", el("ul", { class: "finding-list" }, list));
  }

  windows() {
    const found = this.answer.windows.filter((window) => window.files.length).slice(-MOST_WINDOWS);
    const several = this.context.runs.length > 1;
    if (!found.length) return null;
    const rows = found.map((window) => {
      const open = (file) => () => set({ view: "timeline", run: window.run, runs: null, file, device: null, t0: null, t1: null, b0: null, b1: null });
      const name = `${several ? `${window.run}, ` : ""}rank ${window.rank}, window ${window.number}: steps ${window.first_step} to ${window.last_step}`;
      const files = window.files.map((file) => button(/snapshot/.test(file) ? "snapshot" : "trace", open(file), { title: file }));
      return el("li", {}, name, window.complete ? " " : ", cut off ", files);
    });
    return section("Recorded windows", "what the profiler saw", el("ul", { class: "windows" }, rows));
  }

  /** The latest values as text. */
  latest() {
    const last = (list) => list.findLast((value) => value !== null);
    const several = this.answer.series.length > 1;
    const line = (one) =>
      el(
        "li",
        { "data-series": `${one.run}/${one.rank}/${one.device}` },
        el("b", {}, several ? nameOf(one, this.answer.series) : one.name),
        ` step ${whole(one.step.at(-1))}: `,
        [...KINDS, ...HOST]
          .filter(([key]) => known(last(one[key])))
          .map(([key, text]) => `${wordFor(one, key, text)} ${bytes(last(one[key]))}`)
          .join(" · "),
        el("span", { class: "note" }, ` ${whole(one.points)} rows${one.points > one.x.length ? `, ${whole(one.x.length)} drawn` : ""}`),
      );
    return section("Latest", null, el("ul", { class: "latest" }, this.answer.series.slice(0, 40).map(line)));
  }
}

function chart(page, kinds, series, marked) {
  const { answer } = page;
  const values = series.flatMap((one) => kinds.map(([key]) => highest(one[key])));
  const capacities = [...new Set(series.map((one) => one.capacity).filter(known))];
  const top = Math.max(1, ...values);
  const near = marked ? capacities.filter((one) => top >= NEAR * one) : [];
  const single = series.length < 2;
  const [from, to] = [get("from"), get("to")];
  const title = answer.x === "step" ? "step" : "seconds since the run began";
  const range = from && to ? [Number(from), Number(to)] : null;
  return {
    lines: series.flatMap((one, at) => curves(one, kinds, single ? null : at, answer.series)),
    levels: near.map((one) => ({ y: one, text: `capacity ${bytes(one)}`, colour: colours().capacity })),
    stretches: marked ? stretches(answer) : [],
    uprights: marked ? answer.ooms.map((oom) => ({ x: oom.x, colour: SEVERITY.critical })) : [],
    marks: marked ? marks(page, series) : [],
    top: 1.04 * Math.max(top, ...near),
    x: { title, extent: wholeRange(answer), range, text: plainX },
  };
}

/** Steps that the profiler recorded, each range once. */
function stretches(answer) {
  const pad = padOf(answer);
  const found = answer.windows.map(({ x0, x1 }) => [`${x0} ${x1}`, { x0: x0 - pad, x1: x1 + pad, text: "profiler", colour: colours().window }]);
  return [...new Map(found).values()];
}

/** The width of a step: the distance to the next. */
function padOf(answer) {
  return answer.x === "step" ? 0.5 : 0;
}

/** From the first window or point to the last. */
function wholeRange(answer) {
  const pad = padOf(answer);
  const begins = answer.windows.map((window) => window.x0 - pad);
  const ends = answer.windows.map((window) => window.x1 + pad);
  return [Math.min(answer.extent[0], ...begins), Math.max(answer.extent[1], ...ends)];
}

/** The label of a kind of curve; a peak is named after its counter. */
function wordFor(series, key, text) {
  return key === "peak" ? series.peak_word : text;
}

function curves(one, kinds, number, all) {
  const found = kinds.filter(([key]) => one[key].some((value) => value !== null));
  const colour = { allocated: 0, reserved: 4, peak: 1, device_used: 3, host: 2, workers: 3 };
  const name = number === null ? "" : `${nameOf(one, all)} · `;
  return found.map(([key, text, dash]) => ({
    name: `${name}${wordFor(one, key, text)}`,
    x: one.x,
    y: one[key],
    colour: lineColour(number ?? colour[key]),
    dash: number === null || found.length > 1 ? dash : "solid",
  }));
}

/** Findings, of which a click shows the evidence, and out-of-memory. */
function marks(page, series) {
  const { answer } = page;
  const own = (one) => series.find((other) => ["run", "rank", "device"].every((key) => other[key] === one[key]));
  const findings = answer.findings.flatMap((finding, number) => {
    const its = own(finding);
    if (finding.quiet || finding.x === null || !its) return [];
    const text = `${finding.label} at step ${finding.last_step}: click for the evidence`;
    const colour = SEVERITY[severityOf(finding)];
    return [{ x: finding.x, y: levelAt(its, finding.x), text, colour, symbol: "diamond", press: () => page.open(number) }];
  });
  const ooms = answer.ooms.map((oom) => {
    const y = own(oom) ? levelAt(own(oom), oom.x) : 0;
    return { x: oom.x, y, text: `out of memory at step ${oom.step}`, colour: SEVERITY.critical, symbol: "cross" };
  });
  return [...findings, ...ooms];
}

function levelAt(one, x) {
  let at = one.x.findIndex((value) => value >= x);
  if (at < 0) at = one.x.length - 1;
  return one.peak[at] ?? one.highest[at] ?? one.allocated[at] ?? 0;
}

/** Run, rank and device, where they differ. */
function nameOf(one, all) {
  const differs = (key) => new Set(all.map((other) => other[key])).size > 1;
  const parts = [differs("run") && one.run, differs("rank") && `rank ${one.rank}`, differs("device") && one.name];
  return parts.filter(Boolean).join(" · ") || one.name;
}

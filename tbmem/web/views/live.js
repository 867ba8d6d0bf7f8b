// The answer `live` goes in; curves over steps or time come out, with findings, windows and out-of-memory marked.

import { button, choice, el, labelled, lazily, replace, section, tick } from "../dom.js";
import { bytes, deviceName, known, unitFor, whole } from "../format.js";
import { badge, emptyState, errorsOf, findingItem, severityOf } from "../parts.js";
import { level, plot, stretch, upright } from "../plot.js";
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
const MANY = 24;
const MOST_WINDOWS = 40;
const SEVERITY = { critical: "#D55E00", warning: "#E69F00", info: "#0072B2", good: "#009E73" };

export const liveView = { name: "live", title: "Live", needs: "runs", draw };

async function draw(context) {
  const answer = await ask(context);
  if (answer.empty) return el("div", {}, errorsOf(answer.errors), emptyState(answer.empty));
  const page = new LivePage(context, answer);
  context.after(() => page.plot());
  return page.node;
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
    this.device = el("div", { class: "plot", id: "live-plot", style: { height: "440px" } });
    this.host = el("div", { class: "plot", id: "live-host", style: { height: "240px" } });
    this.evidence = el("div", { class: "evidence", id: "live-evidence", "aria-live": "polite" });
    this.refine = lazily(() => this.zoomed(), 200);
    this.node = el("div", {}, errorsOf(answer.errors), this.bar(), this.device, this.hostPart(), this.evidence);
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
      button("Whole run", () => set({ from: null, to: null }), { id: "live-reset" }),
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
    return el("div", {}, el("h3", {}, "Host memory"), this.host);
  }

  async plot() {
    const device = chart(this, KINDS.filter(([key]) => this.shown().includes(key)), true);
    await this.put(this.device, device);
    if (!this.host.isConnected) return;
    const first = new Map();
    for (const one of this.series()) if (!first.has(`${one.run} ${one.rank}`)) first.set(`${one.run} ${one.rank}`, one);
    await this.put(this.host, chart(this, HOST, false, [...first.values()]));
  }

  async put(place, { data, layout }) {
    const drawn = await plot(place, this.context.index.plotly, data, layout);
    if (!drawn || place.dataset.heard) return;
    place.dataset.heard = "yes";
    place.on("plotly_relayout", (change) => this.relayout(change));
    place.on("plotly_click", (event) => this.clicked(event.points));
  }

  relayout(change) {
    const range = change["xaxis.range"] ?? [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    if (!known(range[0]) && !change["xaxis.autorange"]) return;
    const [first, last] = wholeRange(this.answer);
    const all = !known(range[0]) || (range[0] <= first && range[1] >= last);
    set({ from: all ? null : range[0], to: all ? null : range[1] }, true);
    this.refine();
  }

  /** Finer points of what is shown now. */
  async zoomed() {
    const turn = (this.turn = {});
    const answer = await ask(this.context).catch(() => null);
    if (!answer || turn !== this.turn || !this.node.isConnected) return;
    this.answer = answer;
    await this.plot();
    this.node.dataset.refined = String(answer.series[0]?.x.length ?? 0);
  }

  clicked(points) {
    const point = points.find((one) => one.customdata !== undefined && one.data.meta);
    if (point) this.open(point.customdata);
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

  /** The last figures as text: what the curves end with. */
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

function chart(page, kinds, marked, only) {
  const { answer } = page;
  const series = only ?? page.series();
  const values = series.flatMap((one) => kinds.map(([key]) => highest(one[key])));
  const capacities = [...new Set(series.map((one) => one.capacity).filter(known))];
  const top = Math.max(1, ...values);
  const near = marked ? capacities.filter((one) => top >= NEAR * one) : [];
  const unit = unitFor(Math.max(top, ...near));
  const single = series.length < 2;
  const data = series.flatMap((one, at) => curves(one, kinds, unit, single ? null : at, answer.series));
  const shapes = near.map((one) => level(one / unit.bytes, `capacity ${bytes(one)}`, colours().capacity));
  if (marked) {
    const seen = new Set();
    for (const window of answer.windows) {
      const key = `${window.x0} ${window.x1}`;
      if (seen.has(key)) continue;
      seen.add(key);
      const pad = answer.x === "step" ? 0.5 : 0;
      shapes.push(stretch(window.x0 - pad, window.x1 + pad, "profiler", colours().window));
    }
    for (const oom of answer.ooms) shapes.push(upright(oom.x, SEVERITY.critical));
    data.push(...marks(page, series, unit));
  }
  const [from, to] = [get("from"), get("to")];
  const x = { title: { text: answer.x === "step" ? "step" : "seconds since the run began" } };
  Object.assign(x, { range: from && to ? [Number(from), Number(to)] : wholeRange(answer), autorange: false });
  const many = data.length > MANY;
  const layout = { shapes, hovermode: many ? "closest" : "x unified", xaxis: x, yaxis: { title: { text: unit.name }, range: [0, (1.08 * Math.max(top, ...near)) / unit.bytes] }, showlegend: !many };
  return { data, layout };
}

/** From the first window or point to the last. */
function wholeRange(answer) {
  const pad = answer.x === "step" ? 0.5 : 0;
  const begins = answer.windows.map((window) => window.x0 - pad);
  const ends = answer.windows.map((window) => window.x1 + pad);
  return [Math.min(answer.extent[0], ...begins), Math.max(answer.extent[1], ...ends)];
}

/** What a kind of curve is called: a peak by the counter that it was read from. */
function wordFor(series, key, text) {
  return key === "peak" ? series.peak_word : text;
}

function curves(one, kinds, unit, number, all) {
  const found = kinds.filter(([key]) => one[key].some((value) => value !== null));
  const colour = { allocated: 0, reserved: 4, peak: 1, device_used: 3, host: 2, workers: 3 };
  const name = number === null ? "" : `${nameOf(one, all)} · `;
  return found.map(([key, text, dash]) => ({
    type: "scatter",
    mode: one.x.length > 1 ? "lines" : "lines+markers",
    name: `${name}${wordFor(one, key, text)}`,
    x: one.x,
    y: scaled(one[key], unit),
    line: { color: lineColour(number ?? colour[key]), width: 1.7, dash: number === null || found.length > 1 ? dash : "solid" },
    connectgaps: false,
    hovertemplate: `%{y:.3~f} ${unit.name}`,
  }));
}

/** Findings and out-of-memory as points that can be clicked. */
function marks(page, series, unit) {
  const { answer } = page;
  const points = answer.findings
    .map((finding, number) => ({ finding, number }))
    .filter(({ finding }) => !finding.quiet && finding.x !== null)
    .map(({ finding, number }) => {
      const own = series.find((one) => one.run === finding.run && one.rank === finding.rank && one.device === finding.device);
      return own && { finding, number, y: levelAt(own, finding.x) };
    })
    .filter(Boolean);
  const findings = {
    type: "scatter",
    mode: "markers",
    name: "findings",
    meta: "findings",
    x: points.map((one) => one.finding.x),
    y: points.map((one) => one.y / unit.bytes),
    customdata: points.map((one) => one.number),
    text: points.map((one) => `${one.finding.label} at step ${one.finding.last_step}`),
    hovertemplate: "%{text}: click for the evidence<extra></extra>",
    marker: { symbol: "diamond", size: 12, color: points.map((one) => SEVERITY[severityOf(one.finding)]), line: { color: colours().ink, width: 1 } },
  };
  const ooms = {
    type: "scatter",
    mode: "markers",
    name: "out of memory",
    x: answer.ooms.map((one) => one.x),
    y: answer.ooms.map((one) => oomLevel(one, series) / unit.bytes),
    text: answer.ooms.map((one) => `out of memory at step ${one.step}`),
    hovertemplate: "%{text}<extra></extra>",
    marker: { symbol: "x", size: 12, color: SEVERITY.critical },
  };
  return [points.length && findings, answer.ooms.length && ooms].filter(Boolean);
}

function oomLevel(oom, series) {
  const own = series.find((one) => one.run === oom.run && one.rank === oom.rank && one.device === oom.device);
  return own ? levelAt(own, oom.x) : 0;
}

function levelAt(one, x) {
  let at = one.x.findIndex((value) => value >= x);
  if (at < 0) at = one.x.length - 1;
  return one.peak[at] ?? one.highest[at] ?? one.allocated[at] ?? 0;
}

function scaled(values, unit) {
  return values.map((value) => (value === null ? null : value / unit.bytes));
}

function highest(values) {
  let most = 0;
  for (const value of values) if (value !== null && value > most) most = value;
  return most;
}

/** Run, rank and device as far as they differ. */
function nameOf(one, all) {
  const differs = (key) => new Set(all.map((other) => other[key])).size > 1;
  const parts = [differs("run") && one.run, differs("rank") && `rank ${one.rank}`, differs("device") && one.name];
  return parts.filter(Boolean).join(" · ") || one.name;
}

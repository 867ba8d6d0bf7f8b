// Memory over steps or time while it is written, with findings, recorded windows and out-of-memory marked.

import { fetchNow, forget, isReport, patience } from "../api.js";
import { button, choice, el, labelled, lazily, replace, section, tick } from "../dom.js";
import { bytes, deviceName, known, readingText, whole } from "../format.js";
import { LineChart } from "../lines.js";
import { badge, emptyState, errorsOf, findingItem, notesOf, severityOf } from "../parts.js";
import { AT_ONCE, Poller } from "../poll.js";
import { get, set } from "../state.js";
import { chartOf, forecastChart, forecastText, HOST, LEVELS, marksOf, nameOf, PEAKS, wordFor } from "./live_charts.js";

const KINDS = [...LEVELS, ...PEAKS];
/** What other processes use is drawn on demand. */
const USUAL = ["allocated", "peak", "reserved"];
const MOST_WINDOWS = 40;
const MOST_POINTS = 4000;
const MOST_FORECASTS = 4;
const MOST_RUNS = 8;

export const liveView = { name: "live", title: "Live", needs: "runs", showsStatus: true, draw };

async function draw(context) {
  const answer = await ask(context, true);
  const page = answer.empty ? new EmptyPage(context, answer) : new LivePage(context, answer);
  if (!isReport()) {
    page.poller = new Poller(page.node, () => page.poll());
    page.node.refresh = () => Promise.all([context.retool(), page.poller.now()]);
    if (answer.unread) page.poller.start(0);
    else if (answer.running) page.poller.start();
  }
  return page.node;
}

/** Ask for the whole, or for as much of it as can be read `soon`. */
function ask(context, soon, more = {}) {
  const [from, to] = [get("from"), get("to")];
  const zoomed = from && to ? { from, to } : null;
  const within = soon && !zoomed ? patience() : null;
  return fetchNow("live", { run: context.runs, x: get("x") || "step", ...zoomed, within, ...more });
}

/** A run without rows yet: the view is drawn once there are some. */
class EmptyPage {
  constructor(context, answer) {
    this.context = context;
    this.node = el("div", {}, errorsOf(answer.errors), emptyState(answer.empty));
  }

  async poll() {
    const answer = await ask(this.context, true);
    if (answer.empty) return answer.running ? false : null;
    forget();
    this.context.redraw();
    return null;
  }
}

class LivePage {
  constructor(context, answer) {
    this.context = context;
    this.answer = answer;
    this.charts = [
      this.part("live-levels", "Allocated after each step", 170, () => this.device(LEVELS, ["allocated"])),
      this.part("live-plot", "Peak within the steps", 210, () => this.device(PEAKS, ["peak"])),
      this.part("live-host", "Host memory", 190, () => chartOf(this.answer, this.hosts(), HOST, [])),
    ];
    this.cones = new LineChart({ id: "live-forecast-plot", label: "Forecast", height: 200 }, { lines: [], x: { extent: [0, 1], text: String } });
    this.forecast = el("div", { id: "live-forecast" });
    this.evidence = el("div", { class: "evidence", id: "live-evidence", "aria-live": "polite" });
    this.status = el("span", { id: "live-status", role: "status" });
    this.told = el("div", {});
    this.lists = el("div", {});
    this.refine = lazily(() => this.zoomed(), 200);
    const [levels, peaks, host] = this.charts.map((part) => part.node);
    this.choices = el("div", {});
    this.node = el("div", {}, errorsOf(answer.errors), this.choices, this.told, this.evidence, levels, peaks, this.forecast, host, this.lists, notesOf(answer.notes));
    this.show(true);
  }

  part(id, title, height, made) {
    const chart = new LineChart({ id, label: title, height, moved: (range) => this.moved(range) }, made());
    return { chart, made, node: el("div", {}, el("h3", {}, title), chart.node) };
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
      this.status,
      button("Whole run", () => this.charts.forEach(({ chart }) => chart.frame.reset()), { id: "live-reset" }),
    );
  }

  has(key) {
    return this.answer.series.some((one) => one[key].some(known));
  }

  /** Kinds of curves: of the program's own memory, fewer where several devices lie over each other. */
  shown() {
    const asked = get("show");
    if (asked) return asked.split(",");
    return this.series().length > 2 ? ["allocated", "peak"] : USUAL;
  }

  series() {
    const on = get("on");
    return this.answer.series.filter((one) => !on || one.device === on);
  }

  /** One series for each process. */
  hosts() {
    const first = new Map();
    for (const one of this.series()) if (!first.has(`${one.run} ${one.rank}`)) first.set(`${one.run} ${one.rank}`, one);
    return [...first.values()];
  }

  /** A chart of some kinds of curves, with the marks that lie on one of some lines. */
  device(kinds, lines) {
    const shown = kinds.filter(([key]) => this.shown().includes(key));
    return chartOf(this.answer, this.series(), shown, marksOf(this.answer, this.series(), lines, (number) => this.open(number)));
  }

  /** Draw what is known now; zoom, hidden curves and the evidence that is open stay. */
  show(news) {
    for (const { chart, made, node } of this.charts) {
      const drawn = made();
      node.hidden = !drawn.lines.length;
      chart.draw(drawn);
    }
    const offered = JSON.stringify([KINDS.filter(([key]) => this.has(key)), this.answer.series.map((one) => one.device)]);
    if (offered !== this.offered) replace(this.choices, this.bar());
    this.offered = offered;
    const { forecasts, status, unread } = this.answer;
    if (forecasts.length) this.cones.draw(forecastChart(this.answer));
    const texts = forecasts.slice(0, MOST_FORECASTS).map((one) => el("p", {}, forecastText(one, this.answer)));
    replace(this.forecast, forecasts.length ? [el("h3", {}, "Forecast"), ...texts, this.cones.node] : []);
    const states = Object.entries(status).slice(0, MOST_RUNS);
    const name = (run) => (states.length > 1 ? `${run}: ` : "");
    const reading = unread > 0 && el("span", { class: "state" }, readingText(unread));
    replace(this.status, reading, states.map(([run, one]) => el("span", { class: `state ${one.status}` }, `${name(run)}${one.status_text}`)));
    if (news) {
      replace(this.told, this.findings() ?? []);
      this.drawn = this.windows() ?? [];
    }
    replace(this.lists, this.drawn, this.latest());
  }

  /** Ask for what was written since, and add it; what the user drags is not disturbed. */
  async poll() {
    const turn = this.turn;
    const found = await ask(this.context, this.answer.unread > 0, { after: this.answer.cursor });
    if (turn !== this.turn || this.charts.some(({ chart }) => chart.frame.dragged)) return true;
    if (found.empty) return found.running ? false : null;
    const before = this.answer;
    const told = JSON.stringify([found.status, found.unread]) !== JSON.stringify([before.status, before.unread]);
    const came = found.cursor !== before.cursor;
    this.answer = joined(before, found);
    if (came || told) this.show(!found.more || found.findings !== null);
    if (Object.entries(found.status).some(([run, { status }]) => before.status[run]?.status !== status)) {
      forget();
      await this.context.retool();
    }
    if (this.answer.series.some((one) => one.x.length > MOST_POINTS)) await this.zoomed();
    if (found.unread) return AT_ONCE;
    return found.running ? came : null;
  }

  moved(range) {
    set({ from: range?.[0] ?? null, to: range?.[1] ?? null }, true);
    this.refine();
  }

  /** Fetch the points of the visible range, as many as can be seen. */
  async zoomed() {
    const turn = (this.turn = {});
    const answer = await ask(this.context, this.answer.unread > 0).catch(() => null);
    if (!answer || answer.empty || turn !== this.turn || !this.node.isConnected) return;
    this.answer = answer;
    this.show(true);
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
    return section("Findings", "click one, or its mark in a chart, for the evidence", el("ul", { class: "finding-list short" }, list));
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
        ` step ${whole(one.last_step ?? one.step.at(-1))}: `,
        [...KINDS, ...HOST]
          .filter(([key]) => known(last(one[key])))
          .map(([key, text]) => `${wordFor(one, key, text)} ${bytes(last(one[key]))}`)
          .join(" · "),
        el("span", { class: "note" }, ` ${whole(one.points)} rows${one.points > one.x.length ? `, ${whole(one.x.length)} drawn` : ""}`),
      );
    return section("Latest", null, el("ul", { class: "latest" }, this.answer.series.slice(0, 40).map(line)));
  }
}

/** What was known with what came after it. */
function joined(before, found) {
  if (!found.more) return found;
  const series = before.series.map((one, at) => {
    const next = found.series[at];
    const lists = Object.keys(one).filter((key) => Array.isArray(one[key]));
    return { ...next, ...Object.fromEntries(lists.map((key) => [key, one[key].concat(next[key])])), points: one.points + next.points };
  });
  return { ...found, series, findings: found.findings ?? before.findings, windows: found.windows ?? before.windows };
}

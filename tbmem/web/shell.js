// The page around the views: tabs, pickers, reload, and when a view is drawn.

import { fetchView, forget, isReport, ViewError, viewsOfPage } from "./api.js";
import { button, choice, el, replace } from "./dom.js";
import { fileOpener } from "./drop.js";
import { moment, setWords } from "./format.js";
import { isVisible, onReload, onVisible } from "./host.js";
import { emptyState, failure } from "./parts.js";
import { picker } from "./picker.js";
import { get, onChange, set, setDefault } from "./state.js";
import { startTheme } from "./theme.js";
import { workPanel } from "./working.js";

const ENDED = "ended";

/** State that is reset when another run or recording is chosen. */
const CLEARED = { device: null, from: null, to: null, t0: null, t1: null, b0: null, b1: null, c0: null, axis: null };

const PATIENCE = 250;

/** Builds the page once; draws a view whenever what it shows has changed. */
export class Shell {
  /** @param views Modules with `name`, `title`, `needs` and `draw(context)`. */
  constructor(views) {
    const offered = viewsOfPage();
    this.views = offered ? views.filter((view) => offered.includes(view.name)) : views;
    this.tabs = this.views.map((view) => this.tab(view));
    this.pickers = el("div", { class: "pickers" });
    this.status = el("div", { class: "status", role: "status" });
    this.main = el("main", { id: "view", role: "tabpanel", tabindex: -1 });
    const reload = !isReport() && button("↻", () => this.reload(), { id: "reload", "aria-label": "Reload", title: "Reload" });
    const opener = fileOpener((place) => set({ ...CLEARED, runs: null, file: null, ...place }));
    const list = el("nav", { role: "tablist", "aria-label": "Views", on: { keydown: (event) => this.key(event) } });
    list.append(...this.tabs);
    this.head = el("header", {}, list, el("div", { class: "tools" }, this.pickers, this.status, opener.button, reload), opener.told);
    this.node = el("div", { class: "shell" }, this.head, this.main);
    this.asked = [];
    this.turn = 0;
  }

  /** Add the page to the document and update it from then on. */
  async start(body) {
    body.append(this.node);
    // the first entry of the history has a view as well, for coming back to it
    setDefault("view", this.view().name);
    const measured = () => document.documentElement.style.setProperty("--head", `${this.head.offsetHeight}px`);
    new ResizeObserver(measured).observe(this.head);
    startTheme(() => this.draw());
    onChange(() => this.draw());
    onReload(() => this.reload());
    onVisible(() => this.missed && this.reload());
    await this.draw();
  }

  /** Fetch all visible answers again, and redraw if they have changed. */
  async reload() {
    this.missed = !isVisible();
    if (this.missed) return;
    const before = await this.answers(["index", {}], ...this.asked);
    forget();
    const after = await this.answers(["index", {}], ...this.asked);
    // a view that follows its run by itself keeps what the user has set
    const refresh = this.main.firstElementChild?.refresh ?? (() => this.draw());
    if (before !== after) await refresh();
    this.node.dataset.reloads = String(Number(this.node.dataset.reloads ?? 0) + 1);
  }

  async answers(...asked) {
    const found = await Promise.allSettled(asked.map(([view, params]) => fetchView(view, params)));
    return JSON.stringify(found.map((one) => one.value ?? String(one.reason)));
  }

  /** Draw the chosen view; an older drawing that is not finished is discarded. */
  async draw() {
    const turn = ++this.turn;
    const focus = document.activeElement?.id;
    this.main.setAttribute("aria-busy", "true");
    const view = this.view();
    for (const tab of this.tabs) this.choose(tab, tab.dataset.view === view.name);
    this.main.setAttribute("aria-labelledby", `tab-${view.name}`);
    const asked = [];
    const waiting = setTimeout(() => this.wait(view, turn), PATIENCE);
    const content = await this.content(view, asked, turn);
    clearTimeout(waiting);
    if (turn !== this.turn) return;
    this.working?.remove();
    this.asked = asked;
    replace(this.main, content);
    if (this.main.dataset.drawn !== view.name) window.scrollTo(0, 0);
    if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
    this.main.removeAttribute("aria-busy");
    this.main.dataset.drawn = view.name;
  }

  /** Show what the server reads, in the place of another view. */
  wait(view, turn) {
    if (turn !== this.turn) return;
    if (!this.working?.isConnected) this.head.append((this.working = workPanel()));
    if (this.main.dataset.drawn !== view.name) replace(this.main);
  }

  async content(view, asked, turn) {
    try {
      const index = await fetchView("index");
      setWords(index.words);
      if (turn !== this.turn) return null;
      const context = this.context(index, view, asked);
      this.tools(index, view, context);
      if (index.empty || !index.runs.length) return emptyState(index.empty ?? { title: "No runs", text: "" });
      const missing = missingOf(index, view, context);
      if (missing) return failure(missing);
      return await view.draw(context);
    } catch (error) {
      if (error.status === undefined) console.error(error);
      return failure(error);
    }
  }

  view() {
    const name = get("view");
    return this.views.find((view) => view.name === name) ?? this.views[0];
  }

  context(index, view, asked) {
    const run = itemOf(index, view) ?? (get("run") ? undefined : index.runs[0]);
    const files = run ? [...run.recordings, ...run.estimates.filter((file) => isRecording(file, run))] : [];
    const file = fileOf(files, view);
    return {
      index,
      item: run,
      run: run?.run ?? get("run"),
      runs: chosenRuns(index, run),
      files,
      file: file?.file ?? get("file"),
      device: get("device"),
      redraw: () => this.draw(),
      /** Bring pickers and status up to date without drawing the view. */
      retool: async () => {
        const latest = await fetchView("index");
        if (view === this.view()) this.tools(latest, view, this.context(latest, view, asked));
      },
      ask: (name, params) => {
        asked.push([name, params]);
        return fetchView(name, params);
      },
    };
  }

  tools(index, view, context) {
    // an open list stays open while the run is being written
    const names = JSON.stringify([view.name, context.run, context.runs, context.file, runItems(index), context.files]);
    if (names !== this.names) {
      this.names = names;
      const focus = document.activeElement?.id;
      replace(this.pickers, this.pickersOf(index, view, context));
      if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
    }
    replace(this.status, this.statusOf(index, view, context));
  }

  pickersOf(index, view, context) {
    const found = [];
    if (view.needs === "runs") found.push(this.runsPicker(index, context));
    if (view.needs === "run" || view.needs === "recording") found.push(this.runPicker(index, context));
    if (view.needs === "recording" && context.files.length) found.push(this.filePicker(context));
    return found;
  }

  statusOf(index, view, context) {
    if (index.source === "report") return index.written && `written ${index.written}`;
    // a view of all runs shows it for each
    if (view.needs === "none" || view.showsStatus) return null;
    const shown = view.needs === "runs" ? index.runs.filter((one) => context.runs.includes(one.run)) : [context.item];
    const told = shown.find((one) => one && one.status !== ENDED);
    if (!told) return null;
    return el("span", { class: `state ${told.status}`, title: `last line ${moment(told.changed)}` }, told.status_text);
  }

  runPicker(index, { run }) {
    const pick = ([value]) => set({ ...CLEARED, run: value, runs: null, file: null });
    return picker({ label: "Run", id: "pick-run", items: runItems(index), chosen: [run], pick });
  }

  runsPicker(index, { runs }) {
    const pick = (values) => set({ ...CLEARED, run: values[0] ?? null, runs: values.join("\n"), file: null });
    return picker({ label: "Runs", id: "pick-runs", items: runItems(index), chosen: runs, several: true, pick });
  }

  filePicker({ files, file }) {
    const items = files.map((one) => ({ value: one.file, text: one.name, note: one.error ? "cannot be read" : one.kind }));
    const pick = ([value]) => set({ ...CLEARED, file: value });
    return picker({ label: "Recording", id: "pick-file", items, chosen: [file], pick });
  }

  tab(view) {
    const press = () => set({ view: view.name });
    const tab = button(view.title, press, { role: "tab", id: `tab-${view.name}`, "aria-controls": "view" });
    tab.dataset.view = view.name;
    return tab;
  }

  choose(tab, on) {
    tab.setAttribute("aria-selected", String(on));
    tab.tabIndex = on ? 0 : -1;
    if (on) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  key(event) {
    const at = this.tabs.indexOf(document.activeElement);
    const count = this.tabs.length;
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: count - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    const tab = this.tabs[(to + count) % count];
    tab.focus();
    tab.click();
  }
}

/** A list of devices, where a recording has several. */
export function deviceChoice(head) {
  if (head.devices.length < 2) return null;
  const pick = (device) => set({ ...CLEARED, device });
  const options = head.devices.map((device) => [device, device]);
  return el("label", { class: "field" }, el("span", {}, "device"), choice(options, head.device, pick, { id: "pick-device" }));
}

/** The empty state of a run without recordings. */
export function noRecording(item) {
  return emptyState({
    title: "No recording yet",
    text: `Run ${item.run} has neither a trace nor a snapshot. A recording is made in windows of the profiler's schedule, or on request.`,
    commands: ["with MemoryCallback(profiling={'wait': 1, 'warmup': 2, 'active': 3}) as memory:", "    ...", "tbmem demo --logdir runs"],
  });
}

/** What the address names and the log folder does not have: nothing else is shown in its place. */
function missingOf(index, view, { item, files }) {
  if (view.needs === "none") return null;
  const names = view.needs === "runs" && get("runs") ? get("runs").split("\n") : [get("run")].filter(Boolean);
  const gone = names.filter((name) => index.runs.every((one) => one.run !== name));
  const place = isReport() ? "in this report" : "in this log folder";
  if (gone.length) return new ViewError(404, `There is no run ${gone.join(", ")} ${place}. Choose another run above.`);
  const file = view.needs === "recording" && get("file");
  if (!file || files.some((one) => one.file === file)) return null;
  return new ViewError(404, `Run ${item.run} has no recording ${file}. Choose another recording above.`);
}

function itemOf(index, view) {
  if (get("run")) return index.runs.find((one) => one.run === get("run"));
  // none chosen: the latest run with data
  const fits = { recording: (one) => one.recordings.length, runs: (one) => one.logs.length, run: (one) => one.logs.length };
  return index.runs.find(fits[view.needs] ?? (() => true));
}

function isRecording(file, run) {
  return run.recordings.every((other) => other.file !== file.file);
}

function fileOf(files, view) {
  if (get("file")) return files.find((one) => one.file === get("file"));
  const readable = files.filter((one) => !one.error);
  const fitting = readable.filter((one) => (view.prefers ?? []).includes(one.kind));
  const list = fitting.length ? fitting : readable.length ? readable : files;
  return list[0];
}

function chosenRuns(index, run) {
  const names = new Set(index.runs.map((one) => one.run));
  const chosen = get("runs").split("\n").filter((name) => names.has(name));
  return chosen.length ? chosen : run ? [run.run] : [];
}

function runItems(index) {
  return index.runs.map((one) => ({ value: one.run, text: one.run, note: one.status === ENDED ? "" : one.status_text }));
}

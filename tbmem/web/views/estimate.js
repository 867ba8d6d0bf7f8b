// An estimate over a measurement, aligned by steps and phases, with the estimate's variants.

import { choice, el, labelled, replace, section, tick } from "../dom.js";
import { bytes, relativeChange, signedBytes, word } from "../format.js";
import { LineChart } from "../lines.js";
import { beside, layoutOf, peaksByPhase, placed } from "../overlay.js";
import { emptyState, errorsOf, facts, failure, notesOf, tiles } from "../parts.js";
import { picker } from "../picker.js";
import { get, set } from "../state.js";
import { table } from "../table.js";
import { colours, lineColour } from "../theme.js";

const ALIGNED = {
  phases: "steps and phases lie over each other; a click on a name hides its curve",
  steps: "aligned by steps only: the recording's phases are not those of the estimate",
  length: "not aligned: the recording has no steps, each curve is drawn over its own length",
};
const ROOM = 1.1;
const FITS = { fits: "fits", tight: "tight", does_not_fit: "does not fit" };

export const estimateView = { name: "estimate", title: "Estimate", needs: "run", draw };

async function draw(context) {
  const [run, file] = get("measured") ? JSON.parse(get("measured")) : [];
  const answer = await context.ask("estimate", { run: context.run, file: run === context.run ? file : null });
  if (answer.empty) return el("div", {}, errorsOf(answer.errors), emptyState(answer.empty));
  const chosen = chosenEstimate(answer.estimates);
  const pickers = el("div", { class: "bar wrapped" }, estimatePicker(context.run, answer.estimates, chosen), recordingPicker(context, answer));
  let prediction;
  try {
    prediction = await context.ask("prediction", chosen);
  } catch (error) {
    return el("div", {}, pickers, failure(error));
  }
  return el(
    "div",
    {},
    errorsOf(answer.errors),
    pickers,
    new Overlay(answer.measured, prediction).node,
    alternatives(prediction.alternatives),
    notesOf(prediction.notes),
  );
}

function keyOf({ run, file }) {
  return JSON.stringify([run, file]);
}

/** As chosen; else the first, which is of the same run where that has one. A wrong one is asked for, and is an error. */
function chosenEstimate(estimates) {
  if (!get("estimate")) return estimates[0];
  const [run, file] = JSON.parse(get("estimate"));
  return { run, file };
}

function estimatePicker(own, estimates, chosen) {
  const items = estimates.map((one) => ({ value: keyOf(one), text: one.run === own ? one.file : `${one.run}/${one.file}` }));
  const pick = ([value]) => set({ estimate: value, ...UNCHANGED });
  return picker({ label: "Estimate", id: "pick-estimate", items, chosen: [keyOf(chosen)], pick });
}

function recordingPicker({ index, run }, { estimates, measured }) {
  const predicted = new Set(estimates.map(keyOf));
  const all = index.runs.flatMap((one) => one.recordings.map((file) => ({ run: one.run, file: file.file, name: file.name, error: file.error })));
  const items = all
    .filter((one) => !predicted.has(keyOf(one)))
    .map((one) => ({ value: keyOf(one), text: one.name, note: one.error ? "cannot be read" : one.run }));
  const pick = ([value]) => set({ run: JSON.parse(value)[0], measured: value });
  return picker({ label: "Recording", id: "pick-measured", items, chosen: measured ? [keyOf({ run, file: measured.file })] : [], pick });
}

const UNCHANGED = { batch: null, checkpoint: null, settings: null };

/** The curves, and what changes with the chosen variant. */
class Overlay {
  constructor(measured, prediction) {
    this.measured = measured;
    this.prediction = prediction;
    this.variants = prediction.variants;
    this.variant = this.asked() ?? this.variants[prediction.base ?? 0];
    this.figures = el("div", {});
    this.tables = el("div", { class: "side-by-side" });
    this.note = el("p", { class: "note", id: "estimate-aligned" });
    this.told = el("p", { id: "estimate-told", role: "status" });
    this.controls = this.variants.length > 1 ? this.variantControls() : variantsCommand(prediction.command);
    const label = "Predicted and measured memory over the steps";
    if (this.variant || measured) this.plot = new LineChart({ id: "estimate-plot", label, height: 370 }, this.chart());
    this.node = el("div", {}, this.figures, this.controls, this.told, this.plot && section("Allocated memory", null, this.note, this.plot.node), this.tables);
    this.fill();
  }

  /** The variant in the address. */
  asked() {
    const [batch, checkpoint, settings] = [get("batch"), get("checkpoint"), get("settings")];
    const base = this.variants[this.prediction.base ?? 0];
    if (!base || !(batch || checkpoint || settings)) return null;
    return this.find(batch ? Number(batch) : base.batch, checkpoint ? checkpoint === "yes" : base.checkpoint, settings ? settings.slice(1) : base.settings);
  }

  find(batch, checkpoint, settings) {
    return this.variants.find((one) => one.batch === batch && one.checkpoint === checkpoint && one.settings === settings) ?? null;
  }

  choose(change) {
    const { batch, checkpoint, settings, ...rest } = { ...this.variant, ...change };
    const found = this.find(batch, checkpoint, settings);
    this.variant = found ?? this.variant;
    this.missing = found ? "" : "This combination could not be estimated.";
    if (found) set({ batch, checkpoint: checkpoint ? "yes" : "no", settings: `=${settings}` }, true);
    this.plot.draw(this.chart());
    this.fill();
  }

  variantControls() {
    const { variant, variants } = this;
    const batches = [...new Set(variants.map((one) => one.batch))].sort((one, other) => one - other);
    const shown = el("output", {}, String(variant.batch));
    const slider = el("input", { type: "range", id: "variant-batch", min: 0, max: batches.length - 1, step: 1, "aria-valuetext": `batch ${variant.batch}` });
    slider.value = batches.indexOf(variant.batch);
    slider.addEventListener("input", () => {
      const batch = batches[slider.value];
      shown.textContent = batch;
      slider.setAttribute("aria-valuetext", `batch ${batch}`);
      this.choose({ batch });
    });
    const settings = [...new Set(variants.map((one) => one.settings))].map((text) => [text, text || "torch's defaults"]);
    const both = new Set(variants.map((one) => one.checkpoint)).size > 1;
    return el(
      "div",
      { class: "bar", id: "variants" },
      batches.length > 1 && el("label", { class: "field" }, el("span", {}, "batch"), slider, shown),
      both && tick("activation checkpointing", variant.checkpoint, (checkpoint) => this.choose({ checkpoint })),
      labelled("allocator", choice(settings, variant.settings, (text) => this.choose({ settings: text }), { id: "variant-settings" })),
    );
  }

  layout() {
    return layoutOf(this.measured, this.variant);
  }

  chart() {
    const { measured, variant } = this;
    const layout = this.layout();
    const predicted = variant && placed(variant, layout);
    const [own, other] = [lineColour(0), lineColour(4)];
    const end = layout.end;
    const lines = [
      measured && { name: "measured", x: [...measured.x, end], y: [...measured.bytes, measured.bytes.at(-1)], colour: own, width: 1.8, steps: true, filled: true },
      predicted && { name: "predicted", x: predicted.x, y: predicted.bytes, colour: other, width: 1.8, steps: true, dash: "dash" },
      predicted?.reserved && { name: "predicted, reserved", x: predicted.x, y: predicted.reserved, colour: other, width: 1.2, steps: true, dash: "dot" },
    ].filter(Boolean);
    const range = variant?.range;
    const stretches = layout.steps.flatMap(({ spans }) => spans.map(([name, x0, x1], at) => ({ x0, x1, text: word(name), colour: at % 2 ? `${colours().muted}18` : "transparent" })));
    return {
      lines,
      stretches: layout.by === "phases" ? stretches : [],
      marks: measured ? [{ x: measured.peak_x, y: measured.peak, colour: own, symbol: "circle", text: `peak measured: ${bytes(measured.peak)}` }] : [],
      ranges: range ? [{ y0: range[0], y1: range[1], colour: `${other}33`, text: "expected range of the peak" }] : [],
      uprights: layout.steps.map(({ from }) => ({ x: from, colour: colours().grid })),
      top: Math.max(...lines.flatMap(({ y }) => y.reduce((most, one) => Math.max(most, one), 0)), range?.[1] ?? 0) * ROOM,
      x: { title: layout.by === "length" ? "share of the recording" : "step", extent: [0, end], range: this.plot?.frame.range, text: (value, digits) => stepText(layout, value, digits) },
    };
  }

  fill() {
    const { measured, variant, prediction } = this;
    const layout = this.layout();
    this.note.textContent = [measured && variant ? ALIGNED[layout.by] : "only one of the two curves is known", ...differences(measured, prediction)].join("; ");
    const base = this.variants[prediction.base];
    const told = [this.missing, variant?.sentence, base && variant !== base && `The peak is ${signedBytes(variant.peak - base.peak)} against the estimate as given.`];
    this.told.textContent = told.filter(Boolean).join(" ");
    replace(this.figures, tiles(figuresOf(measured, variant, prediction)), facts([["model", prediction.model], ["GPU", prediction.gpu], ["executed on", prediction.executed]]));
    if (!variant) return;
    replace(
      this.tables,
      besideTable("phases", "Highest level by phase", beside(peaksByPhase(variant, layout), measured?.by_phase)),
      besideTable("categories", "Categories at the peak", beside(variant.by_category, measured?.by_category)),
    );
  }
}

function stepText({ steps, by }, value, digits) {
  if (by === "length" || !steps.length) return value.toFixed(Math.max(digits, 1));
  const at = Math.min(Math.floor(value), steps.length - 1);
  const number = steps[at].step + value - at;
  // between two ticks only the pointer has a text
  return Number.isInteger(number) ? String(number) : digits > 2 ? `${Math.floor(number)}` : "";
}

/** Why the two differ although the estimate is right. */
function differences(measured, prediction) {
  const cpu = measured?.device.startsWith("cpu") && prediction.gpu;
  return [
    cpu && "measured on a CPU, predicted for a GPU: temporary memory of kernels differs",
    measured?.measure === "rounded" && "measured sizes are rounded up by the allocator, predicted ones are as requested",
  ].filter(Boolean);
}

function figuresOf(measured, variant, prediction) {
  const peak = variant?.peak ?? prediction.peak;
  const range = (pair) => pair && `expected ${bytes(pair[0])} to ${bytes(pair[1])}`;
  return [
    peak && ["predicted peak", bytes(peak), range(variant?.range) ?? prediction.file],
    variant?.peak_reserved && ["predicted reserved", bytes(variant.peak_reserved), range(variant.reserved_range)],
    measured && ["measured peak", bytes(measured.peak), measured.file],
    measured?.reserved && ["measured reserved", bytes(measured.reserved), "at the end of the recording"],
    measured && peak && ["predicted against measured", relativeChange(measured.peak, peak), signedBytes(peak - measured.peak)],
    variant?.fit && ["fit", FITS[variant.fit] ?? variant.fit, prediction.capacity && `of ${bytes(prediction.capacity)}`],
  ];
}

function variantsCommand(command) {
  if (!command) return null;
  const text = "Other batches, checkpointing and allocator settings are not in this estimate. This command computes them:";
  return el("div", { id: "variants" }, el("p", { class: "note" }, text), el("pre", { class: "commands" }, command));
}

function besideTable(id, title, rows) {
  const columns = [
    { key: "name", label: id === "phases" ? "phase" : "category", text: (row) => word(row.name) },
    { key: "predicted", label: "predicted", kind: "bytes" },
    { key: "measured", label: "measured", kind: "bytes" },
    { key: "change", label: "difference", kind: "bytes", hint: "predicted less measured", text: (row) => (row.measured === null && row.predicted === null ? "" : signedBytes(row.change)) },
  ];
  const sort = id === "phases" ? null : "predicted";
  return section(title, null, table({ id: `estimate-${id}`, name: `estimate-${id}`, columns, rows, sort, search: false }));
}

function alternatives(list) {
  if (!list?.length) return null;
  const columns = [
    { key: "change", label: "change" },
    { key: "allocated", label: "allocated", kind: "bytes" },
    { key: "reserved", label: "reserved", kind: "bytes" },
    { key: "fit", label: "fit", text: (row) => FITS[row.fit] ?? row.fit },
  ];
  return section("Alternatives", "the same training run with a change, each estimated", table({ id: "estimate-alternatives", name: "alternatives", columns, rows: list, sort: null, search: false }));
}

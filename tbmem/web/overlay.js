// Lays the steps of an estimate over the measured ones, phase by phase.

const EVEN = 0.5;

/** Where the steps are drawn: the measured ones, else the estimate's first and steady step; and how they are aligned. */
export function layoutOf(measured, variant) {
  const predicted = variant?.steps ?? {};
  if (measured?.steps.length) {
    const same = measured.steps.every(({ source, spans }) => !predicted[source] || namesOf(predicted[source]) === spans.map(([name]) => name).join());
    return { steps: measured.steps.map((step, at) => ({ ...step, from: at, to: at + 1 })), by: same ? "phases" : "steps", end: measured.steps.length };
  }
  // a recording without steps is one unit wide
  const width = measured ? EVEN : 1;
  const steps = Object.entries(predicted).map(([source, phases], at) => {
    const [from, to] = [at * width, (at + 1) * width];
    return { source, step: at, from, to, spans: sharedOut(phases, from, to) };
  });
  return { steps, by: measured ? "length" : "phases", end: measured ? 1 : Math.max(steps.length, 1) };
}

/** The estimate's curves over a layout; `reserved` is `null` where it does not have them. */
export function placed(variant, layout) {
  const line = { x: [], bytes: [], reserved: [] };
  let held = 0;
  for (const step of layout.steps) {
    const phases = variant.steps[step.source] ?? variant.steps.steady;
    const spans = layout.by === "phases" ? step.spans : sharedOut(phases, step.from, step.to);
    phases.forEach((phase, at) => {
      const [, from, to] = spans[at];
      line.x.push(...phase.at.map((share) => from + share * (to - from)));
      line.bytes.push(...phase.bytes);
      // what was reserved stays so when the step is repeated
      for (const size of phase.reserved ?? []) line.reserved.push((held = Math.max(held, size)));
    });
  }
  return { ...line, reserved: line.reserved.length === line.x.length ? line.reserved : null };
}

/** The highest level of each phase, of the steps that a layout shows. */
export function peaksByPhase(variant, layout) {
  const found = {};
  for (const source of new Set(layout.steps.map((step) => step.source))) {
    for (const { phase, peak } of variant.steps[source] ?? variant.steps.steady) found[phase] = Math.max(found[phase] ?? 0, peak);
  }
  return found;
}

/** Rows of a table: each name with its predicted and its measured bytes. */
export function beside(predicted, measured) {
  const names = new Set([...Object.keys(predicted ?? {}), ...Object.keys(measured ?? {})]);
  return [...names].map((name) => {
    const [before, after] = [predicted?.[name] ?? null, measured?.[name] ?? null];
    return { name, predicted: before, measured: after, change: before === null && after === null ? null : (before ?? 0) - (after ?? 0) };
  });
}

function namesOf(phases) {
  return phases.map((phase) => phase.phase).join();
}

function sharedOut(phases, from, to) {
  let at = from;
  return phases.map(({ phase, share }) => {
    const begin = at;
    at += share * (to - from);
    return [phase, begin, at];
  });
}

// The predicted timeline of an estimate over the measured one, where both exist.

import { el, section } from "../dom.js";
import { bytes, relativeChange, signedBytes, word } from "../format.js";
import { LineChart, plainX } from "../lines.js";
import { emptyState, errorsOf, notesOf, tiles } from "../parts.js";
import { rowsOf, table } from "../table.js";
import { colours, lineColour } from "../theme.js";

export const estimateView = { name: "estimate", title: "Estimate", needs: "run", draw };

async function draw(context) {
  const answer = await context.ask("estimate", { run: context.run });
  const top = errorsOf(answer.errors);
  if (answer.empty) return el("div", {}, top, emptyState(answer.empty), notesOf(answer.notes));
  const curves = [answer.predicted, answer.measured].filter(Boolean);
  const label = "Predicted and measured memory over the recording";
  const place = curves.length && new LineChart({ id: "estimate-plot", label, height: 370 }, chart(answer, curves)).node;
  return el(
    "div",
    {},
    top,
    tiles(figures(answer)),
    place && section("Allocated memory", "each curve over its own length; dots mark the peaks", place),
    categories(answer.categories),
    notesOf(answer.notes),
  );
}

function figures({ predicted, measured, error_percent: error, summary }) {
  const peak = summary?.peak_bytes;
  return [
    predicted && ["predicted peak", bytes(predicted.peak), predicted.file],
    !predicted && typeof peak === "number" && ["predicted peak", bytes(peak), "tbmem estimate"],
    measured && ["measured peak", bytes(measured.peak), measured.file],
    error !== null && ["predicted over measured", relativeChange(measured.peak, predicted.peak), signedBytes(predicted.peak - measured.peak)],
  ];
}

function chart(answer, curves) {
  const drawn = curves.map((curve, at) => {
    const predicted = curve === answer.predicted;
    const name = predicted ? "predicted" : "measured";
    return { name, x: curve.x, y: curve.bytes, colour: lineColour(predicted ? 4 : 0), width: 1.8, steps: true, dash: predicted ? "dash" : "solid", filled: at === 0 };
  });
  const marks = curves.map((curve, at) => {
    const { name, colour } = drawn[at];
    return { x: curve.peak_x, y: curve.peak, colour, symbol: "circle", text: `peak ${name}: ${bytes(curve.peak)}` };
  });
  const uprights = (answer.measured ?? curves[0]).steps.map((x) => ({ x, colour: colours().grid }));
  const top = Math.max(...curves.map((curve) => curve.peak));
  return { lines: drawn, marks, uprights, top, x: { title: "% of the recording", extent: [0, 100], text: plainX } };
}

function categories(list) {
  if (!list?.name.length) return null;
  const columns = [
    { key: "name", label: "category", text: (row) => word(row.name) },
    { key: "before", label: "predicted", kind: "bytes", width: "140px" },
    { key: "after", label: "measured", kind: "bytes", width: "140px" },
    { key: "change", label: "measured less predicted", kind: "bytes", width: "230px", text: (row) => signedBytes(row.change) },
  ];
  return section("Categories at the peak", null, table({ id: "estimate-categories", name: "estimate", columns, rows: rowsOf(list), sort: "after", search: false }));
}

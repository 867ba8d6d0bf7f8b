// The answer `estimate` goes in; the predicted timeline lies over the measured one, where both exist.

import { el, section } from "../dom.js";
import { bytes, relativeChange, signedBytes, unitFor, word } from "../format.js";
import { emptyState, errorsOf, notesOf, tiles } from "../parts.js";
import { plot, upright } from "../plot.js";
import { rowsOf, table } from "../table.js";
import { colours, lineColour } from "../theme.js";

export const estimateView = { name: "estimate", title: "Estimate", needs: "run", draw };

async function draw(context) {
  const answer = await context.ask("estimate", { run: context.run });
  const top = errorsOf(answer.errors);
  if (answer.empty) return el("div", {}, top, emptyState(answer.empty), notesOf(answer.notes));
  const place = el("div", { class: "plot", id: "estimate-plot", style: { height: "400px" } });
  const curves = [answer.predicted, answer.measured].filter(Boolean);
  if (curves.length) context.after(() => plot(place, context.index.plotly, ...chart(answer, curves)));
  return el(
    "div",
    {},
    top,
    tiles(figures(answer)),
    curves.length > 0 && section("Allocated memory", "each curve over its own length; dots mark the peaks", place),
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
  const unit = unitFor(Math.max(...curves.map((one) => one.peak)));
  const names = new Map([[answer.predicted, "predicted"], [answer.measured, "measured"]]);
  const data = curves.flatMap((curve, at) => {
    const colour = lineColour(names.get(curve) === "predicted" ? 4 : 0);
    const line = { color: colour, width: 1.8, shape: "hv", dash: names.get(curve) === "predicted" ? "dash" : "solid" };
    const hovertemplate = `%{y:.3~f} ${unit.name}`;
    const own = { type: "scatter", name: names.get(curve), x: curve.x, y: curve.bytes.map((one) => one / unit.bytes), mode: "lines", line, hovertemplate };
    const marker = { color: colour, size: 11, line: { color: colours().ink, width: 1 } };
    const peak = { type: "scatter", mode: "markers", showlegend: false, name: `peak ${names.get(curve)}`, x: [curve.peak_x], y: [curve.peak / unit.bytes], marker, hovertemplate };
    return [at === 0 ? { ...own, fill: "tozeroy", fillcolor: `${colour}22` } : own, peak];
  });
  const shapes = (answer.measured ?? curves[0]).steps.map((x) => ({ ...upright(x, colours().grid), layer: "below" }));
  const layout = { shapes, hovermode: "x unified", xaxis: { title: { text: "% of the recording" } }, yaxis: { title: { text: unit.name } } };
  return [data, layout];
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

// Traces and a layout go in; a chart of plotly.js comes out, which is loaded when the first one is drawn.

import { el, replace } from "./dom.js";
import { colours } from "./theme.js";

const CONFIG = { responsive: true, displaylogo: false, showSendToCloud: false, doubleClick: "reset", showTips: false };
const REMOVED = ["select2d", "lasso2d", "autoScale2d", "toggleSpikelines", "hoverCompareCartesian"];
let loading;

/** Draw into an element of the page; the promise is kept when the chart can be seen. */
export async function plot(place, address, data, layout) {
  let plotly;
  try {
    plotly = await load(address);
  } catch {
    replace(place, el("p", { class: "note" }, "plotly.js could not be loaded: pip install --upgrade plotly"));
    return null;
  }
  if (!place.isConnected) return null;
  await plotly.react(place, data, framed(layout), { ...CONFIG, modeBarButtonsToRemove: REMOVED });
  return place;
}

/** A horizontal line over the whole chart. */
export function level(y, text, colour) {
  const line = { color: colour, width: 1.2, dash: "dot" };
  const label = { text, textposition: "end", font: { size: 11, color: colour } };
  return { type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line, label };
}

/** A coloured stretch of x. */
export function stretch(x0, x1, text, colour) {
  const font = { size: 10, color: colours().muted };
  const label = { text, textposition: "top left", font };
  const place = { type: "rect", x0, x1, yref: "paper", y0: 0, y1: 1, layer: "below" };
  return { ...place, fillcolor: colour, line: { width: 0 }, label };
}

/** A vertical line. */
export function upright(x, colour) {
  return { type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: { color: colour, width: 1.5, dash: "dash" } };
}

function framed(layout) {
  const { ink, muted, grid, paper } = colours();
  const axis = { gridcolor: grid, zerolinecolor: grid, linecolor: grid, automargin: true };
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink, size: 12, family: 'Roboto, system-ui, "Segoe UI", "DejaVu Sans", Arial, sans-serif' },
    margin: { l: 64, r: 44, t: 40, b: 44 },
    modebar: { orientation: "v", bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: ink },
    hoverlabel: { bgcolor: paper, bordercolor: grid, font: { color: ink }, namelength: -1 },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    ...layout,
    xaxis: { ...axis, ...layout.xaxis },
    yaxis: { ...axis, rangemode: "tozero", ...layout.yaxis },
  };
}

function load(address) {
  if (globalThis.Plotly) return Promise.resolve(globalThis.Plotly);
  loading ??= new Promise((done, failed) => {
    const script = el("script", { src: address, on: { load: () => done(globalThis.Plotly), error: failed } });
    document.head.append(script);
  });
  loading.catch(() => {
    loading = undefined;
  });
  return loading;
}

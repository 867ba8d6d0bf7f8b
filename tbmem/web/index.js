// The Memory tab's first module: TensorBoard imports it and calls `render`; so does report.html.

import { isReport } from "./api.js";
import { el } from "./dom.js";
import { Shell } from "./shell.js";
import { startState } from "./state.js";
import { compareView } from "./views/compare.js";
import { estimateView } from "./views/estimate.js";
import { liveView } from "./views/live.js";
import { operatorsView } from "./views/operators.js";
import { overviewView } from "./views/overview.js";
import { peakView } from "./views/peak.js";
import { ranksView } from "./views/ranks.js";
import { segmentsView } from "./views/segments.js";
import { stepsView } from "./views/steps.js";
import { timelineView } from "./views/timeline.js";

const VIEWS = [
  overviewView,
  liveView,
  timelineView,
  peakView,
  segmentsView,
  stepsView,
  operatorsView,
  ranksView,
  compareView,
  estimateView,
];

/** Draw the page into the empty body. */
export async function render() {
  document.title = "Memory · tbmem";
  document.documentElement.lang = "en";
  if (!isReport()) document.head.append(el("link", { rel: "stylesheet", href: "page.css" }));
  startState();
  await new Shell(VIEWS).start(document.body);
}

// Components that several views share: badges, notes, empty states, findings, sparklines.

import { el, svg } from "./dom.js";
import { bytes, deviceName, known, percent, whole } from "./format.js";
import { onGround } from "./theme.js";

/** An empty state: why there is no data, and how to get it. */
export function emptyState(empty) {
  const commands = empty.commands?.length > 0 && el("pre", { class: "commands" }, empty.commands.join("\n"));
  return el("div", { class: "empty" }, el("h2", {}, empty.title), el("p", {}, empty.text), commands);
}

/** An error message of the server. */
export function failure(error) {
  const title = error.status === 404 ? "Not found" : "This could not be shown";
  return el("div", { class: "empty", role: "alert" }, el("h2", {}, title), el("p", {}, error.message));
}

/** A badge. */
export function badge(text, severity) {
  return el("span", { class: `badge ${severity}` }, text);
}

/** Notes about limits of the data. */
export function notesOf(notes) {
  if (!notes?.length) return null;
  const items = notes.map((note) => el("li", {}, note));
  return el("details", { class: "notes" }, el("summary", {}, `What is not known (${notes.length})`), el("ul", {}, items));
}

/** Files that cannot be read. */
export function errorsOf(files) {
  if (!files?.length) return null;
  const items = files.map((file) => el("li", {}, el("code", {}, file.file), ` ${file.error}`));
  return el("div", { class: "errors", role: "alert" }, el("b", {}, "Cannot be read"), el("ul", {}, items));
}

/** Figures in a row: `[word, number, more]`. */
export function tiles(figures) {
  const tile = ([name, number, more]) =>
    el("div", { class: "tile" }, el("span", {}, name), el("b", {}, number), more && el("small", {}, more));
  return el("div", { class: "tiles" }, figures.filter(Boolean).map(tile));
}

/** A list of names and values. */
export function facts(list) {
  const shown = list.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", { class: "facts" }, shown.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]).flat());
}

/** A colour and its name. */
export function keyed(text, colour) {
  const mark = el("span", { class: "key", style: { background: onGround(colour) }, "aria-hidden": "true" });
  return el("span", { class: "keyed" }, mark, text);
}

/** A sparkline. */
export function sparkline(levels, severity, name = "") {
  if (levels.length < 2) return null;
  const [wide, high] = [220, 36];
  const most = Math.max(...levels);
  const least = Math.min(...levels);
  const low = least - Math.max((most - least) * 0.15, most * 0.02, 1);
  const x = (at) => ((at / (levels.length - 1)) * wide).toFixed(1);
  const y = (one) => (high - 2 - ((one - low) / (most - low || 1)) * (high - 4)).toFixed(1);
  const line = levels.map((one, at) => `${at ? "L" : "M"}${x(at)} ${y(one)}`).join("");
  const box = { viewBox: `0 0 ${wide} ${high}`, preserveAspectRatio: "none", role: "img", class: `spark ${severity}` };
  const label = { "aria-label": `${name} from ${bytes(levels[0])} to ${bytes(levels.at(-1))}, at most ${bytes(most)}`.trim() };
  return svg(
    "svg",
    { ...box, ...label },
    svg("path", { class: "ground", d: `${line}L${wide} ${high}L0 ${high}Z` }),
    svg("path", { class: "line", d: line }),
  );
}

/** Sparklines of the levels after the steps and of the peaks within them; only the latter show spikes. */
export function sparklines({ levels, peaks }, severity) {
  const curves = [["after the steps", levels], ["peaks within the steps", peaks]];
  const shown = curves.map(([name, values]) => [name, sparkline(values, severity, name)]).filter(([, curve]) => curve);
  return shown.map(([name, curve]) => el("div", { title: name }, shown.length > 1 && el("small", { class: "note" }, name), curve));
}

/** One finding with its evidence. */
export function findingItem(finding, several = false) {
  const steps = finding.first_step === finding.last_step ? `step ${whole(finding.last_step)}` : stepsOf(finding);
  const place = [several && finding.run, deviceName(finding.device), `rank ${finding.rank}`, steps];
  return el(
    "article",
    { class: `finding ${finding.severity} ${finding.kind}` },
    el("p", {}, badge(finding.label, severityOf(finding)), " ", finding.message),
    finding.line && el("p", {}, el("code", {}, finding.line)),
    finding.advice && el("p", { class: "advice" }, finding.advice),
    el("p", { class: "note" }, [...place, finding.known_by].filter(Boolean).join(" · ")),
    evidenceOf(finding.evidence),
  );
}

/** The colour class of a finding. */
export function severityOf(finding) {
  return ["stable", "dismissed"].includes(finding.kind ?? finding.verdict) ? "good" : finding.severity;
}

/** The evidence of a finding, nested values included. */
export function evidenceOf(evidence) {
  const entries = Object.entries(evidence ?? {});
  if (!entries.length) return null;
  return el("details", {}, el("summary", {}, "evidence"), nested(evidence));
}

/** Lines of a call stack, the innermost first. */
export function framesOf(frames) {
  if (!frames.length) return el("p", { class: "note" }, "No stack was recorded.");
  const line = (frame) => el("li", { class: frame.own ? "own" : "" }, frame.text ?? frame);
  return el("ol", { class: "frames" }, frames.map(line));
}

/** Lines of Python, the innermost first; those of C++ only where there are no others. */
export function shortStack(frames) {
  const python = frames.filter((frame) => /\.py:/.test(frame));
  return (python.length ? python : frames).join(" ← ");
}

/** A percentage with its sign, or `new`. */
export function changeText(share) {
  return share === null ? "new" : `${share >= 0 ? "+" : ""}${percent(share)}`;
}

function stepsOf(finding) {
  return `steps ${whole(finding.first_step)} to ${whole(finding.last_step)}`;
}

function nested(value) {
  if (Array.isArray(value)) {
    if (value.every((one) => typeof one !== "object" || one === null)) return plain("", value.join(", "));
    return el("ul", { class: "nested" }, value.map((one) => el("li", {}, nested(one))));
  }
  if (typeof value === "object" && value !== null) {
    const rows = Object.entries(value).map(([name, one]) => [
      el("dt", {}, name.replaceAll("_", " ")),
      el("dd", {}, typeof one === "object" && one !== null ? nested(one) : plain(name, one)),
    ]);
    return el("dl", { class: "facts nested" }, rows.flat());
  }
  return plain("", value);
}

function plain(name, value) {
  if (known(value) && /bytes/.test(name)) return `${bytes(value)} (${whole(value)} B)`;
  if (known(value) && !Number.isInteger(value)) return String(Number(value.toPrecision(5)));
  return value === null ? "not known" : String(value);
}

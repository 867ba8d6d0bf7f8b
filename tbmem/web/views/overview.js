// A card for each device of each rank, with what to do next.

import { forget, patience } from "../api.js";
import { button, el } from "../dom.js";
import { bytes, duration, known, moment, percent, readingText, signedBytes, speed, whole } from "../format.js";
import { badge, emptyState, errorsOf, findingItem, notesOf, severityOf, sparklines } from "../parts.js";
import { picker } from "../picker.js";
import { get, set } from "../state.js";
import { storyCard } from "../stories.js";
import { triage } from "./triage.js";

const AT_ONCE = 24;
const GROWS = ["leak", "growing"]; // verdicts beside which a growth rate stands

export const overviewView = { name: "overview", title: "Overview", needs: "none", draw };

async function draw(context) {
  const names = get("cards").split("\n").filter(Boolean);
  const answer = await context.ask("overview", { run: names, within: patience() });
  if (answer.empty) return emptyState(answer.empty);
  const open = (run) => set({ cards: run, run });
  const node = el(
    "div",
    { class: "overview" },
    names.length > 0 && el("div", { class: "bar" }, button("← All runs", () => set({ cards: null })), runsPicker(context.index, names)),
    answer.table?.length > 0 && triage(answer.table, open),
    answer.runs.map((run) => runSection(run, context)),
    fileList("Recordings without a live log", answer.alone, (file) => set({ view: "timeline", run: file.run, file: file.file })),
    fileList("Files that cannot be read", answer.unreadable),
  );
  if (answer.runs.some((run) => run.unread)) setTimeout(() => readOn(node, context), 0);
  return node;
}

/** Draw the cards again with more of the logs. */
function readOn(node, context) {
  if (!node.isConnected) return;
  forget();
  context.redraw();
}

/** One line for each file; a click opens it. */
function fileList(title, files, open) {
  if (!files.length) return null;
  const line = (file) =>
    el(
      "li",
      {},
      open ? button(`${file.run}/${file.file}`, () => open(file), { class: "link" }) : el("code", {}, `${file.run}/${file.file}`),
      el("span", { class: "note" }, file.error ?? ` ${file.kind}, ${bytes(file.bytes)}, ${moment(file.changed)}`),
    );
  const name = open ? "alone" : "unreadable";
  return el("details", { class: `files ${name}`, open: files.length <= AT_ONCE }, el("summary", {}, `${title} (${whole(files.length)})`), el("ul", {}, files.map(line)));
}

function runsPicker(index, chosen) {
  const items = index.runs.map((one) => ({ value: one.run, text: one.run }));
  const pick = (values) => set({ cards: values.join("\n") });
  return picker({ label: "Runs", id: "pick-cards", items, chosen, several: true, pick });
}

function runSection(run, context) {
  const about = [
    run.status_text,
    run.unread > 0 && readingText(run.unread),
    run.step > 0 && `step ${whole(run.step)}`,
    known(run.seconds) && duration(run.seconds),
    known(run.steps_per_second) && speed(run.steps_per_second),
    run.host,
    run.torch && `torch ${run.torch}`,
  ];
  const head = el(
    "div",
    { class: "run-head" },
    el("h2", {}, run.run),
    el("span", { class: "note" }, [...new Set(about.filter(Boolean))].join(" · ")),
    el("span", { class: "grow" }),
    links(run, context),
  );
  const several = new Set(run.cards.map((card) => card.rank)).size > 1;
  const told = new Set(run.stories.flatMap((story) => story.advice));
  const isDead = run.status === "died";
  const cards = run.cards.slice(0, AT_ONCE).map((card) => deviceCard(card, several, told, isDead));
  const rest = run.cards.length - AT_ONCE;
  return el(
    "section",
    { class: "run", "data-run": run.run },
    head,
    errorsOf(run.errors),
    run.empty && emptyState(run.empty),
    run.stories.length > 0 && el("div", { class: "stories" }, run.stories.map((story) => storyCard(story, context.ask))),
    el(
      "div",
      { class: "run-body" },
      cards.length > 0 && el("div", { class: "cards" }, cards),
      el("div", { class: "run-side" }, nextSteps(run, told), findings(run), notesOf(run.notes)),
    ),
    rest > 0 && el("p", { class: "note" }, `${whole(rest)} more ranks: see the tab Ranks.`),
  );
}

function links(run, { index }) {
  const item = index.runs.find((one) => one.run === run.run);
  const go = (view) => () => set({ view, run: run.run, runs: null, file: null, device: null, from: null, to: null });
  const views = [item?.logs.length && ["live", "Live"], item?.recordings.length && ["timeline", "Timeline"]];
  const found = [...views, item?.recordings.length && ["peak", "Peak"], item?.ranks.length > 1 && ["ranks", "Ranks"]];
  return el("span", { class: "links" }, found.filter(Boolean).map(([view, text]) => button(text, go(view))));
}

function deviceCard(card, several, told, isDead) {
  // stable memory is no good news of a run that was killed
  const severity = isDead && severityOf(card) === "good" ? "info" : severityOf(card);
  return el(
    "article",
    { class: `card ${severity}`, "data-rank": card.rank, "data-device": card.device },
    el("div", { class: "card-head" }, el("b", {}, several ? `rank ${card.rank} · ${card.name}` : card.name), badge(card.label, severity)),
    card.message && el("p", { class: "message" }, card.message),
    card.line && el("p", { class: "line" }, el("code", { title: card.line }, card.line)),
    sparklines(card, severity),
    meter(card),
    figures(card),
    card.advice && !told.has(card.advice) && el("p", { class: "advice" }, card.advice),
  );
}

function meter(card) {
  if (!card.capacity || !known(card.peak)) return null;
  const share = (100 * card.peak) / card.capacity;
  const label = `peak ${percent(share, 0)} of ${bytes(card.capacity)}`;
  const fill = el("span", { style: { width: `${Math.min(share, 100)}%` }, class: share > 90 ? "high" : "" });
  return el("div", { class: "meter", role: "img", "aria-label": label, title: label }, fill);
}

/** Of what came after the last step, such as an evaluation, the step before. */
function whenReached(card) {
  if (card.peak_step === null) return null;
  return card.peak_ended ? `step ${whole(card.peak_step)}` : `after step ${whole(card.peak_step - 1)}`;
}

function figures(card) {
  const rows = [
    [card.peak_word, bytes(card.peak), whenReached(card)],
    card.peak_own > 0 && ["of this tbmem", bytes(card.peak_own)],
    ["headroom", bytes(card.headroom), card.capacity && `of ${bytes(card.capacity)}`],
    ["allocated", bytes(card.allocated), card.allocated_step !== null && `of step ${whole(card.allocated_step)}`],
    ["reserved", bytes(card.reserved)],
    // of other memory it is noise, or what a cache took before it was full
    known(card.growth_per_step) && Math.abs(card.growth_per_step) >= 1 && GROWS.includes(card.verdict) && ["growth", `${signedBytes(card.growth_per_step)}/step`],
  ];
  const shown = rows.filter((row) => row && row[1] !== "–");
  return el(
    "dl",
    { class: "figures" },
    shown.map(([name, value, more]) => [el("dt", {}, name), el("dd", {}, value, more && el("small", {}, ` ${more}`))]).flat(),
  );
}

/** What to do that no story above says. */
function nextSteps(run, told) {
  const steps = run.next_steps.filter((step) => !told.has(step));
  if (!steps.length) return null;
  const title = steps.length < run.next_steps.length ? "After that" : "What to do next";
  return el("div", { class: "next" }, el("h3", {}, title), el("ol", {}, steps.map((step) => el("li", {}, step))));
}

function findings(run) {
  if (!run.findings.length) return null;
  const open = get("findings") === run.run;
  const toggle = (event) => set({ findings: event.target.open ? run.run : null }, true);
  const count = `${run.findings.length} ${run.findings.length === 1 ? "finding" : "findings"} with evidence`;
  return el("details", { open, on: { toggle } }, el("summary", {}, count), run.findings.map((one) => findingItem(one)));
}


// Cards of an out-of-memory error and of a leak: what happened and where, why, who holds the memory, what helps.

import { el, replace } from "./dom.js";
import { bytes, deviceName, percent, whole } from "./format.js";
import { badge } from "./parts.js";

/** A card; `ask(view, params)` asks for what would have helped. */
export function storyCard(story, ask) {
  const changes = el("div", { class: "remedies", "aria-live": "polite" });
  if (story.remedies) showRemedies(changes, ask("remedies", story.remedies));
  return el(
    "article",
    { class: `story ${story.kind}`, "data-kind": story.kind, "data-rank": story.rank },
    el("div", { class: "card-head" }, el("h3", {}, story.title), el("span", { class: "note" }, `${deviceName(story.device)}, rank ${story.rank}`)),
    el("dl", { class: "facts" }, story.facts.map(([name, text, line]) => [el("dt", {}, name), el("dd", {}, text, line && text && " at ", line && el("code", {}, line))]).flat()),
    story.why.map((text, at) => el("p", { class: "why" }, el("b", {}, at ? "also " : "why "), text)),
    holders(story.holders),
    el("h4", {}, "What to do"),
    el("ul", { class: "advice-list" }, story.advice.map((text) => el("li", {}, text))),
    changes,
  );
}

function holders(found) {
  if (!found.length) return null;
  const item = (one) =>
    el(
      "li",
      {},
      el("b", {}, bytes(one.bytes)),
      one.percent !== null && el("small", {}, ` ${percent(one.percent, 0)}`),
      ` ${one.name}`,
      one.count > 1 && el("small", {}, ` (${whole(one.count)} parts)`),
      one.line && " ",
      one.line && el("code", {}, one.line),
    );
  return el("div", {}, el("h4", {}, "Largest holders"), el("ol", { class: "holders" }, found.map(item)));
}

async function showRemedies(place, asked) {
  replace(place, el("p", { class: "note" }, "Replaying the snapshot under other settings …"));
  try {
    const answer = await asked;
    const word = { true: "fits", false: "does not fit", null: "may fit" };
    const item = ({ change, effect, fits }) =>
      el("li", {}, badge(word[fits], fits ? "good" : "info"), ` ${change} `, el("span", { class: "note" }, effect));
    const missing = answer.missing > 0 && el("p", {}, el("b", {}, bytes(answer.missing)), " were missing.");
    const list = answer.changes.length > 0 && el("ul", { class: "changes", "aria-label": "Changes" }, answer.changes.map(item));
    replace(place, missing, list, answer.note && el("p", { class: "note" }, answer.note));
  } catch (error) {
    replace(place, el("p", { class: "note", role: "alert" }, error.message));
  }
}

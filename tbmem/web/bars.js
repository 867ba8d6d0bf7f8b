// Stacked horizontal bars on one scale, with a legend above.

import { el } from "./dom.js";
import { bytes } from "./format.js";
import { keyed } from "./parts.js";
import { onGround } from "./theme.js";

/**
 * A chart of horizontal bars.
 *
 * @param parts `{word, colour}` of each part.
 * @param rows  `{name, title, total, sizes, odd, open}`: a size for each part, what a click does.
 */
export function partBars(parts, rows) {
  const most = Math.max(...rows.map((row) => row.total), 1);
  // known and inferred parts may share name and colour
  const keys = new Map(parts.map(({ word, colour }) => [`${word.toLowerCase()} ${colour}`, keyed(word, colour)]));
  const legend = el("div", { class: "legend" }, [...keys.values()]);
  const longest = Math.max(...rows.map((row) => row.name.length), 6);
  const style = { "--names": `${Math.min(longest, 44) + 1}ch` };
  return [legend, el("div", { class: "part-bars", style }, rows.map((row) => bar(parts, row, most)))];
}

function bar(parts, { name, title, total, sizes, odd, open }, most) {
  const pieces = parts.map(({ word, colour }, at) => {
    const style = { width: `${(100 * sizes[at]) / most}%`, background: onGround(colour) };
    return sizes[at] > 0 && el("span", { style, title: `${word} ${bytes(sizes[at])}` });
  });
  return el(
    "button",
    { type: "button", class: `part-bar ${odd ? "odd" : ""}`, title, on: { click: open } },
    el("span", { class: "part-name" }, name),
    el("span", { class: "share-bar" }, pieces),
    el("span", { class: "part-size" }, bytes(total)),
  );
}

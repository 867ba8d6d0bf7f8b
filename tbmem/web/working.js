// What the server is reading while the page waits for it, how far it has come, and buttons that cancel it.

import { cancelWork, fetchWork, isReport } from "./api.js";
import { button, el, replace } from "./dom.js";
import { duration, known, percent } from "./format.js";

const EVERY = 400;

/** A panel that follows the server's work as long as it is in the page. */
export function workPanel() {
  const node = el("div", { class: "working", role: "status" }, "Reading the files …");
  const rows = new Map();
  const follow = async () => {
    if (!node.isConnected || isReport()) return;
    try {
      const { work } = await fetchWork();
      const shown = work.map((one) => rowOf(rows, one));
      if (shown.length && shown.some((one, at) => one !== node.children[at])) replace(node, shown);
    } catch {
      // the answer that the page waits for tells the error
    }
    setTimeout(follow, EVERY);
  };
  setTimeout(follow, 0);
  return node;
}

/** The row of a piece of work, brought up to date: its button stays the same one while it is pressed. */
function rowOf(rows, { work, name, stage, share, seconds }) {
  if (!rows.has(work)) {
    const bar = el("progress", { max: 1, "aria-label": name });
    rows.set(work, el("div", { class: "bar" }, bar, el("span"), button("Cancel", () => cancelWork(work))));
  }
  const row = rows.get(work);
  const [bar, text] = row.children;
  if (known(share)) bar.value = share;
  else bar.removeAttribute("value");
  text.textContent = [name, stage, known(share) && percent(100 * share, 0), duration(seconds)].filter(Boolean).join(" · ");
  return row;
}

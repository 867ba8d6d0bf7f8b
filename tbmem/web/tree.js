// A tree of modules goes in; a table comes out whose rows fold, with arrow keys as trees have them.

import { el, replace } from "./dom.js";
import { bytes, percent, whole } from "./format.js";

const OPEN_AT_FIRST = 2;
const INDENT = 18;

/** The answer's `modules` as a tree. */
export function moduleTree(modules) {
  const nodes = modules.name.map((name, at) => ({ at, name: name || "(all)", children: [], depth: 0 }));
  for (const node of nodes) {
    const parent = modules.parent[node.at];
    if (parent < 0) continue;
    node.depth = nodes[parent].depth + 1;
    node.parent = nodes[parent];
    nodes[parent].children.push(node);
  }
  for (const node of nodes) {
    node.open = node.depth < OPEN_AT_FIRST;
    node.children.sort((one, other) => modules.bytes[other.at] - modules.bytes[one.at]);
  }
  const body = el("tbody");
  const head = ["module", "with all below", "own", "%", "allocations"].map((text, at) =>
    el("th", { scope: "col", class: at ? "n" : "" }, text),
  );
  const grid = el(
    "table",
    { role: "treegrid", "aria-label": "Modules at the peak", on: { keydown: key } },
    el("thead", {}, el("tr", {}, head)),
    body,
  );
  let shown = [];
  draw();
  return el("div", { class: "table" }, el("div", { class: "scroll", style: { "max-height": "620px" } }, grid));

  function draw(focus) {
    shown = [];
    if (nodes.length) collect(nodes[0]);
    replace(body, shown.map(line));
    if (focus) body.children[shown.indexOf(focus)]?.focus();
  }

  function collect(node) {
    shown.push(node);
    if (node.open) node.children.forEach(collect);
  }

  function line(node) {
    const { at } = node;
    const mark = node.children.length ? (node.open ? "▾" : "▸") : "";
    const share = el("span", { class: "share", style: { width: `${modules.percent[at]}%` }, "aria-hidden": "true" });
    const name = el("td", { style: { "padding-left": `${8 + node.depth * INDENT}px` }, title: modules.path[at] });
    name.append(el("span", { class: "fold", "aria-hidden": "true" }, mark), node.name);
    return el(
      "tr",
      {
        tabindex: 0,
        class: node.children.length ? "open" : "",
        "aria-level": node.depth + 1,
        "aria-expanded": node.children.length ? String(node.open) : null,
        "data-path": modules.path[at],
        on: { click: () => toggle(node) },
      },
      name,
      el("td", { class: "n" }, share, bytes(modules.bytes[at])),
      el("td", { class: "n" }, bytes(modules.own_bytes[at])),
      el("td", { class: "n" }, percent(modules.percent[at])),
      el("td", { class: "n" }, whole(modules.count[at])),
    );
  }

  function toggle(node, open = !node.open) {
    if (!node.children.length) return;
    node.open = open;
    draw(node);
  }

  function key(event) {
    const at = [...body.children].indexOf(document.activeElement);
    const node = shown[at];
    if (!node) return;
    const acts = {
      ArrowDown: () => body.children[at + 1]?.focus(),
      ArrowUp: () => body.children[at - 1]?.focus(),
      ArrowRight: () => (node.open ? body.children[at + 1]?.focus() : toggle(node, true)),
      ArrowLeft: () => (node.open && node.children.length ? toggle(node, false) : body.children[shown.indexOf(node.parent)]?.focus()),
      Enter: () => toggle(node),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}

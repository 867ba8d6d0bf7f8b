// The module tree as a table with collapsible rows, search, sorting, export and arrow keys.

import { button, download, el, lazily, replace } from "./dom.js";
import { bytes, percent, whole } from "./format.js";
import { get, set } from "./state.js";
import { csvOf } from "./table.js";

const OPEN_AT_FIRST = 2;
const INDENT = 18;
const KEY = "peak-tree";
const COLUMNS = [
  ["name", "module"],
  ["bytes", "with all below"],
  ["own_bytes", "own"],
  ["percent", "%"],
  ["count", "allocations"],
];

/** The answer's `modules` as a tree. */
export function moduleTree(modules) {
  return new Tree(modules).node;
}

class Tree {
  constructor(modules) {
    this.modules = modules;
    this.nodes = nodesOf(modules);
    this.body = el("tbody");
    this.heads = COLUMNS.map(([key, text], at) =>
      el("th", { scope: "col", class: at ? "n" : "" }, button(text, () => this.sortBy(key))),
    );
    const grid = el(
      "table",
      { role: "treegrid", "aria-label": "Modules at the peak", on: { keydown: (event) => this.key(event) } },
      el("thead", {}, el("tr", {}, this.heads)),
      this.body,
    );
    this.node = el("div", { class: "table", id: KEY }, this.bar(), el("div", { class: "scroll tall" }, grid));
    this.draw();
  }

  bar() {
    const search = lazily(() => {
      set({ [`${KEY}.q`]: box.value }, true);
      this.draw();
    }, 150);
    const attributes = { type: "search", placeholder: "Filter", "aria-label": "Filter modules", id: `${KEY}-search` };
    const box = el("input", { ...attributes, value: get(`${KEY}.q`), on: { input: search } });
    const rows = () => this.shown.map((node) => this.plain(node));
    return el(
      "div",
      { class: "table-bar" },
      box,
      button("Open all", () => this.fold(true)),
      button("Close all", () => this.fold(false)),
      el("span", { class: "grow" }),
      button("CSV", () => download("modules-at-the-peak.csv", csvOf(rows()), "text/csv")),
      button("JSON", () => download("modules-at-the-peak.json", JSON.stringify(rows(), null, 1), "application/json")),
    );
  }

  plain({ at }) {
    const { modules } = this;
    const figures = COLUMNS.slice(1).map(([key]) => [key, modules[key][at]]);
    return { path: modules.path[at], name: modules.name[at], ...Object.fromEntries(figures) };
  }

  fold(open) {
    for (const node of this.nodes) node.open = open || node.depth === 0;
    this.draw();
  }

  sortBy(key) {
    const [before, way] = this.order();
    const next = before === key && way === "desc" ? "asc" : "desc";
    set({ [`${KEY}.sort`]: `${key}:${next}` }, true);
    this.draw();
  }

  order() {
    return (get(`${KEY}.sort`) || "bytes:desc").split(":");
  }

  /** Modules in order; with a search, the matches and their parents. */
  draw(focus) {
    const words = get(`${KEY}.q`).toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (node) => words.every((one) => this.modules.path[node.at].toLowerCase().includes(one));
    const kept = words.length ? new Set(this.nodes.filter(matches).flatMap(withParents)) : null;
    const [key, way] = this.order();
    COLUMNS.forEach(([column], at) => {
      const order = column === key ? (way === "desc" ? "descending" : "ascending") : "none";
      this.heads[at].setAttribute("aria-sort", order);
    });
    this.shown = [];
    if (this.nodes.length) this.collect(this.nodes[0], kept, key, way === "desc" ? -1 : 1);
    replace(this.body, this.shown.map((node) => this.line(node)));
    if (focus) this.focus(this.shown.indexOf(focus));
  }

  collect(node, kept, key, sign) {
    if (kept && !kept.has(node)) return;
    this.shown.push(node);
    if (!node.open && !kept) return;
    const values = this.modules[key];
    const compare = (one, other) => (values[one.at] > values[other.at]) - (values[one.at] < values[other.at]);
    const children = [...node.children].sort((one, other) => sign * compare(one, other));
    for (const child of children) this.collect(child, kept, key, sign);
  }

  line(node) {
    const { modules } = this;
    const { at } = node;
    const mark = node.children.length ? (node.open ? "▾" : "▸") : "";
    const share = el("span", { class: "share", style: { width: `${modules.percent[at]}%` }, "aria-hidden": "true" });
    const name = el("td", { style: { "padding-left": `${8 + node.depth * INDENT}px` }, title: modules.path[at] });
    name.append(el("span", { class: "fold", "aria-hidden": "true" }, mark), node.name);
    const attributes = {
      tabindex: 0,
      class: node.children.length ? "open" : "",
      "aria-level": node.depth + 1,
      "aria-expanded": node.children.length ? String(node.open) : null,
      "data-path": modules.path[at],
      on: { click: () => this.toggle(node) },
    };
    return el(
      "tr",
      attributes,
      name,
      el("td", { class: "n" }, share, bytes(modules.bytes[at])),
      el("td", { class: "n" }, bytes(modules.own_bytes[at])),
      el("td", { class: "n" }, percent(modules.percent[at])),
      el("td", { class: "n" }, whole(modules.count[at])),
    );
  }

  toggle(node, open = !node.open) {
    if (!node.children.length) return;
    node.open = open;
    this.draw(node);
  }

  focus(at) {
    this.body.children[at]?.focus();
  }

  key(event) {
    const at = [...this.body.children].indexOf(document.activeElement);
    const node = this.shown[at];
    if (!node) return;
    const acts = {
      ArrowDown: () => this.focus(at + 1),
      ArrowUp: () => this.focus(at - 1),
      ArrowRight: () => (node.open ? this.focus(at + 1) : this.toggle(node, true)),
      ArrowLeft: () => (node.open && node.children.length ? this.toggle(node, false) : this.focus(this.shown.indexOf(node.parent))),
      Enter: () => this.toggle(node),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}

function nodesOf(modules) {
  const nodes = modules.name.map((name, at) => ({ at, name: name || "(all)", children: [], depth: 0, parent: null }));
  for (const node of nodes) {
    const parent = modules.parent[node.at];
    if (parent >= 0) {
      node.parent = nodes[parent];
      node.depth = node.parent.depth + 1;
      node.parent.children.push(node);
    }
    node.open = node.depth < OPEN_AT_FIRST;
  }
  return nodes;
}

function withParents(node) {
  return node ? [node, ...withParents(node.parent)] : [];
}

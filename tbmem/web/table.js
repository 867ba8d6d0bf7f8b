// Tables with sorting, search and export that render only visible rows.

import { button, download, el, lazily, replace } from "./dom.js";
import { bytes, known, percent, whole } from "./format.js";
import { get, set } from "./state.js";

const HEIGHT = 30;
const SPARE = 12;
const TALLEST = 540;
const NAMES = 160;

/** Kinds of columns: how a value is written. */
const WRITE = { bytes, whole, percent, text: (value) => value ?? "" };

/**
 * A table.
 *
 * @param options.id      Unique; its search and order stand in the address under it.
 * @param options.columns `{key, label, kind, width, value(row), order(row), cell(row), bar(row), colour(row), signed}`.
 * @param options.rows    Objects, any number of them.
 * @param options.sort    Key of the column by which it is sorted at first, descending unless `rising`; `null` keeps the order.
 * @param options.open    Called with a row that was clicked, or chosen by Enter.
 * @param options.ask     Asks the server: `({search, sort, order, offset}) => {rows, found}`; then `rows` are not needed,
 *                        and further ones are fetched as the table is scrolled.
 * @param options.count   How many rows there are, if `rows` are but the first; `all()` then fetches them for exports.
 * @param options.name    Begin of the exported file's name.
 */
export function table(options) {
  return new Table(options).node;
}

/** A test of a number of bytes: `>10MiB`; `null` for other words. */
function limitOf(word) {
  const found = /^([<>])(\d+(?:\.\d+)?)([kmgt]?)(?:i?b)?$/.exec(word);
  if (!found) return null;
  const limit = Number(found[2]) * 1024 ** " kmgt".indexOf(found[3] || " ");
  return found[1] === ">" ? (size) => size > limit : (size) => size < limit;
}

class Table {
  constructor(options) {
    this.options = { rows: [], count: 0, sort: null, name: "table", search: true, ...options };
    this.columns = this.options.columns.map((column) => ({ kind: "text", ...column }));
    this.found = 0;
    this.rows = [];
    this.body = el("tbody");
    this.count = el("span", { class: "note", role: "status" });
    this.heads = this.columns.map((column) => this.head(column));
    this.view = el("div", { class: "scroll", on: { scroll: () => this.draw() } }, this.grid());
    this.view.style.maxHeight = `${TALLEST}px`;
    this.node = el("div", { class: "table", id: this.options.id }, this.bar(), this.view);
    this.update();
  }

  grid() {
    const widths = this.columns.map((column) => column.width ?? (column.kind === "text" ? "auto" : "118px"));
    // a narrow window scrolls the table: the columns without a width are never squeezed to nothing
    const least = widths.reduce((sum, width) => sum + (parseFloat(width) || NAMES), 0);
    const label = this.options.label ?? this.options.name;
    return el(
      "table",
      { "aria-label": label, style: { "min-width": `${least}px` }, on: { keydown: (event) => this.key(event) } },
      el("colgroup", {}, widths.map((width) => el("col", { style: { width } }))),
      el("thead", {}, el("tr", {}, this.heads)),
      this.body,
    );
  }

  bar() {
    const { id, search, name } = this.options;
    const box = el("input", {
      type: "search",
      placeholder: "Filter",
      title: this.sizes() && `words, and limits of ${this.sizes().label} as >10MiB <1GiB`,
      "aria-label": `Filter ${name}`,
      id: `${id}-search`,
      value: get(`${id}.q`),
      on: {
        input: lazily(() => {
          set({ [`${id}.q`]: box.value }, true);
          this.update();
        }, 150),
      },
    });
    return el(
      "div",
      { class: "table-bar" },
      search && box,
      this.count,
      el("span", { class: "grow" }),
      button("CSV", () => this.export(`${name}.csv`, csvOf, "text/csv")),
      button("JSON", () => this.export(`${name}.json`, (rows) => JSON.stringify(rows, null, 1), "application/json")),
    );
  }

  /** Download all rows that fit the filter, in order, not only those that were fetched for the page. */
  async export(name, format, type) {
    try {
      download(name, format(this.plain(await this.everything())), type);
    } catch (error) {
      this.count.textContent = error.message;
    }
  }

  async everything() {
    const { ask, all } = this.options;
    const { key, down } = this.order();
    const search = get(`${this.options.id}.q`).trim();
    if (all) return this.sorted(this.filtered(search, await all()), key, down);
    const rows = [...this.rows];
    while (ask && rows.length < this.found) {
      const { rows: more } = await ask({ search, sort: key, order: down ? "desc" : "asc", offset: rows.length });
      if (!more.length) break;
      rows.push(...more);
    }
    return rows;
  }

  /** Fetch the next rows once the last ones are in sight. */
  async continued() {
    const { ask } = this.options;
    if (!ask || this.asking || this.rows.length >= this.found) return;
    const { turn } = this;
    const { key, down } = this.order();
    const search = get(`${this.options.id}.q`).trim();
    this.asking = true;
    try {
      const { rows } = await ask({ search, sort: key, order: down ? "desc" : "asc", offset: this.rows.length });
      if (turn !== this.turn) return;
      this.rows = [...this.rows, ...rows];
      if (!rows.length) this.found = this.rows.length;
    } catch (error) {
      this.count.textContent = error.message;
      return;
    } finally {
      this.asking = false;
    }
    this.tell();
    this.draw();
  }

  tell() {
    const more = this.found > this.rows.length ? `, the first ${whole(this.rows.length)} shown` : "";
    this.count.textContent = `${whole(this.found)} ${this.found === 1 ? "row" : "rows"}${more}`;
  }

  head(column) {
    const press = button(column.label, () => this.sortBy(column), { title: column.hint ?? null });
    return el("th", { scope: "col", class: column.kind === "text" ? "" : "n" }, press);
  }

  order() {
    const { id, sort, rising } = this.options;
    const [key, way] = (get(`${id}.sort`) || (sort ? `${sort}:${rising ? "asc" : "desc"}` : "")).split(":");
    return { key, down: way !== "asc" };
  }

  sortBy(column) {
    const { key, down } = this.order();
    const first = column.kind === "text" ? "asc" : "desc";
    const way = key === column.key ? (down ? "asc" : "desc") : first;
    set({ [`${this.options.id}.sort`]: `${column.key}:${way}` }, true);
    this.update();
  }

  async update() {
    const { key, down } = this.order();
    this.columns.forEach((column, at) => {
      const order = column.key === key ? (down ? "descending" : "ascending") : "none";
      this.heads[at].setAttribute("aria-sort", order);
    });
    const search = get(`${this.options.id}.q`).trim();
    if (this.options.ask) {
      const turn = (this.turn = {});
      try {
        const answer = await this.options.ask({ search, sort: key, order: down ? "desc" : "asc" });
        if (turn !== this.turn) return;
        this.rows = answer.rows;
        this.found = answer.found;
      } catch (error) {
        this.rows = [];
        this.count.textContent = error.message;
        this.draw();
        return;
      }
    } else {
      this.rows = this.sorted(this.filtered(search, this.options.rows), key, down);
      this.found = search ? this.rows.length : Math.max(this.rows.length, this.options.count);
    }
    this.tell();
    this.view.scrollTop = 0;
    this.draw();
  }

  filtered(search, rows) {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return rows;
    const texts = this.columns.filter((column) => column.kind === "text");
    const size = this.sizes();
    const limits = words.map((one) => size && limitOf(one)).filter(Boolean);
    if (limits.length) {
      const fits = rows.filter((row) => limits.every((limit) => limit(value(size, row))));
      return this.filtered(words.filter((one) => !limitOf(one)).join(" "), fits);
    }
    return rows.filter((row) => {
      const text = texts.map((column) => value(column, row) ?? "").join(" ").toLowerCase();
      return words.every((one) => text.includes(one));
    });
  }

  /** The column that a limit of the filter is about. */
  sizes() {
    return this.columns.find((column) => column.kind === "bytes");
  }

  sorted(rows, key, down) {
    const column = this.columns.find((one) => one.key === key);
    if (!column) return rows;
    const sign = down ? -1 : 1;
    return [...rows].sort((one, other) => sign * compare(rank(column, one), rank(column, other)));
  }

  draw() {
    const sight = Math.ceil(TALLEST / HEIGHT) + 2 * SPARE;
    const last = Math.max(this.rows.length - sight, 0);
    const first = Math.min(Math.max(Math.floor(this.view.scrollTop / HEIGHT) - SPARE, 0), last);
    const end = Math.min(first + sight, this.rows.length);
    if (end === this.rows.length) this.continued();
    if (this.drawn === this.rows && this.first === first) return;
    this.drawn = this.rows;
    this.first = first;
    const lines = [];
    for (let at = first; at < end; at++) lines.push(this.line(this.rows[at], at));
    replace(this.body, this.gap(first), lines, this.gap(this.rows.length - end));
    if (!this.rows.length) this.body.append(el("tr", {}, el("td", { colspan: this.columns.length }, "nothing")));
  }

  gap(rows) {
    const cell = el("td", { colspan: this.columns.length, style: { height: `${rows * HEIGHT}px`, padding: "0" } });
    return rows > 0 && el("tr", { "aria-hidden": "true", class: "gap" }, cell);
  }

  line(row, at) {
    const { open } = this.options;
    const attributes = { "data-at": at, tabindex: open ? 0 : null, class: open ? "open" : "" };
    if (open) attributes.on = { click: () => open(row) };
    return el("tr", attributes, this.columns.map((column) => cell(column, row)));
  }

  key(event) {
    const line = event.target.closest("tr[data-at]");
    if (!line) return;
    const at = Number(line.dataset.at);
    if (event.key === "Enter" || event.key === " ") this.options.open(this.rows[at]);
    else if (event.key === "ArrowDown") this.focus(at + 1);
    else if (event.key === "ArrowUp") this.focus(at - 1);
    else return;
    event.preventDefault();
  }

  focus(at) {
    if (at < 0 || at >= this.rows.length) return;
    const top = at * HEIGHT;
    if (top < this.view.scrollTop) this.view.scrollTop = top;
    const low = top + 2 * HEIGHT - this.view.clientHeight;
    if (low > this.view.scrollTop) this.view.scrollTop = low;
    this.draw();
    this.body.querySelector(`tr[data-at="${at}"]`)?.focus({ preventScroll: true });
  }

  plain(rows) {
    return rows.map((row) =>
      Object.fromEntries(this.columns.map((column) => [column.key, value(column, row) ?? null])),
    );
  }
}

/** Rows as CSV text. */
export function csvOf(rows) {
  if (!rows.length) return "";
  const quote = (one) => (/[",\r\n]/.test(one) ? `"${one.replaceAll('"', '""')}"` : one);
  const lines = [Object.keys(rows[0]), ...rows.map((row) => Object.values(row).map(safe))];
  return lines.map((line) => `${line.map(quote).join(",")}\r\n`).join("");
}

/** Columns of an answer (lists under names) as rows. */
export function rowsOf(columns, fields = Object.keys(columns)) {
  const count = columns[fields[0]]?.length ?? 0;
  return Array.from({ length: count }, (_, at) =>
    Object.fromEntries(fields.map((field) => [field, columns[field][at]])),
  );
}

function value(column, row) {
  return column.value ? column.value(row) : row[column.key];
}

/** What a row is sorted by. */
function rank(column, row) {
  return column.order ? column.order(row) : value(column, row);
}

function cell(column, row) {
  const content = value(column, row);
  const text = column.text ? column.text(row) : WRITE[column.kind](content);
  const place = el("td", { class: column.kind === "text" ? "" : "n" });
  if (column.bar) {
    const share = Math.max(0, Math.min(100, column.bar(row) ?? 0));
    const style = { width: `${share}%`, background: column.colour?.(row) || "var(--accent)" };
    place.append(el("span", { class: "share", style, "aria-hidden": "true" }));
  } else if (column.colour?.(row)) {
    place.append(el("span", { class: "key", style: { background: column.colour(row) }, "aria-hidden": "true" }));
  }
  place.append(column.cell ? column.cell(row) : text);
  if (column.kind === "text") place.title = text;
  return place;
}

function compare(one, other) {
  const [left, right] = [one ?? null, other ?? null];
  if (left === null || right === null) return (left !== null) - (right !== null);
  if (known(left) && known(right)) return left - right;
  return String(left).localeCompare(String(right), "en", { numeric: true });
}

/** Escape text that a spreadsheet would interpret as a formula. */
function safe(one) {
  const text = String(one ?? "");
  return typeof one === "string" && /^[=+\-@\t]/.test(text) ? `'${text}` : text;
}

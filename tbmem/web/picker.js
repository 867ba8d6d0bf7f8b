// A button that opens a list of names with a filter, to choose one or several.

import { button, el, replace } from "./dom.js";

const MOST = 200;

/**
 * A picker.
 *
 * @param options.label   What is chosen.
 * @param options.items   `{value, text, note}`.
 * @param options.chosen  Values.
 * @param options.several Whether more than one may be chosen.
 * @param options.pick    Called with the chosen values.
 */
export function picker({ label, items, chosen, several = false, pick, id }) {
  const opener = button(summary(items, chosen), () => (list.hidden ? open() : close()), {
    class: "picker-open",
    id,
    "aria-haspopup": "listbox",
    "aria-expanded": "false",
    title: chosen.join("\n"),
  });
  const search = el("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${label}` });
  const options = el("div", { role: "listbox", "aria-label": label, "aria-multiselectable": String(several) });
  const list = el("div", { class: "picker-list", hidden: true }, search, options);
  const node = el("div", { class: "picker" }, el("span", { class: "picker-label" }, label), opener, list);
  let picked = [...chosen];

  search.addEventListener("input", draw);
  node.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !list.hidden) {
      close();
      opener.focus();
      event.stopPropagation();
    }
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (list.hidden) open();
      else move(event.key === "ArrowDown" ? 1 : -1);
      event.preventDefault();
    }
  });
  node.addEventListener("focusout", (event) => {
    if (!list.hidden && event.relatedTarget && !node.contains(event.relatedTarget)) close();
  });
  return node;

  function open() {
    list.hidden = false;
    opener.setAttribute("aria-expanded", "true");
    picked = [...chosen];
    draw();
    search.focus();
    document.addEventListener("pointerdown", outside);
  }

  function close() {
    list.hidden = true;
    opener.setAttribute("aria-expanded", "false");
    document.removeEventListener("pointerdown", outside);
    if (several && picked.join("\n") !== chosen.join("\n")) pick(picked);
  }

  function outside(event) {
    if (!node.contains(event.target)) close();
  }

  function draw() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = items.filter((item) => words.every((one) => item.text.toLowerCase().includes(one)));
    const rest = found.length - MOST;
    const more = rest > 0 && el("p", { class: "note" }, `${rest} more: type to filter`);
    replace(options, found.slice(0, MOST).map(option), more, !found.length && el("p", { class: "note" }, "none"));
  }

  function option(item) {
    const on = picked.includes(item.value);
    const press = (event) => {
      if (!several) {
        close();
        pick([item.value]);
        return;
      }
      picked = on ? picked.filter((one) => one !== item.value) : [...picked, item.value];
      draw();
      options.querySelector(`[data-value="${CSS.escape(item.value)}"]`)?.focus();
      event.preventDefault();
    };
    return el(
      "button",
      { type: "button", role: "option", "aria-selected": String(on), "data-value": item.value, on: { click: press } },
      several && el("span", { class: "tick-mark", "aria-hidden": "true" }, on ? "☑" : "☐"),
      el("span", { class: "picker-text" }, item.text),
      item.note && el("span", { class: "note" }, item.note),
    );
  }

  function move(by) {
    const all = [search, ...options.querySelectorAll("[role=option]")];
    const at = all.indexOf(document.activeElement);
    all[Math.max(0, Math.min(all.length - 1, at + by))]?.focus();
  }
}

function summary(items, chosen) {
  if (!chosen.length) return "none";
  const text = items.find((item) => item.value === chosen[0])?.text ?? chosen[0];
  return chosen.length > 1 ? `${text} and ${chosen.length - 1} more` : text;
}

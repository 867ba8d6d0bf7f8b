// Creates elements from a tag, attributes and children. Texts become text nodes: data is never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element. `on` holds listeners, `style` custom properties or CSS, `true` and `false` switch an attribute. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Replace the children of an element. */
export function replace(parent, ...children) {
  parent.replaceChildren(...children.flat().filter(present));
  return parent;
}

/** A button with a text. */
export function button(text, press, attributes = {}) {
  return el("button", { type: "button", ...attributes, on: { click: press } }, text);
}

/** A control with its label around it. */
export function labelled(text, control, attributes = {}) {
  return el("label", { class: "field", ...attributes }, el("span", {}, text), control);
}

/** A drop-down list of `[value, text]`. */
export function choice(options, value, change, attributes = {}) {
  const list = el("select", { ...attributes, on: { change: () => change(list.value) } });
  for (const [key, text] of options) list.append(el("option", { value: key, selected: key === value }, text));
  return list;
}

/** A check box with its text. */
export function tick(text, checked, change) {
  const box = el("input", { type: "checkbox", checked, on: { change: () => change(box.checked) } });
  return el("label", { class: "tick" }, box, el("span", {}, text));
}

/** A section with a heading and a note beside it. */
export function section(title, note, ...children) {
  const head = el("div", { class: "section-head" }, el("h2", {}, title), note && el("p", { class: "note" }, note));
  return el("section", {}, head, ...children);
}

/** Call at most once within some milliseconds, with the last arguments. */
export function lazily(act, wait) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...values), wait);
  };
}

/** Download a text as a file. */
export function download(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = el("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter(present));
  return element;
}

function present(child) {
  return child !== null && child !== undefined && child !== false && child !== "";
}

// The state of the page (view, runs, file, range, filters), kept in the address so that links reproduce it.
//
// In TensorBoard the address is that of the outer page, `#tbmem&p.tbmem.view=live`; in a report it is the page's own.

import { outerWindow } from "./host.js";

const PREFIX = "p.tbmem.";
/** What the page is about: a change of it is an entry in the browser's history. */
const PLACES = ["view", "run", "runs", "file", "device", "part", "x", "before", "after", "before_file", "after_file"];
/** Visible and brushed ranges: changes that follow each other quickly, as of the wheel, are one entry. */
const RANGES = ["axis", "t0", "t1", "b0", "b1", "from", "to"];
const QUICK = 800;

const listeners = new Set();
let current = {};
let written = "";
let moved = -Infinity;

/** Read the address, and follow it when the user changes it. */
export function startState() {
  current = readAddress();
  outerWindow().addEventListener("hashchange", () => {
    const { hash } = outerWindow().location;
    if (hash === written || !isOurs()) return;
    const found = readAddress();
    // TensorBoard writes its own address when the user comes back to this tab: what was shown stays
    if (inTab() && !Object.keys(found).length) return writeAddress();
    written = hash;
    moved = -Infinity;
    tell(found);
  });
}

/** One value; an empty string if missing. */
export function get(key) {
  return current[key] ?? "";
}

/** Write a value that is not in the address yet, without an entry in the history. */
export function setDefault(key, value) {
  if (current[key]) return;
  current = { ...current, [key]: value };
  writeAddress();
}

/** Change values; `null` removes one. Listeners are called unless `quietly`. */
export function set(changes, quietly = false) {
  const next = { ...current };
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") delete next[key];
    else next[key] = String(value);
  }
  const before = current;
  current = next;
  writeAddress(isEntry(before, next));
  if (!quietly) for (const act of listeners) act(before, current);
}

/** Call with the values before and after each change. */
export function onChange(act) {
  listeners.add(act);
}

/** Whether a change is an entry in the history. */
function isEntry(before, after) {
  const differs = (key) => before[key] !== after[key];
  if (PLACES.some(differs)) moved = -Infinity;
  else if (!RANGES.some(differs)) return false;
  else {
    const isSame = performance.now() - moved < QUICK;
    moved = performance.now();
    return !isSame;
  }
  return true;
}

function tell(found) {
  const before = current;
  current = found;
  for (const act of listeners) act(before, current);
}

function inTab() {
  return outerWindow() !== window;
}

function parts() {
  return outerWindow().location.hash.replace(/^#/, "").split("&").filter(Boolean);
}

function isOurs() {
  return !inTab() || parts()[0] === "tbmem";
}

function readAddress() {
  const found = {};
  for (const part of parts()) {
    const at = part.indexOf("=");
    if (at < 0) continue;
    const key = decode(part.slice(0, at));
    if (inTab() && !key.startsWith(PREFIX)) continue;
    found[inTab() ? key.slice(PREFIX.length) : key] = decode(part.slice(at + 1));
  }
  return found;
}

function writeAddress(entry = false) {
  if (!isOurs()) return;
  const prefix = inTab() ? PREFIX : "";
  const own = Object.entries(current).map(([key, value]) => `${prefix}${key}=${encodeURIComponent(value)}`);
  const others = inTab() ? parts().filter((part) => !part.startsWith(PREFIX)) : [];
  written = `#${[...others, ...own].join("&")}`;
  const outer = outerWindow();
  if (written === outer.location.hash) return;
  try {
    if (entry) outer.history.pushState(outer.history.state, "", written);
    else outer.history.replaceState(outer.history.state, "", written);
  } catch {
    // a frame in a notebook's output has no address of its own
  }
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

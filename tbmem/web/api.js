// Fetches the answers of views, declared in tbmem/present/views.
//
// TensorBoard serves them from routes of the plugin; report.html contains them.

import { get } from "./state.js";

const RECORDING = ["run", "file", "device"];
const IDENTITY = {
  index: [],
  overview: ["run"],
  live: ["run"],
  ranks: ["run"],
  compare: ["before", "after"],
  sides: ["before", "after"],
  estimate: ["run", "file"],
  stack: ["run", "file", "row"],
};
const KEPT = 60;
/** Seconds after which the server answers with what it has read of a long log. */
const PATIENCE = 0.6;

const kept = new Map();
let inlined;

/** An error with a message for the user. */
export class ViewError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Whether the page contains the answers. */
export function isReport() {
  return inlinedAnswers() !== null;
}

/** Names of the views that the page has; `null` for all. */
export function viewsOfPage() {
  return inlinedAnswers()?.views ?? null;
}

/** The answer of a view; the same object for the same parameters until `forget` is called. */
export async function fetchView(view, params = {}) {
  if (isReport()) return fromPage(view, params);
  const address = addressOf(view, params);
  if (!kept.has(address)) {
    const answer = fetchJson(address);
    kept.set(address, answer);
    answer.then(() => (answer.isDone = true), () => kept.delete(address));
    if (kept.size > KEPT) kept.delete(kept.keys().next().value);
  }
  return kept.get(address);
}

/** The answer of a view as of now: TensorBoard is asked each time. */
export async function fetchNow(view, params) {
  return isReport() ? fromPage(view, params) : fetchJson(addressOf(view, params));
}

/** Clear the cache after data has changed; what is still being answered is new enough. */
export function forget() {
  for (const [address, answer] of kept) if (answer.isDone) kept.delete(address);
}

/** Seconds for which the server may read before it answers; `within` in the address sets them. */
export function patience() {
  return get("within") || PATIENCE;
}

/** What the server is reading, never from the cache. */
export function fetchWork() {
  return fetchJson("data/progress");
}

/** Cancel a piece of work of the server. */
export function cancelWork(work) {
  return fetchJson(`data/cancel?work=${work}`, { method: "POST" });
}

/** Send a file to the server, which reads it as a run of its own: `{run, view, file}`. */
export function sendFile(file) {
  const headers = { Accept: "application/json", "Content-Type": "application/octet-stream" };
  return fetchJson(`drop?${new URLSearchParams({ name: file.name })}`, { method: "POST", body: file, headers });
}

async function fetchJson(address, how = {}) {
  let reply;
  try {
    // without the browser's cache, as it holds a request back while another asks the same
    reply = await fetch(address, { headers: { Accept: "application/json" }, cache: "no-store", ...how });
  } catch {
    throw new ViewError(0, "TensorBoard does not answer. Is it still running?");
  }
  if (!reply.ok) throw new ViewError(reply.status, firstLine(await reply.text()) || `status ${reply.status}`);
  return reply.json();
}

function addressOf(view, params) {
  const query = new URLSearchParams();
  for (const [name, value] of pairs(params)) query.append(name, value);
  const text = query.toString();
  return text ? `data/${view}?${text}` : `data/${view}`;
}

function fromPage(view, params) {
  const answers = inlinedAnswers();
  const identity = IDENTITY[view] ?? RECORDING;
  const few = Object.fromEntries(Object.entries(params).filter(([name]) => identity.includes(name)));
  const { device: _device, ...fewer } = few;
  for (const asked of [params, few, fewer]) {
    let answer = answers[keyOf(view, asked)];
    if (typeof answer === "string") answer = answers[answer];
    if (answer !== undefined) return answer;
  }
  throw new ViewError(404, "This is not in the report. Open the run with tensorboard --logdir to see it.");
}

function keyOf(view, params) {
  const text = pairs(params)
    .map(([name, value]) => `${name}=${value}`)
    .join("&");
  return text ? `${view}?${text}` : view;
}

/** Names in alphabetical order, lists once for each value; what is not given is left out. */
function pairs(params) {
  const found = [];
  for (const name of Object.keys(params).sort()) {
    const value = params[name];
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") found.push([name, String(one)]);
    }
  }
  return found;
}

function inlinedAnswers() {
  if (inlined === undefined) {
    const place = document.getElementById("tbmem-data");
    inlined = place ? JSON.parse(place.textContent) : null;
  }
  return inlined;
}

function firstLine(text) {
  return text.trim().split("\n")[0].slice(0, 500);
}

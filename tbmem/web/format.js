// Formats quantities as text, equal to the Python side (tbmem/units.py).

const UNITS = [
  ["TiB", 2 ** 40],
  ["GiB", 2 ** 30],
  ["MiB", 2 ** 20],
  ["KiB", 2 ** 10],
];
const NONE = "–";

/** `45.12 GiB`, from 1000 on `1017 MiB`; whole bytes below 1 KiB. */
export function bytes(count) {
  if (!known(count)) return NONE;
  for (const [name, size] of UNITS) {
    if (Math.abs(count) >= (1023.5 / 1024) * size) return `${digits(count / size)} ${name}`;
  }
  return `${Math.round(count)} B`;
}

function digits(amount) {
  const text = fixed(amount, 2);
  return Math.abs(Number(text)) < 1000 ? text : fixed(amount, 0);
}

/** Bytes with a sign. */
export function signedBytes(count) {
  return known(count) ? `${count >= 0 ? "+" : "-"}${bytes(Math.abs(count))}` : NONE;
}

/** A relative change: `+4.8 %`, `26 times`, `new`, `gone`, `unchanged`. */
export function relativeChange(before, after) {
  if (before === after) return "unchanged";
  if (!before) return "new";
  if (!after) return "gone";
  if (after >= 10 * before) return `${whole(after / before)} times`;
  const text = percent((100 * (after - before)) / before);
  return text.startsWith("-") || text === percent(0) ? text : `+${text}`;
}

/** Name and bytes of the unit in which an axis up to `most` reads best. */
export function unitFor(most) {
  for (const [name, size] of UNITS) if (most >= size) return { name, bytes: size };
  return { name: "B", bytes: 1 };
}

/** `12 345`, with thin spaces. */
export function whole(count) {
  return known(count) ? (Math.round(count) + 0).toLocaleString("en-US").replaceAll(",", "\u202f") : NONE;
}

/** How much of a log has been read, by the share that is not. */
export function readingText(unread) {
  return `reading the log: ${percent(100 * (1 - unread), 0)}`;
}

/** `58.3 %`. */
export function percent(share, digits = 1) {
  return known(share) ? `${fixed(share, digits)} %` : NONE;
}

/** `4 min 10 s`. */
export function duration(seconds) {
  if (!known(seconds)) return NONE;
  if (Math.abs(seconds) < 1e-3) return `${(seconds * 1e6).toFixed(seconds ? 1 : 0)} µs`;
  if (Math.abs(seconds) < 1) return `${(seconds * 1e3).toFixed(1)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const rounded = Math.floor(seconds + 0.5);
  if (rounded < 3600) return `${Math.floor(rounded / 60)} min ${rounded % 60} s`;
  const minutes = Math.floor(seconds / 60 + 0.5);
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** `0.468 steps/s`, `12 346 steps/s`. */
export function speed(stepsPerSecond) {
  if (!known(stepsPerSecond)) return NONE;
  return `${stepsPerSecond >= 100 ? whole(stepsPerSecond) : Number(stepsPerSecond.toPrecision(3))} steps/s`;
}

/** Unix seconds as local date and time. */
export function moment(seconds) {
  if (!known(seconds)) return NONE;
  const date = new Date(seconds * 1000);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

let words = {};

/** Set the display names of categories and phases, from the answer `index`. */
export function setWords(found) {
  words = found ?? {};
}

/** `OPTIMIZER_STATE` as `Optimizer state`; names of the user's own rules stay. */
export function word(name) {
  if (!name) return NONE;
  return Object.hasOwn(words, name) ? words[name] : name;
}

/** `cuda:0` as `GPU 0`. */
export function deviceName(device) {
  const [kind, index] = String(device).split(":");
  const name = { cuda: "GPU", mps: "GPU" }[kind] ?? kind.toUpperCase();
  return index === undefined ? name : `${name} ${index}`;
}

/** A number of digits, rounded half to even as in Python; what rounds to nothing has no sign. */
export function fixed(value, digits) {
  const power = 10 ** digits;
  const low = Math.floor(Math.abs(value) * power);
  const even = Math.abs(value) * power - low === 0.5 && low % 2 === 0;
  const text = even ? ((Math.sign(value) * low) / power).toFixed(digits) : value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text;
}

/** Whether a value is a finite number. */
export function known(value) {
  return typeof value === "number" && Number.isFinite(value);
}

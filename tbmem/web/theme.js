// Colours of the page and its charts in light and dark mode.

import { isDark, onDarkChange } from "./host.js";

const LIGHT = {
  ink: "#1F2933",
  muted: "#5F6B76",
  grid: "#E6E9EC",
  paper: "#FFFFFF",
  rest: "#8A929A",
  capacity: "#1F2933",
  window: "rgba(86,180,233,0.20)",
};
const DARK = {
  ink: "#ECEFF1",
  muted: "#B0BAC2",
  grid: "#4A4F54",
  paper: "#303030",
  rest: "#868D94",
  capacity: "#ECEFF1",
  window: "rgba(86,180,233,0.16)",
};
// colours of present/palette.py that are another on the dark ground; tests/present/test_palette.py compares all of them
const FOR_DARK = new Map([
  ["#0072B2", "#3D9BD9"],
  ["#47B7E8", "#ADC9FF"],
  ["#183263", "#407B94"],
  ["#7377FF", "#763BEF"],
  ["#1C0070", "#8872FB"],
  ["#0C15F8", "#8AAFFF"],
  ["#7D0000", "#A55791"],
  ["#530025", "#E96B39"],
  ["#2AFD8F", "#E4C60C"],
  ["#002CBF", "#8C61C4"],
  ["#67D88A", "#85FC9E"],
  ["#396470", "#366D5C"],
  ["#5F6B76", "#A9B4BD"],
]);
const SERIES = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288", "#7A4A12"];
const SERIES_DARK = ["#56B4E9", "#F0804A", "#2FC79A", "#E39CC4", "#F2BC45", "#8FD0F5", "#A99BE8", "#C9986A"];

/** Follow the mode of TensorBoard, or otherwise of the system, and call back on changes. */
export function startTheme(changed) {
  const apply = () => {
    const mode = isDark() ? "dark" : "light";
    if (document.documentElement.dataset.theme === mode) return;
    document.documentElement.dataset.theme = mode;
    changed();
  };
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  onDarkChange(apply);
}

/** Colours of background, lines and text. */
export function colours() {
  return dark() ? DARK : LIGHT;
}

/** A colour from the server, brightened in dark mode. */
export function onGround(colour) {
  if (!dark() || !colour) return colour;
  return FOR_DARK.get(colour.toUpperCase()) ?? colour;
}

/** Colour of the n-th of several lines. */
export function lineColour(number) {
  const list = dark() ? SERIES_DARK : SERIES;
  return list[number % list.length];
}

/** Colour of a step by its place among the others: 0 is the first, 1 the last. */
export function stepColour(share) {
  const [first, last] = [[86, 180, 233], [213, 94, 0]];
  const parts = first.map((part, at) => Math.round(part + share * (last[at] - part)));
  return `rgb(${parts.join(",")})`;
}

function dark() {
  return document.documentElement.dataset.theme === "dark";
}

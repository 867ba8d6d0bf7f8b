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
// the palette of Okabe and Ito as in present/palette.py; some colours need a brighter variant in dark mode
const FOR_DARK = { "#0072B2": "#3D9BD9", "#183263": "#6D8FD0", "#1C0070": "#A78BFA", "#0C15F8": "#7C86FF" };
const FOR_DARK_TOO = { "#002CBF": "#6E8BFF", "#7D0000": "#D26A6A", "#530025": "#C2688F", "#5F6B76": "#A9B4BD" };
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
  const key = colour.toUpperCase();
  return FOR_DARK[key] ?? FOR_DARK_TOO[key] ?? colour;
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

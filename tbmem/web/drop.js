// Opens a file of the disk: dropped onto the page, or chosen with a button. The server reads it; a report has none.

import { forget, isReport, sendFile } from "./api.js";
import { button, el, replace } from "./dom.js";
import { bytes } from "./format.js";
import { workPanel } from "./working.js";

/** Limit of a file, as in tbmem/plugin/dropped.py. */
const LARGEST = 2 * 2 ** 30;
const KINDS = ".pickle,.pkl,.gz,.json,.npz,.jsonl";
const NO_SERVER = "This page cannot read files: drop it onto the Memory tab of TensorBoard (tensorboard --logdir DIR).";

/** A button, and a line that tells what is being opened; `show({run, view, file})` shows a file that was opened. */
export function fileOpener(show) {
  const told = el("div", { class: "dropped", id: "dropped", role: "status" });
  const open = async (files) => {
    for (const file of files) {
      replace(told, ...(await opened(file, told, show)));
    }
  };
  const input = el("input", { type: "file", id: "open-input", multiple: true, hidden: true, accept: KINDS });
  input.addEventListener("change", async () => {
    await open([...input.files]);
    input.value = "";
  });
  const press = button("Open a file…", () => input.click(), { id: "open-file", title: "A snapshot, trace or log; it can also be dropped onto the page" });
  listen((files) => (isReport() ? replace(told, el("span", {}, NO_SERVER), close(told)) : open(files)));
  return { button: !isReport() && el("span", {}, press, input), told };
}

/** The line on a file after it was sent: nothing if it is shown. */
async function opened(file, told, show) {
  if (file.size > LARGEST) {
    const limit = `at most ${bytes(LARGEST)} can be dropped: copy it into the log folder`;
    return [el("span", { role: "alert" }, `${file.name}: ${bytes(file.size)}, ${limit}`), close(told)];
  }
  replace(told, el("span", {}, `Opening ${file.name} (${bytes(file.size)}) …`), workPanel());
  try {
    const place = await sendFile(file);
    forget();
    show(place);
    return [];
  } catch (error) {
    return [el("span", { role: "alert" }, error.message), close(told)];
  }
}

function close(told) {
  return button("×", () => replace(told), { "aria-label": "Close" });
}

/** Files over the page would otherwise replace it. */
function listen(take) {
  const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  const over = (on) => document.documentElement.classList.toggle("dropping", on);
  document.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    over(true);
  });
  document.addEventListener("dragleave", (event) => event.relatedTarget === null && over(false));
  document.addEventListener("drop", (event) => {
    over(false);
    if (!hasFiles(event)) return;
    event.preventDefault();
    take([...event.dataTransfer.files]);
  });
}

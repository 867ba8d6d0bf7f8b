// The surrounding page: TensorBoard's message channel, dark mode and address; each is optional.

/** The window whose address bar the user sees, if it may be read: TensorBoard's, else this one. */
export function outerWindow() {
  try {
    if (window.parent !== window && window.parent.document.body) return window.parent;
  } catch {
    // another origin, as in a notebook
  }
  return window;
}

/** Whether this page is a tab of TensorBoard. */
export function isTab() {
  return window.parent !== window;
}

/** Whether TensorBoard, or otherwise the system, is in dark mode. */
export function isDark() {
  const outer = outerWindow();
  if (outer !== window) return outer.document.body.classList.contains("dark-mode");
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Call on each change of dark mode. */
export function onDarkChange(act) {
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", act);
  const outer = outerWindow();
  if (outer === window) return;
  new MutationObserver(act).observe(outer.document.body, { attributes: true, attributeFilter: ["class"] });
}

/** Whether the page is visible: TensorBoard hides a tab by style only. */
export function isVisible() {
  if (document.visibilityState === "hidden") return false;
  try {
    const frame = window.frameElement;
    return !frame || getComputedStyle(frame).visibility !== "hidden";
  } catch {
    return true;
  }
}

/** Call when the page becomes visible again. */
export function onVisible(act) {
  const look = () => isVisible() && act();
  document.addEventListener("visibilitychange", look);
  try {
    const frame = window.frameElement;
    for (let node = frame; node && node !== frame.ownerDocument.body; node = node.parentElement) {
      new MutationObserver(look).observe(node, { attributes: true, attributeFilter: ["style", "class", "hidden"] });
    }
  } catch {
    // another origin: the event above is all there is
  }
}

/** Call on TensorBoard's reload button and on its automatic reload. */
export function onReload(act) {
  if (!isTab()) return;
  const channel = new MessageChannel();
  channel.port1.onmessage = (event) => {
    const message = parse(event.data);
    if (!message || message.isReply) return;
    const reply = { type: message.type, id: message.id, payload: null, error: null, isReply: true };
    channel.port1.postMessage(JSON.stringify(reply));
    if (message.type === "experimental.DataReloaded" || message.type === "experimental.RunsChanged") act();
  };
  window.parent.postMessage("experimental.bootstrap", "*", [channel.port2]);
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

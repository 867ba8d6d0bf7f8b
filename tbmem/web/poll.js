// Asks again and again for what is new: less often while nothing comes, not at all while the page is hidden.

import { isVisible, onVisible } from "./host.js";
import { get } from "./state.js";

const FIRST = 2000;
const LONGEST = 30000;
const SLOWER = 1.5;
/** A question may take this part of the time. */
const SHARE = 0.3;

/** What an answer says that is followed by another without waiting. */
export const AT_ONCE = "at once";

let current = null;

export class Poller {
  /**
   * @param node  Polling ends once it has left the document.
   * @param ask   Asynchronous; says whether something came, `AT_ONCE` if there is more to ask for. `null` ends the polling
   *              until `now` is called.
   */
  constructor(node, ask) {
    this.node = node;
    this.ask = ask;
    // `poll` in the address: milliseconds between two questions
    this.first = Number(get("poll")) || FIRST;
    this.wait = this.first;
    if (!current) onVisible(() => current.now());
    current = this;
  }

  /** Ask after the usual time, or after some milliseconds. */
  start(wait = this.wait) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.turn(), wait);
  }

  /** Ask at once. */
  now() {
    clearTimeout(this.timer);
    this.wait = this.first;
    return this.turn();
  }

  async turn() {
    if (this.asking || current !== this || !this.node.isConnected || !isVisible()) return;
    this.asking = true;
    const begin = performance.now();
    const came = await this.ask().catch((error) => {
      if (error.status === undefined) console.error(error);
      return false;
    });
    this.asking = false;
    this.node.dataset.polls = String(Number(this.node.dataset.polls ?? 0) + 1);
    if (came === null) return;
    if (came === AT_ONCE) return this.start(0);
    const slower = came ? this.first : Math.min(SLOWER * this.wait, LONGEST);
    this.wait = Math.max(slower, Math.min((performance.now() - begin) / SHARE, LONGEST));
    this.start();
  }
}

// What the gateway does while one chats: the request that just ran, next to the conversation.

import { get } from "./api.js";
import { h } from "./dom.js";
import { turnAt } from "./moments.js";
import { Timeline } from "./timeline.js";
import { TurnView } from "./turn.js";

const AGAIN = 300;

export class OtherSide {
  #detail = null;
  #id = "";
  #chosen = null;
  #timer = 0;

  constructor() {
    this.timeline = new Timeline({
      onChoose: (turn) => {
        this.#chosen = turn;
        this.#draw();
      },
    });
    this.turn = new TurnView({ showsFrames: false });
    this.link = h("a", { class: "small", href: "#/requests", hidden: true }, "open the request");
    this.empty = h(
      "p",
      { class: "faint pad" },
      "What the model is told and what it writes appears here, as soon as you ask something.",
    );
    this.content = h(
      "div",
      { class: "stack", hidden: true },
      this.timeline.node,
      this.turn.wrote,
      this.turn.told,
    );
    this.node = h(
      "section",
      { class: "column other-side", "aria-label": "The other side" },
      h("h2", { class: "column-title" }, "The other side", h("span", { class: "spring" }), this.link),
      this.empty, this.content,
    );
  }

  clear() {
    clearTimeout(this.#timer);
    this.#id = "";
    this.content.hidden = this.link.hidden = true;
    this.empty.hidden = false;
  }

  /** Shows the request with this id, until it is over. */
  async follow(id) {
    clearTimeout(this.#timer);
    if (id !== this.#id) this.#chosen = null;
    this.#id = id;
    try {
      const detail = await get(`requests/${encodeURIComponent(id)}`);
      if (id !== this.#id) return;
      this.#detail = detail;
      this.#draw();
      if (detail.summary.is_finished) return;
    } catch {
      // It may not be there yet, and the conversation does not depend on it.
    }
    this.#timer = setTimeout(() => this.follow(id), AGAIN);
  }

  #draw() {
    const { attempts: turns, summary } = this.#detail;
    if (!turns.length) return;
    this.empty.hidden = true;
    this.content.hidden = this.link.hidden = false;
    this.link.setAttribute("href", `#/requests/${encodeURIComponent(summary.key)}`);
    const chosen = Math.min(this.#chosen ?? turnAt(turns, Infinity), turns.length - 1);
    this.timeline.update(
      this.#detail,
      {
        length: Math.max(summary.ms ?? 0, 0.1, ...turns.map((turn) => turn.end_ms ?? turn.start_ms)),
        time: Infinity,
        chosen,
      },
    );
    this.turn.update(turns[chosen], Infinity, `${summary.key}/${chosen}`);
  }
}

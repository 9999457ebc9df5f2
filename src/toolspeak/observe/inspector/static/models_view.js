// The model's view of the chat: the last request, next to the conversation.

import { get } from "./api.js";
import { AttemptView } from "./attempt.js";
import { h } from "./dom.js";
import { attemptAt } from "./replay.js";
import { Timeline } from "./timeline.js";

const POLL_MS = 300;

export class ModelView {
  #detail = null;
  #id = "";
  #selected = null;
  #timer = 0;

  constructor() {
    this.timeline = new Timeline({
      onSelect: (index) => {
        this.#selected = index;
        this.#draw();
      },
    });
    this.attempt = new AttemptView({ showsFrames: false });
    this.link = h("a", { class: "small", href: "#/requests", hidden: true }, "Open request");
    this.empty = h(
      "p",
      { class: "faint pad" },
      "The prompt and the reply of the model appear here once you send a message.",
    );
    this.content = h(
      "div",
      { class: "stack", hidden: true },
      this.timeline.node,
      this.attempt.replyPanel,
      this.attempt.requestPanel,
    );
    this.node = h(
      "section",
      { class: "column models-view", "aria-label": "Model's view" },
      h("h2", { class: "column-title" }, "Model's view", h("span", { class: "spring" }), this.link),
      this.empty, this.content,
    );
  }

  clear() {
    clearTimeout(this.#timer);
    this.#id = "";
    this.content.hidden = this.link.hidden = true;
    this.empty.hidden = false;
  }

  /** Shows the request with this ID, and updates it until it is finished. */
  async follow(id) {
    clearTimeout(this.#timer);
    if (id !== this.#id) this.#selected = null;
    this.#id = id;
    try {
      const detail = await get(`requests/${encodeURIComponent(id)}`);
      if (id !== this.#id) return;
      this.#detail = detail;
      this.#draw();
      if (detail.summary.is_finished) return;
    } catch {
      // It may not exist yet, and the conversation does not depend on it.
    }
    this.#timer = setTimeout(() => this.follow(id), POLL_MS);
  }

  #draw() {
    const { attempts, summary } = this.#detail;
    if (!attempts.length) return;
    this.empty.hidden = true;
    this.content.hidden = this.link.hidden = false;
    this.link.setAttribute("href", `#/requests/${encodeURIComponent(summary.key)}`);
    const selected = Math.min(this.#selected ?? attemptAt(attempts, Infinity), attempts.length - 1);
    this.timeline.update(
      this.#detail,
      {
        length: Math.max(summary.ms ?? 0, 0.1, ...attempts.map((one) => one.end_ms ?? one.start_ms)),
        time: Infinity,
        selected,
      },
    );
    this.attempt.update(attempts[selected], Infinity, `${summary.key}/${selected}`);
  }
}

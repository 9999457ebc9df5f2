// The two ends of a request: what the client sent, and what it received.

import { Body } from "./body.js";
import { h } from "./dom.js";
import { count, size, tokens } from "./format.js";
import { endAt } from "./moments.js";
import { breakable, column, copyButton, facts, isPhone, section, showOnce } from "./parts.js";
import { statusText } from "./rows.js";
import { TextPane } from "./textpane.js";
import { Understood, failureBox } from "./understood.js";

export class SentColumn {
  constructor() {
    this.facts = h("div");
    this.body = new Body("What the client sent");
    this.headers = h("div");
    this.node = column(
      "Client sent",
      h(
        "div",
        { class: "stack" },
        this.facts,
        section("Body", { open: !isPhone(), side: this.body.tools }, this.body.node).node,
        section("Headers", { open: false }, this.headers).node,
      ),
    );
  }

  update({ request: sent, summary }) {
    const { method, target } = sent;
    showOnce(this.facts, [method, target, sent.size, summary.tools], () =>
      facts([
        ["request", h("span", { class: "mono" }, `${method} `, breakable(target))],
        ["size", size(sent.size)],
        ["tools", summary.tools || ""],
      ]),
    );
    showOnce(this.headers, sent.headers, () => headers(sent.headers));
    this.body.update(sent.body);
  }
}

export class ReceivedColumn {
  #text = "";

  /** `onChoose(kind, index)` hears of a click on a call or a note. */
  constructor({ onChoose }) {
    this.facts = h("div");
    this.understood = new Understood({ onChoose });
    this.body = new TextPane({ label: "What the client received", isFrames: true });
    this.headers = h("div");
    const side = [copyButton("Copy", () => this.#text, { class: "quiet small" })];
    this.bodySection = section("As it was sent", { open: !isPhone(), side }, this.body.node);
    this.node = column(
      "Client received",
      h(
        "div",
        { class: "stack" },
        this.facts,
        section("Calls and notes", {}, this.understood.node).node,
        this.bodySection.node,
        section("Headers", { open: false }, this.headers).node,
      ),
    );
  }

  /** Another request comes. */
  reset() {
    this.body.reset();
  }

  update({ summary, response, calls, notes, usage, failure }) {
    const { status, is_finished: isOver } = summary;
    this.#text = response.body;
    showOnce(this.facts, [status, isOver, response.size, usage, failure], () => [
      failureBox(failure),
      facts([
        ["status", statusText(summary)],
        ["size", size(response.size)],
        ["tokens", tokens(usage)],
      ]),
    ]);
    showOnce(this.headers, response.headers, () => headers(response.headers));
    this.understood.update({ calls, notes }, isOver ? "No call." : "Nothing yet.");
    const { length } = response.chunks;
    this.bodySection.setHint(length ? count(length, "chunk") : "");
  }

  /** Shows what had come by then. */
  moveTo({ summary, response: { body, chunks } }, time) {
    this.body.follows = !summary.is_finished || time !== Infinity;
    this.body.update(body, [], endAt(chunks, "end", time, body, summary.ms));
  }
}

function headers(values) {
  const pairs = Object.entries(values).map(([name, value]) => [
    h("dt", null, name),
    h("dd", null, String(value)),
  ]);
  return h("dl", { class: "headers mono" }, pairs);
}

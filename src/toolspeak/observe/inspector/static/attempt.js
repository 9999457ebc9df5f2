// One attempt: the request to the model, its reply, and how that was parsed.

import { h, keyedList, setText } from "./dom.js";
import { count, tokens } from "./format.js";
import { renderLegend } from "./highlights.js";
import { BodyView } from "./json_view.js";
import { failureBox, ParsedReply } from "./parsed_reply.js";
import { countChunks, visibleLength } from "./replay.js";
import { TextPane } from "./text_pane.js";
import { isRetry } from "./timeline.js";
import { breakableUrl, copyButton, fieldList, isPhone, section, updateIfChanged } from "./widgets.js";

export class AttemptView {
  #attempt = null;
  #identity = "";

  constructor({ showsFrames = !isPhone() } = {}) {
    this.#buildRequest();
    this.#buildReply(showsFrames);
  }

  #buildRequest() {
    this.reason = h("p", { class: "reason" });
    this.plan = h("div", { class: "plan" });
    this.planSection = section("Plan", {}, this.reason, this.plan);
    this.messages = h("div", { class: "prompt" });
    this.drawMessages = keyedList(this.messages, (_message, at) => at, newMessage);
    this.promptSection = section("Prompt", { open: !isPhone() }, this.messages);
    this.body = new BodyView("Request body");
    this.bodySection = section(
      "Request body",
      { open: false, side: this.body.tools },
      this.body.node,
    );
    this.requestPanel = h(
      "div",
      { class: "stack", role: "tabpanel", id: "attempt-request", "aria-label": "Model request" },
      this.planSection.node,
      this.promptSection.node,
      this.bodySection.node,
    );
  }

  #buildReply(showsFrames) {
    this.text = new TextPane({ label: "Reply text" });
    this.legend = h("div", { class: "legend" });
    const copyText = copyButton("Copy", () => this.#attempt?.text ?? "", { class: "quiet small" });
    this.textSection = section("Reply text", { side: [copyText] }, this.legend, this.text.node);
    this.parsed = new ParsedReply({
      onSelect: (kind, index) => this.#revealMark(kind, index),
      onHover: (kind, index) => highlightMarks(this.text.node, kind, index),
    });
    this.outcome = h("p", { class: "outcome" });
    this.failure = h("div");
    this.ending = h("div");
    this.parsedSection = section(
      "Parsed reply",
      {},
      this.outcome,
      this.failure,
      this.parsed.node,
      this.ending,
    );
    this.frames = new TextPane({ label: "Raw response", isFrames: true });
    const copyFrames = copyButton("Copy", () => this.#attempt?.raw ?? "", { class: "quiet small" });
    this.framesSection = section(
      "Raw response",
      { open: showsFrames, side: [copyFrames] },
      this.frames.node,
    );
    this.text.node.addEventListener("click", (event) => this.#markClicked(event));
    linkHover(this.text.node, this.parsed);
    this.replyPanel = h(
      "div",
      { class: "stack", role: "tabpanel", id: "attempt-reply", "aria-label": "Model reply" },
      this.textSection.node,
      this.parsedSection.node,
      this.framesSection.node,
    );
  }

  #markClicked(event) {
    const mark = event.target.closest("mark[data-kind]");
    // A click that ends a text selection is not a navigation.
    if (!mark || !getSelection().isCollapsed) return;
    this.parsed.reveal(mark.dataset.kind, mark.dataset.index);
  }

  #revealMark(kind, index) {
    const span = this.#attempt.highlights.find((one) => one.kind === kind && one.index === index);
    if (span) this.text.reveal(span.start);
  }

  /** `identity` differs for each attempt. */
  update(attempt, time, identity) {
    if (identity !== this.#identity) for (const pane of [this.text, this.frames]) pane.reset();
    this.#identity = identity;
    this.#attempt = attempt;
    this.#drawRequest(attempt);
    this.#drawReply(attempt, time);
  }

  #drawRequest(attempt) {
    setText(this.reason, describeReason(attempt));
    this.reason.hidden = !attempt.reason_text;
    const { mode, dialect, reasons } = attempt.plan;
    this.planSection.setHint([
      mode,
      dialect && dialect !== mode ? dialect : "",
    ].filter((one) => one).join(" · "));
    const { model, upstream, wire, address, path, tools, retries } = attempt;
    updateIfChanged(this.plan, [reasons, model, upstream, wire, address, path, tools, retries], () => [
      reasons.length > 0 && h(
        "ul",
        { class: "reasons" },
        reasons.map((reason) => h("li", null, reason)),
      ),
      fieldList([
        ["model", h("span", { class: "mono" }, model)],
        ["upstream", `${upstream}, ${wire}`],
        ["address", h("span", { class: "mono" }, breakableUrl(address + path))],
        ["native tools", tools || ""],
        ["connection retries", retries || ""],
      ]),
    ]);
    this.promptSection.node.hidden = !attempt.prompt.length;
    this.bodySection.node.hidden = !attempt.body;
    this.promptSection.setHint(count(attempt.prompt.length, "message"));
    this.drawMessages(attempt.prompt);
    this.body.update(attempt.body);
  }

  #drawReply(attempt, time) {
    const whole = attempt.end_ms ?? attempt.first_byte_ms;
    const isOver = attempt.end_ms !== null;
    for (const pane of [this.text, this.frames]) setText(
      pane.empty,
      isOver && time === Infinity ? "Empty." : "Waiting…",
    );
    this.framesSection.node.hidden = isOver && !attempt.raw;
    const end = visibleLength(attempt.chunks, "end", time, attempt.text, whole);
    const rawEnd = visibleLength(attempt.chunks, "raw_end", time, attempt.raw, whole);
    this.text.follows = this.frames.follows = !isOver || time !== Infinity;
    this.text.update(attempt.text, attempt.highlights, end);
    this.frames.update(attempt.raw, [], rawEnd);
    const isNow = time === Infinity;
    const { length } = attempt.chunks;
    const chunk = `chunk ${countChunks(attempt.chunks, time)} of ${length}`;
    this.textSection.setHint(isNow || !length ? "" : chunk);
    this.framesSection.setHint([
      attempt.status || "",
      attempt.chunks.length ? count(attempt.chunks.length, "chunk") : "",
    ].filter((one) => one).join(", "));
    updateIfChanged(this.legend, attempt.highlights.map((span) => span.kind), () => renderLegend(attempt.highlights));
    this.parsed.update(attempt, isOver ? "No calls or notes." : "Waiting…");
    setText(this.outcome, attempt.outcome_text || attempt.outcome);
    this.outcome.hidden = !this.outcome.textContent;
    this.parsedSection.setHint(attempt.outcome);
    updateIfChanged(this.failure, attempt.failure, () => failureBox(attempt.failure));
    updateIfChanged(this.ending, [attempt.stop_reason, attempt.usage], () =>
      fieldList([["stop reason", attempt.stop_reason], ["tokens", tokens(attempt.usage)]]),
    );
  }
}

function newMessage(message) {
  const pane = new TextPane({ label: `${message.role} message`, empty: "Empty." });
  const role = h("span", { class: "role" });
  const node = h("div", { class: "message" }, role, pane.node);
  const update = ({ role: name, text }) => {
    setText(role, name);
    node.dataset.role = name;
    pane.update(text);
  };
  return { node, update };
}

function describeReason({ reason, reason_text: text }) {
  if (!text) return "";
  if (isRetry(reason)) return `Retry. Previous reply: ${text}.`;
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

export function highlightMarks(element, kind, index) {
  for (const mark of element.querySelectorAll("mark.active")) mark.classList.remove("active");
  if (index === null) return;
  const selector = `mark[data-kind="${CSS.escape(kind)}"][data-index="${Number(index)}"]`;
  for (const mark of element.querySelectorAll(selector)) mark.classList.add("active");
}

/** Highlights the card of the mark under the pointer. */
export function linkHover(element, parsed) {
  element.addEventListener("pointerover", (event) => {
    const mark = event.target.closest("mark[data-kind]");
    parsed.activate(mark?.dataset.kind ?? "", mark ? mark.dataset.index : null);
  });
  element.addEventListener("pointerleave", () => parsed.activate("", null));
}

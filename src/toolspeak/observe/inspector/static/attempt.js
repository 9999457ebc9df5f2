// One attempt: the request to the model, its reply, and how that was parsed.

import { h, keyedList, setText } from "./dom.js";
import { count, joinPresent, tokens } from "./format.js";
import { BodyView } from "./json_view.js";
import { failureBox, HighlightedReply } from "./parsed_reply.js";
import { TextPane } from "./text_pane.js";
import { countChunks, visibleLength } from "./timeline.js";
import { fieldList, isPhone, section, setHint, updateIfChanged } from "./widgets.js";

export class AttemptView {
  #identity = "";

  constructor({ showsFrames = !isPhone() } = {}) {
    this.#buildRequest();
    this.#buildReply(showsFrames);
  }

  #buildRequest() {
    this.reason = h("p.reason");
    this.reasons = h("ul.reasons");
    this.plan = h("div");
    this.planSection = section("Plan", {}, this.reason, this.reasons, this.plan);
    this.messages = h("div.prompt");
    this.drawMessages = keyedList(this.messages, (_message, at) => at, newMessage);
    this.promptSection = section("Prompt", { open: !isPhone() }, this.messages);
    this.body = new BodyView("Request body");
    this.bodySection = section(
      "Request body",
      { open: false, side: this.body.tools },
      this.body.node,
    );
    this.requestPanel = h(
      "div.stack",
      { role: "tabpanel", id: "attempt-request", "aria-label": "Model request" },
      this.planSection,
      this.promptSection,
      this.bodySection,
    );
  }

  #buildReply(showsFrames) {
    this.reply = new HighlightedReply({ label: "Reply text" });
    const { legend, parsed, text } = this.reply;
    this.textSection = section("Reply text", { side: [text.copy] }, legend, text.node);
    this.outcome = h("p.outcome");
    this.failure = h("div");
    this.ending = h("div");
    this.parsedSection = section(
      "Parsed reply",
      {},
      this.outcome,
      this.failure,
      parsed.node,
      this.ending,
    );
    this.frames = new TextPane({ label: "Raw response", isFrames: true });
    this.framesSection = section(
      "Raw response",
      { open: showsFrames, side: [this.frames.copy] },
      this.frames.node,
    );
    this.replyPanel = h(
      "div.stack",
      { role: "tabpanel", id: "attempt-reply", "aria-label": "Model reply" },
      this.textSection,
      this.parsedSection,
      this.framesSection,
    );
  }

  /** `identity` differs for each attempt. */
  update(attempt, time, identity) {
    if (identity !== this.#identity) {
      this.reply.text.reset();
      this.frames.reset();
    }
    this.#identity = identity;
    this.#drawRequest(attempt);
    this.#drawReply(attempt, time);
  }

  #drawRequest(attempt) {
    setText(this.reason, describeReason(attempt));
    this.reason.hidden = !attempt.reason_text;
    const { mode, dialect, reasons } = attempt.plan;
    setHint(this.planSection, joinPresent(" · ", mode, dialect !== mode && dialect));
    updateIfChanged(this.reasons, reasons, (all) => all.map((reason) => h("li", reason)));
    updateIfChanged(this.plan, [
      ["model", attempt.model, "mono"],
      ["upstream", `${attempt.upstream}, ${attempt.wire}`],
      ["address", attempt.address + attempt.path, "mono"],
      ["native tools", attempt.tools || ""],
      ["resends", attempt.resends || ""],
    ], fieldList);
    this.promptSection.hidden = !attempt.prompt.length;
    this.bodySection.hidden = !attempt.body;
    setHint(this.promptSection, count(attempt.prompt.length, "message"));
    this.drawMessages(attempt.prompt);
    this.body.update(attempt.body);
  }

  #drawReply(attempt, time) {
    const whole = attempt.end_ms ?? attempt.first_byte_ms;
    const isOver = attempt.end_ms !== null;
    for (const pane of [this.reply.text, this.frames]) {
      pane.follows = !isOver || time !== Infinity;
      setText(pane.empty, isOver && time === Infinity ? "Empty." : "Waiting…");
    }
    this.framesSection.hidden = isOver && !attempt.raw;
    const end = visibleLength(attempt.chunks, "end", time, attempt.text, whole);
    const rawEnd = visibleLength(attempt.chunks, "raw_end", time, attempt.raw, whole);
    this.reply.update(attempt.text, attempt, isOver ? "No calls or notes." : "Waiting…", end);
    this.frames.update(attempt.raw, [], rawEnd);
    const isNow = time === Infinity;
    const { length } = attempt.chunks;
    const chunk = `chunk ${countChunks(attempt.chunks, time)} of ${length}`;
    setHint(this.textSection, isNow || !length ? "" : chunk);
    const chunks = length && count(length, "chunk");
    setHint(this.framesSection, joinPresent(", ", attempt.status, chunks));
    setText(this.outcome, attempt.outcome_text || attempt.outcome);
    this.outcome.hidden = !this.outcome.textContent;
    setHint(this.parsedSection, attempt.outcome);
    updateIfChanged(this.failure, attempt.failure, failureBox);
    updateIfChanged(this.ending, [
      ["stop reason", attempt.stop_reason],
      ["tokens", tokens(attempt.usage)],
    ], fieldList);
  }
}

function newMessage(message) {
  const pane = new TextPane({ label: `${message.role} message`, empty: "Empty." });
  const role = h("span.role");
  const node = h("div.message", role, pane.node);
  const update = ({ role: name, text }) => {
    setText(role, name);
    node.dataset.role = name;
    pane.update(text);
  };
  return { node, update };
}

function describeReason({ is_retry: isRetry, reason_text: text }) {
  if (!text) return "";
  if (isRetry) return `Retry. Previous reply: ${text}.`;
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

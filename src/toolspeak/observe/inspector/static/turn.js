// One question to a model and its answer: how it was asked, what it wrote, and what that came to.

import { Body } from "./body.js";
import { h, keyed, setText } from "./dom.js";
import { count, tokens } from "./format.js";
import { legend } from "./highlight.js";
import { chunksUntil, endAt } from "./moments.js";
import { breakable, copyButton, facts, isPhone, section, showOnce } from "./parts.js";
import { TextPane } from "./textpane.js";
import { isAgain } from "./timeline.js";
import { Understood, failureBox } from "./understood.js";

export class TurnView {
  #turn = null;
  #identity = "";

  constructor({ showsFrames = !isPhone() } = {}) {
    this.#buildTold();
    this.#buildWrote(showsFrames);
  }

  // How it was asked.

  #buildTold() {
    this.why = h("p", { class: "why" });
    this.plan = h("div", { class: "plan" });
    this.planSection = section("Plan", {}, this.why, this.plan);
    this.messages = h("div", { class: "prompt" });
    this.drawMessages = keyed(this.messages, (_message, at) => at, newMessage);
    this.promptSection = section("Prompt, as the model got it", { open: !isPhone() }, this.messages);
    this.body = new Body("What was sent to the model");
    this.bodySection = section(
      "All that was sent",
      { open: false, side: this.body.tools },
      this.body.node,
    );
    this.told = h(
      "div",
      { class: "stack", role: "tabpanel", id: "turn-told", "aria-label": "How it was asked" },
      this.planSection.node,
      this.promptSection.node,
      this.bodySection.node,
    );
  }

  // What it wrote.

  #buildWrote(showsFrames) {
    this.text = new TextPane({ label: "What the model wrote" });
    this.legend = h("div", { class: "legend" });
    const copyText = copyButton("Copy", () => this.#turn?.text ?? "", { class: "quiet small" });
    this.textSection = section("Text", { side: [copyText] }, this.legend, this.text.node);
    this.understood = new Understood({
      onChoose: (kind, index) => this.#revealMark(kind, index),
      onHover: (kind, index) => lightMarks(this.text.node, kind, index),
    });
    this.outcome = h("p", { class: "outcome" });
    this.failure = h("div");
    this.ending = h("div");
    this.understoodSection = section(
      "Understood as",
      {},
      this.outcome,
      this.failure,
      this.understood.node,
      this.ending,
    );
    this.frames = new TextPane({ label: "The reply as it came", isFrames: true });
    const copyFrames = copyButton("Copy", () => this.#turn?.raw ?? "", { class: "quiet small" });
    this.framesSection = section(
      "As it came",
      { open: showsFrames, side: [copyFrames] },
      this.frames.node,
    );
    this.text.node.addEventListener("click", (event) => this.#markClicked(event));
    linkHover(this.text.node, this.understood);
    this.wrote = h(
      "div",
      { class: "stack", role: "tabpanel", id: "turn-wrote", "aria-label": "What came back" },
      this.textSection.node,
      this.understoodSection.node,
      this.framesSection.node,
    );
  }

  #markClicked(event) {
    const mark = event.target.closest("mark[data-kind]");
    // Who selects text does not want to go anywhere.
    if (!mark || !getSelection().isCollapsed) return;
    this.understood.reveal(mark.dataset.kind, mark.dataset.index);
  }

  #revealMark(kind, index) {
    const span = this.#turn.highlights.find((one) => one.kind === kind && one.index === index);
    if (span) this.text.reveal(span.start);
  }

  /** `identity` tells one turn from another. */
  update(turn, time, identity) {
    if (identity !== this.#identity) for (const pane of [this.text, this.frames]) pane.reset();
    this.#identity = identity;
    this.#turn = turn;
    this.#drawTold(turn);
    this.#drawWrote(turn, time);
  }

  #drawTold(turn) {
    setText(this.why, whyOf(turn));
    this.why.hidden = !turn.reason_text;
    const { mode, dialect, reasons } = turn.plan;
    this.planSection.setHint([
      mode,
      dialect && dialect !== mode ? dialect : "",
    ].filter((one) => one).join(" · "));
    const { model, upstream, wire, address, path, tools, retries } = turn;
    showOnce(this.plan, [reasons, model, upstream, wire, address, path, tools, retries], () => [
      reasons.length > 0 && h(
        "ul",
        { class: "reasons" },
        reasons.map((reason) => h("li", null, reason)),
      ),
      facts([
        ["model", h("span", { class: "mono" }, model)],
        ["upstream", `${upstream}, ${wire}`],
        ["address", h("span", { class: "mono" }, breakable(address + path))],
        ["tools", tools ? `${tools} by its API` : ""],
        ["sent again", retries ? `${count(retries, "time")}, after problems with the connection` : ""],
      ]),
    ]);
    this.promptSection.node.hidden = !turn.prompt.length;
    this.bodySection.node.hidden = !turn.body;
    this.promptSection.setHint(count(turn.prompt.length, "message"));
    this.drawMessages(turn.prompt);
    this.body.update(turn.body);
  }

  #drawWrote(turn, time) {
    const whole = turn.end_ms ?? turn.first_byte_ms;
    const isOver = turn.end_ms !== null;
    for (const pane of [this.text, this.frames]) setText(
      pane.empty,
      isOver && time === Infinity ? "Nothing." : "Nothing yet.",
    );
    this.framesSection.node.hidden = isOver && !turn.raw;
    const end = endAt(turn.chunks, "end", time, turn.text, whole);
    const rawEnd = endAt(turn.chunks, "raw_end", time, turn.raw, whole);
    this.text.follows = this.frames.follows = !isOver || time !== Infinity;
    this.text.update(turn.text, turn.highlights, end);
    this.frames.update(turn.raw, [], rawEnd);
    const isNow = time === Infinity;
    const { length } = turn.chunks;
    const chunk = `chunk ${chunksUntil(turn.chunks, time)} of ${length}`;
    this.textSection.setHint(isNow || !length ? "" : chunk);
    this.framesSection.setHint([
      turn.status || "",
      turn.chunks.length ? count(turn.chunks.length, "chunk") : "",
    ].filter((one) => one).join(", "));
    showOnce(this.legend, turn.highlights.map((span) => span.kind), () => legend(turn.highlights));
    this.understood.update(turn, isOver ? "No call, and nothing to note." : "Nothing yet.");
    setText(this.outcome, turn.outcome_text || turn.outcome);
    this.outcome.hidden = !this.outcome.textContent;
    this.understoodSection.setHint(turn.outcome);
    showOnce(this.failure, turn.failure, () => failureBox(turn.failure));
    showOnce(this.ending, [turn.stop_reason, turn.usage], () =>
      facts([["ended with", turn.stop_reason], ["tokens", tokens(turn.usage)]]),
    );
  }
}

function newMessage(message) {
  const pane = new TextPane({ label: `${message.role} message`, empty: "Nothing." });
  const role = h("span", { class: "role" });
  const node = h("div", { class: "message" }, role, pane.node);
  const update = ({ role: name, text }) => {
    setText(role, name);
    node.dataset.role = name;
    pane.update(text);
  };
  return { node, update };
}

function whyOf({ reason: why, reason_text: text }) {
  if (!text) return "";
  if (isAgain(why)) return `Asked again, because the reply was ${text}.`;
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

export function lightMarks(element, kind, index) {
  for (const lit of element.querySelectorAll("mark.lit")) lit.classList.remove("lit");
  if (index === null) return;
  const selector = `mark[data-kind="${CSS.escape(kind)}"][data-index="${Number(index)}"]`;
  for (const mark of element.querySelectorAll(selector)) mark.classList.add("lit");
}

/** Hovering over a mark lights up its card. */
export function linkHover(element, understood) {
  element.addEventListener("pointerover", (event) => {
    const mark = event.target.closest("mark[data-kind]");
    understood.light(mark?.dataset.kind ?? "", mark ? mark.dataset.index : null);
  });
  element.addEventListener("pointerleave", () => understood.light("", null));
}

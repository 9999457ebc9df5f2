// A talk with a model that has the sample tools, and the other side of it.

import { add, h, setText } from "./dom.js";
import { tryParse } from "./json.js";
import { OtherSide } from "./other_side.js";
import { button } from "./parts.js";
import { Samples } from "./samples.js";
import { ask } from "./talk.js";
import { callCard } from "./understood.js";

/** So often calls are answered by themselves, before one has to look. */
const MOST_ROUNDS = 6;

export class ChatView {
  #messages = [];
  #open = new Map();
  #abort = null;
  #rounds = 0;

  constructor(about) {
    this.samples = new Samples(about.samples);
    this.side = new OtherSide();
    this.#build(about);
    this.#drawState();
  }

  #build(about) {
    this.model = h(
      "select",
      { "aria-label": "Model" },
      about.models.map((model) => h(
        "option",
        { value: model, selected: model === about.default },
        model,
      )),
    );
    this.auto = h("input", { type: "checkbox", checked: true });
    this.talk = h("div", { class: "talk", role: "log", "aria-label": "Conversation", tabindex: "0" });
    this.hello = h(
      "div",
      { class: "hello faint" },
      "Ask something that needs a tool, such as ",
      this.#suggestion("What is the weather in Oslo?"),
    );
    this.talk.append(this.hello);
    this.input = h("textarea", {
      class: "input", rows: "2", "aria-label": "Your message",
      placeholder: "Message (Enter sends, Shift+Enter makes a line)",
      on: { keydown: (event) => this.#typed(event) },
    });
    this.send = button("Send", () => this.#say(), { class: "primary" });
    this.stop = button("Stop", () => this.#abort?.abort(), { hidden: true });
    this.node = h(
      "section",
      { class: "view chat", "aria-label": "Chat" },
      h(
        "div",
        { class: "toolbar" },
        this.model, h("label", { class: "labelled" }, this.auto, "run tools by themselves"),
        h("span", { class: "spring" }), button("New chat", () => this.#clear()),
      ),
      h(
        "div",
        { class: "columns" },
        h(
          "section",
          { class: "column conversation", "aria-label": "Conversation" },
          this.samples.node,
          this.talk,
          h("div", { class: "composer" }, this.input, this.send, this.stop),
        ),
        this.side.node,
      ),
    );
  }

  #suggestion(text) {
    return button(text, () => {
      this.input.value = text;
      this.#say();
    }, { class: "link" });
  }

  enter() {
    this.input.focus({ preventScroll: true });
  }

  #typed(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.#say();
  }

  #clear() {
    this.#abort?.abort();
    this.#messages = [];
    this.#open.clear();
    this.talk.replaceChildren(this.hello);
    this.side.clear();
    this.#drawState();
  }

  #drawState() {
    const isAsking = Boolean(this.#abort);
    this.stop.hidden = !isAsking;
    this.send.hidden = isAsking;
    this.send.disabled = this.#open.size > 0;
  }

  #add(role, ...children) {
    const node = add(
      h("div", { class: `said-by said-by-${role}` }, h("span", { class: "role" }, role)),
      children,
    );
    this.#following(() => this.talk.append(node));
    return node;
  }

  /** Keeps the end in sight, for those who have not scrolled away from it. */
  #following(change) {
    const isAtEnd = this.talk.scrollHeight - this.talk.scrollTop - this.talk.clientHeight < 60;
    change();
    if (isAtEnd) this.talk.scrollTop = this.talk.scrollHeight;
  }

  // One turn after another.

  #say() {
    const text = this.input.value.trim();
    if (!text || this.#abort || this.#open.size) return;
    this.input.value = "";
    this.hello.remove();
    this.#messages.push({ role: "user", content: text });
    this.#add("user", h("div", { class: "said-text" }, text));
    this.#rounds = 0;
    this.#ask();
  }

  async #ask() {
    const abort = (this.#abort = new AbortController());
    const messages = this.#messages;
    this.#drawState();
    const text = h("div", { class: "said-text", "aria-busy": "true" });
    const node = this.#add("assistant", text);
    try {
      const message = await ask({
        model: this.model.value,
        messages,
        tools: this.samples.tools(),
        signal: abort.signal,
        tell: (piece) => this.#hear(piece, node, text),
      });
      messages.push(message);
      this.#abort = null;
      this.#takeCalls(node, message.tool_calls ?? []);
    } catch (problem) {
      // What was said until then stays, for the model as for the reader.
      if (text.textContent) messages.push({ role: "assistant", content: text.textContent });
      const why = abort.signal.aborted ? "Stopped." : problem.message;
      this.#following(() => node.append(h("p", { class: "problem" }, why)));
    } finally {
      text.removeAttribute("aria-busy");
      if (this.#abort === abort) this.#abort = null;
      this.#drawState();
    }
  }

  #hear({ id, text }, node, element) {
    if (id) this.#linkToSide(node, id);
    if (text !== undefined) this.#following(() => setText(element, text));
  }

  #linkToSide(node, id) {
    const show = button("its other side", () => this.side.follow(id), { class: "link small" });
    node.firstChild.append(" · ", show);
    this.side.follow(id);
  }

  // Calls, and what they give.

  #takeCalls(node, calls) {
    this.#following(() => node.append(...calls.map((call) => this.#call(call))));
    if (!calls.length || !this.auto.checked) return;
    if (this.#rounds >= MOST_ROUNDS) {
      node.append(h(
        "p",
        { class: "faint small" },
        `${MOST_ROUNDS} rounds of calls ran by themselves: from here on it is yours.`,
      ));
      return;
    }
    this.#rounds += 1;
    for (const give of [...this.#open.values()]) give();
  }

  #call({ id, function: { name, arguments: text } }) {
    const value = tryParse(text)?.value ?? text;
    const area = h(
      "textarea",
      {
        class: "input mono",
        rows: "2",
        "aria-label": "What the tool gives",
        spellcheck: "false",
        value: this.samples.resultOf(name),
      },
    );
    const run = button("Run sample", () => give(), { class: "primary" });
    const give = () => {
      area.disabled = true;
      run.remove();
      this.#give(id, area.value);
    };
    this.#open.set(id, give);
    return h(
      "div",
      { class: "made-call" },
      callCard({ id, name, arguments: value, dialect: null }),
      h("div", { class: "result" }, h("span", { class: "faint small" }, "result"), area, run),
    );
  }

  #give(id, content) {
    this.#open.delete(id);
    this.#messages.push({ role: "tool", tool_call_id: id, content });
    this.#drawState();
    if (!this.#open.size) this.#ask();
  }
}

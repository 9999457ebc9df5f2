// A chat with a model that has sample tools, next to the model's view of it.

import { get, readServerSentEvents, request } from "./api.js";
import { AttemptView } from "./attempt.js";
import { appendChildren, h, setText } from "./dom.js";
import { tryParse } from "./json_view.js";
import { callCard } from "./parsed_reply.js";
import { attemptAt, eventTimes, Timeline, totalDuration } from "./timeline.js";
import { button, codeField, menu, section, setHint } from "./widgets.js";

/** Rounds of calls that are answered automatically before the user must confirm. */
const MAX_AUTO_ROUNDS = 6;
const POLL_MS = 300;

export class ChatView {
  #messages = [];
  #open = new Map();
  #abort = null;
  #rounds = 0;

  constructor(about) {
    this.samples = new SampleTools(about.samples);
    this.modelView = new ModelView();
    this.#build(about);
    this.#drawState();
  }

  #build(about) {
    this.model = menu("Model", about.models.map((model) => [model]));
    if (about.default_model) this.model.value = about.default_model;
    this.auto = h("input", { type: "checkbox", checked: true });
    this.chatLog = h("div.chat-log", { role: "log", "aria-label": "Conversation", tabindex: "0" });
    this.intro = h(
      "div.chat-intro.faint",
      "Ask something that needs a tool, for example: ",
      this.#suggestion("What is the weather in Oslo?"),
    );
    this.chatLog.append(this.intro);
    this.input = h("textarea.input", {
      rows: "2", "aria-label": "Your message",
      placeholder: "Message (Enter to send, Shift+Enter for a new line)",
      on: { keydown: (event) => this.#typed(event) },
    });
    this.send = button("Send", () => this.#sendMessage(), { class: "primary" });
    this.stop = button("Stop", () => this.#abort?.abort(), { hidden: true });
    this.node = h(
      "section.view.chat",
      { "aria-label": "Chat" },
      h(
        "div.toolbar",
        this.model, h("label.labelled", this.auto, "Run tools automatically"),
        h("span.spring"), button("New chat", () => this.#clear()),
      ),
      h(
        "div.columns",
        h(
          "section.column.conversation",
          { "aria-label": "Conversation" },
          this.samples.node,
          this.chatLog,
          h("div.composer", this.input, this.send, this.stop),
        ),
        this.modelView.node,
      ),
    );
  }

  #suggestion(text) {
    return button(text, () => {
      this.input.value = text;
      this.#sendMessage();
    }, { class: "link" });
  }

  enter() {
    this.input.focus({ preventScroll: true });
  }

  #typed(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.#sendMessage();
  }

  #clear() {
    this.#abort?.abort();
    this.#messages = [];
    this.#open.clear();
    this.chatLog.replaceChildren(this.intro);
    this.modelView.clear();
    this.#drawState();
  }

  #drawState() {
    const isAsking = Boolean(this.#abort);
    this.stop.hidden = !isAsking;
    this.send.hidden = isAsking;
    this.send.disabled = this.#open.size > 0;
  }

  #add(role, ...children) {
    const node = appendChildren(
      h("div", { class: `chat-message chat-message-${role}` }, h("span.role", role)),
      children,
    );
    this.#keepScrolledToEnd(() => this.chatLog.append(node));
    return node;
  }

  /** Keeps the log scrolled to its end, unless the user has scrolled away. */
  #keepScrolledToEnd(change) {
    const isAtEnd = this.chatLog.scrollHeight - this.chatLog.scrollTop - this.chatLog.clientHeight < 60;
    change();
    if (isAtEnd) this.chatLog.scrollTop = this.chatLog.scrollHeight;
  }

  #sendMessage() {
    const text = this.input.value.trim();
    if (!text || this.#abort || this.#open.size) return;
    this.input.value = "";
    this.intro.remove();
    this.#messages.push({ role: "user", content: text });
    this.#add("user", h("div.chat-text", text));
    this.#rounds = 0;
    this.#ask();
  }

  async #ask() {
    const abort = (this.#abort = new AbortController());
    const messages = this.#messages;
    this.#drawState();
    const text = h("div.chat-text", { "aria-busy": "true" });
    const node = this.#add("assistant", text);
    try {
      const message = await requestChat({
        model: this.model.value,
        messages,
        tools: this.samples.tools(),
        signal: abort.signal,
        onDelta: (piece) => this.#receive(piece, node, text),
      });
      messages.push(message);
      this.#abort = null;
      this.#showCalls(node, message.tool_calls ?? []);
    } catch (problem) {
      // Keep the partial reply, for the model and for the reader.
      if (text.textContent) messages.push({ role: "assistant", content: text.textContent });
      const why = abort.signal.aborted ? "Stopped." : problem.message;
      this.#keepScrolledToEnd(() => node.append(h("p.problem", why)));
    } finally {
      text.removeAttribute("aria-busy");
      if (this.#abort === abort) this.#abort = null;
      this.#drawState();
    }
  }

  #receive({ id, text }, node, element) {
    if (id) this.#linkToModelView(node, id);
    if (text !== undefined) this.#keepScrolledToEnd(() => setText(element, text));
  }

  #linkToModelView(node, id) {
    const show = button("Model's view", () => this.modelView.follow(id), { class: "link small" });
    node.firstChild.append(" · ", show);
    this.modelView.follow(id);
  }

  #showCalls(node, calls) {
    this.#keepScrolledToEnd(() => node.append(...calls.map((call) => this.#call(call))));
    if (!calls.length || !this.auto.checked) return;
    if (this.#rounds >= MAX_AUTO_ROUNDS) {
      node.append(h(
        "p.faint.small",
        `${MAX_AUTO_ROUNDS} rounds of tool calls ran automatically. Check the results and send them to continue.`,
      ));
      return;
    }
    this.#rounds += 1;
    for (const submit of [...this.#open.values()]) submit();
  }

  #call({ id, function: { name, arguments: text } }) {
    const value = tryParse(text)?.value ?? text;
    const area = codeField("Tool result", { rows: "2", value: this.samples.resultOf(name) });
    const run = button("Send result", () => submit(), { class: "primary" });
    const submit = () => {
      area.disabled = true;
      run.remove();
      this.#submitResult(id, area.value);
    };
    this.#open.set(id, submit);
    return h(
      "div.chat-call",
      callCard({ id, name, arguments: value, dialect: null }),
      h("div.result", h("span.faint.small", "Result"), area, run),
    );
  }

  #submitResult(id, content) {
    this.#open.delete(id);
    this.#messages.push({ role: "tool", tool_call_id: id, content });
    this.#drawState();
    if (!this.#open.size) this.#ask();
  }
}

class SampleTools {
  #rows;

  constructor(samples) {
    this.#rows = samples.map(({ tool, result }) => {
      const { name, description } = tool.function;
      const box = h("input", { type: "checkbox", checked: true });
      const area = codeField(`Result of ${name}`, { rows: "2", value: result });
      const node = h(
        "div.sample",
        h(
          "label",
          box,
          " ",
          h("span.mono", name),
          h("span.faint.small", ` ${description}`),
        ),
        area,
      );
      return { name, tool, box, area, node };
    });
    const part = section("Tools", { open: false }, this.#rows.map(({ node }) => node));
    const names = () => this.tools().map((tool) => tool.function.name).join(", ");
    const hint = () => setHint(part, names() || "none");
    for (const { box } of this.#rows) box.addEventListener("change", hint);
    hint();
    this.node = part;
  }

  tools() {
    return this.#rows.filter(({ box }) => box.checked).map(({ tool }) => tool);
  }

  resultOf(name) {
    return this.#rows.find((row) => row.name === name)?.area.value ?? `Error: there is no tool ${name}.`;
  }
}

/** The model's view of the last request. */
class ModelView {
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
    this.link = h("a.small", { href: "#/requests", hidden: true }, "Open request");
    this.empty = h(
      "p.faint.pad",
      "The prompt and the reply of the model appear here once you send a message.",
    );
    this.content = h(
      "div.stack",
      { hidden: true },
      this.timeline.node,
      this.attempt.replyPanel,
      this.attempt.requestPanel,
    );
    this.node = h(
      "section.column.models-view",
      { "aria-label": "Model's view" },
      h("h2.column-title", "Model's view", h("span.spring"), this.link),
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
    const length = totalDuration(eventTimes(this.#detail), this.#detail);
    this.timeline.update(this.#detail, { length, time: Infinity, selected });
    this.attempt.update(attempts[selected], Infinity, `${summary.key}/${selected}`);
  }
}

/** Sends a chat request; calls `onDelta` with {id} or {text} as they arrive, and returns the message. */
async function requestChat({ model, messages, tools, signal, onDelta }) {
  const body = JSON.stringify({ model, messages, stream: true, ...(tools.length ? { tools } : {}) });
  const reply = await request("chat", { method: "POST", body, signal });
  onDelta({ id: reply.headers.get("x-request-id") });
  const message = { role: "assistant", content: "", tool_calls: [] };
  for await (const event of readServerSentEvents(reply)) {
    if (event.error) throw new Error(event.error.message ?? "The reply was interrupted.");
    const delta = event.choices?.[0]?.delta ?? {};
    if (delta.content) {
      message.content += delta.content;
      onDelta({ text: message.content });
    }
    for (const piece of delta.tool_calls ?? []) mergeCallDelta(message.tool_calls, piece);
  }
  return omitEmptyCalls(message);
}

function mergeCallDelta(calls, { index = calls.length, id, function: { name, arguments: text } = {} }) {
  const call = (calls[index] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
  if (id) call.id = id;
  if (name) call.function.name = name;
  call.function.arguments += text ?? "";
}

function omitEmptyCalls(message) {
  const calls = message.tool_calls.filter((call) => call);
  const { tool_calls: _, ...rest } = message;
  return calls.length ? { ...rest, tool_calls: calls } : rest;
}

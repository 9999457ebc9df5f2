// A model's output as it is read: pasted on one side, understood on the other, as one types.

import { post } from "./api.js";
import { debounced, h, line, place, setText } from "./dom.js";
import { legend } from "./highlight.js";
import { copyButton, section } from "./parts.js";
import { TextPane, flash } from "./textpane.js";
import { lightMarks, linkHover } from "./turn.js";
import { Understood } from "./understood.js";

const KEPT = "toolspeak.playground";
const WAIT = 150;
/** Longer addresses break when they are pasted into chats and mails. */
const LONGEST_LINK = 6_000;

export class PlaygroundView {
  #about;
  #asked = 0;
  #spans = [];

  constructor(about) {
    this.#about = about;
    this.#build();
    this.#fill(this.#kept() ?? this.#example());
  }

  #build() {
    const parse = debounced(WAIT, () => this.#parse());
    const changed = () => {
      this.#keep();
      parse();
    };
    this.text = h("textarea", {
      class: "input mono", "aria-label": "Model output", spellcheck: "false", placeholder: "Paste what a model wrote.",
      on: { input: changed },
    });
    this.tools = h("textarea", { class: "input mono", "aria-label": "Tools, as JSON", spellcheck: "false", on: { input: changed } });
    this.toolsProblem = h("p", { class: "problem", role: "status", hidden: true });
    this.trust = choice("Trust", this.#about.trust, changed);
    this.dialect = choice("Dialect", ["auto", ...this.#about.dialects.map(({ name }) => name)], changed);
    this.examples = h(
      "select",
      { "aria-label": "Load an example", on: { change: () => this.#loadExample() } },
      h("option", { value: "" }, "Load an example…"),
      this.#about.dialects.filter(({ example }) => example).map(({ name, models }) => h("option", { value: name }, models ? `${name}: ${line(models, 60)}` : name)),
    );
    this.link = copyButton("Copy link", () => this.#address(), { tip: "A link that holds this text and these tools" });
    this.marked = new TextPane({ label: "The output, marked", empty: "What the model wrote appears here, with what was found in it." });
    this.legend = h("div", { class: "legend" });
    this.understood = new Understood({
      onChoose: (kind, index) => this.#reveal(kind, index),
      onHover: (kind, index) => lightMarks(this.marked.node, kind, index),
    });
    linkHover(this.marked.node, this.understood);
    this.marked.node.addEventListener("click", (event) => this.#markClicked(event));
    this.left = new TextPane({ label: "The text that is left" });
    this.reasoning = new TextPane({ label: "Reasoning" });
    this.leftSection = section("Text that is left", {}, this.left.node);
    this.reasoningSection = section("Reasoning", { open: false }, this.reasoning.node);
    this.verdict = h("p", { class: "outcome" });
    this.node = h(
      "section",
      { class: "view playground", "aria-label": "Playground" },
      h("div", { class: "toolbar" }, this.examples, labelled("trust", this.trust), labelled("dialect", this.dialect), h("span", { class: "spring" }), this.link),
      h(
        "div",
        { class: "columns" },
        h("section", { class: "column inputs", "aria-label": "Input" }, h("h2", { class: "column-title" }, "Model output"), this.text, h("h2", { class: "column-title" }, "Tools"), this.tools, this.toolsProblem),
        h("section", { class: "column", "aria-label": "Marked" }, h("h2", { class: "column-title" }, "As it was read"), h("div", { class: "stack pad" }, this.legend, this.marked.node)),
        h("section", { class: "column", "aria-label": "Understood" }, h("h2", { class: "column-title" }, "Understood as"), h("div", { class: "stack" }, h("div", { class: "pad" }, this.verdict, this.understood.node), this.leftSection.node, this.reasoningSection.node)),
      ),
    );
  }

  // Where its content comes from, and where it is kept.

  enter(words) {
    const linked = words.get("s");
    if (linked) this.#take(linked);
    this.#parse();
  }

  // What one changes from here on is not in the link any more.
  #take(linked) {
    this.#fill(unpack(linked) ?? this.#example());
    this.#keep();
    history.replaceState(null, "", "#/playground");
  }

  #state() {
    return { text: this.text.value, tools: this.tools.value, trust: this.trust.value, dialect: this.dialect.value };
  }

  #fill({ text, tools, trust, dialect }) {
    this.text.value = text;
    this.tools.value = tools;
    this.trust.value = this.#about.trust.includes(trust) ? trust : "standard";
    this.dialect.value = dialect;
    if (!this.dialect.value) this.dialect.value = "auto";
  }

  #example(name = "hermes") {
    const dialect = this.#about.dialects.find((one) => one.name === name) ?? this.#about.dialects[0];
    const tools = JSON.stringify(this.#about.samples.map(({ tool }) => tool), null, 2);
    return { text: dialect?.example ?? "", tools, trust: "standard", dialect: "auto" };
  }

  #loadExample() {
    const name = this.examples.value;
    this.examples.value = "";
    if (!name) return;
    const example = this.#example(name);
    // Some are calls only for those who expect that dialect.
    this.#fill({ ...example, trust: this.trust.value, dialect: name });
    this.#keep();
    this.#parse();
  }

  #kept() {
    try {
      const kept = JSON.parse(localStorage.getItem(KEPT));
      return typeof kept?.text === "string" ? kept : null;
    } catch {
      return null;
    }
  }

  #keep() {
    try {
      localStorage.setItem(KEPT, JSON.stringify(this.#state()));
    } catch {
      // More than a browser keeps: it is parsed all the same.
    }
    this.link.disabled = this.#address().length > LONGEST_LINK;
  }

  #address() {
    return `${location.origin}/#/playground?s=${pack(this.#state())}`;
  }

  // What is made of it.

  async #parse() {
    const asked = (this.#asked += 1);
    const { text, tools, trust, dialect } = this.#state();
    const given = readTools(tools);
    this.#complain(given.problem);
    if (given.problem) return;
    try {
      const found = await post("parse", { text, tools: given.tools, trust, dialect });
      // While it was read, one has typed on.
      if (asked === this.#asked) this.#show(text, found);
    } catch (problem) {
      if (asked === this.#asked) this.#complain(problem.message);
    }
  }

  #complain(problem) {
    setText(this.toolsProblem, problem ?? "");
    this.toolsProblem.hidden = !problem;
    this.tools.setAttribute("aria-invalid", Boolean(problem));
  }

  #show(text, found) {
    this.#spans = found.spans;
    this.marked.update(text, found.spans);
    place(this.legend, legend(found.spans));
    this.understood.update(found, "No call in it.");
    this.left.update(found.text);
    this.reasoning.update(found.reasoning ?? "");
    this.reasoningSection.node.hidden = !found.reasoning;
    setText(this.verdict, found.dialect ? `Read as ${found.dialect}.` : "");
    this.verdict.hidden = !found.dialect;
  }

  #reveal(kind, index) {
    const span = this.#spans.find((one) => one.kind === kind && one.index === index);
    if (span) this.marked.reveal(span.start);
  }

  // A click on a mark shows its card, and selects the same in what was pasted.
  #markClicked(event) {
    const mark = event.target.closest("mark[data-kind]");
    if (!mark || !getSelection().isCollapsed) return;
    this.understood.reveal(mark.dataset.kind, mark.dataset.index);
    const span = this.#spans.find((one) => one.start === Number(mark.dataset.start) && one.kind === mark.dataset.kind);
    if (!span) return;
    this.text.focus({ preventScroll: true });
    this.text.setSelectionRange(span.start, span.end);
    flash(mark);
  }
}

function readTools(text) {
  if (!text.trim()) return { tools: [] };
  try {
    const value = JSON.parse(text);
    const tools = Array.isArray(value) ? value : (value.tools ?? [value]);
    return { tools };
  } catch (problem) {
    return { problem: `Not JSON: ${problem.message}` };
  }
}

function choice(label, values, changed) {
  return h("select", { "aria-label": label, on: { change: changed } }, values.map((value) => h("option", { value }, value)));
}

function labelled(text, control) {
  return h("label", { class: "labelled" }, h("span", { class: "faint" }, text), control);
}

function pack(state) {
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  const binary = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function unpack(packed) {
  try {
    const binary = atob(packed.replaceAll("-", "+").replaceAll("_", "/"));
    const state = JSON.parse(new TextDecoder().decode(Uint8Array.from(binary, (one) => one.charCodeAt(0))));
    const isState = ["text", "tools", "trust", "dialect"].every((name) => typeof state[name] === "string");
    return isState ? state : null;
  } catch {
    return null;
  }
}

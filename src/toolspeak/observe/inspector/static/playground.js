// Parses a pasted model output as the user types.

import { GATEWAY, post } from "./api.js";
import { debounce, h, oneLine, setText } from "./dom.js";
import { joinPresent } from "./format.js";
import { HighlightedReply } from "./parsed_reply.js";
import { flash, TextPane } from "./text_pane.js";
import { codeField, column, copyButton, menu, section } from "./widgets.js";

const STORAGE_KEY = "toolspeak.playground";
const WAIT = 150;
/** Longer links break in chats and mails. */
const MAX_LINK_LENGTH = 5_000;

export class PlaygroundView {
  #about;
  #parseCount = 0;

  constructor(about) {
    this.#about = about;
    this.#build();
    this.#fill(this.#loadState() ?? this.#example());
  }

  #build() {
    const changed = debounce(WAIT, () => {
      this.#saveState();
      this.#parse();
    });
    const on = { input: changed };
    this.text = codeField("Model output", { placeholder: "Paste a model's output.", on });
    this.tools = codeField("Tools, as JSON", { on });
    this.toolsProblem = h("p.problem", { role: "status", hidden: true });
    this.trust = menu("Trust", this.#about.trust.map((trust) => [trust]), changed);
    const dialects = this.#about.dialects.map(({ name }) => [name]);
    this.dialect = menu("Dialect", [["auto"], ...dialects], changed);
    const examples = this.#about.dialects.filter(({ example }) => example);
    this.examples = menu(
      "Load an example",
      [
        ["", "Load an example…"],
        ...examples.map(({ name, models }) => [name, joinPresent(": ", name, oneLine(models, 60))]),
      ],
      (name) => this.#loadExample(name),
    );
    this.link = copyButton(
      "Copy link",
      () => this.#address(),
      { tip: "Copy a link that contains this text and these tools" },
    );
    this.#buildOutput();
    this.node = h(
      "section.view.playground",
      { "aria-label": "Playground" },
      h(
        "div.toolbar",
        this.examples,
        labelled("Trust", this.trust),
        labelled("Dialect", this.dialect),
        h("span.spring"),
        this.link,
      ),
      h(
        "div.columns",
        h(
          "section.column.inputs",
          { "aria-label": "Input" },
          h("h2.column-title", "Model output"),
          this.text,
          h("h2.column-title", "Tools"),
          this.tools,
          this.toolsProblem,
        ),
        this.textColumn,
        this.parsedColumn,
      ),
    );
  }

  #buildOutput() {
    this.output = new HighlightedReply({
      label: "Highlighted output",
      empty: "The output appears here, with calls highlighted.",
      onMark: (highlight, mark) => this.#select(highlight, mark),
    });
    this.verdict = h("p.outcome");
    this.rest = new TextPane({ label: "Remaining text" });
    this.reasoning = new TextPane({ label: "Reasoning" });
    this.reasoningSection = section("Reasoning", { open: false }, this.reasoning.node);
    const { legend, text, parsed } = this.output;
    this.textColumn = column("Highlighted output", h("div.stack.pad", legend, text.node));
    this.parsedColumn = column(
      "Parsed reply",
      h(
        "div.stack",
        h("div.pad", this.verdict, parsed.node),
        section("Remaining text", {}, this.rest.node),
        this.reasoningSection,
      ),
    );
  }

  enter(words) {
    const linked = words.get("s");
    if (linked) this.#openLink(linked);
    this.#parse();
  }

  // Later changes are not in the link, so it is removed from the address.
  #openLink(linked) {
    this.#fill(decodeState(linked) ?? this.#example());
    this.#saveState();
    history.replaceState(null, "", "#/playground");
  }

  #state() {
    return {
      text: this.text.value,
      tools: this.tools.value,
      trust: this.trust.value,
      dialect: this.dialect.value,
    };
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

  #loadExample(name) {
    this.examples.value = "";
    if (!name) return;
    const example = this.#example(name);
    // Some examples are calls only in their own dialect.
    this.#fill({ ...example, trust: this.trust.value, dialect: name });
    this.#saveState();
    this.#parse();
  }

  #loadState() {
    try {
      const kept = JSON.parse(localStorage.getItem(STORAGE_KEY));
      return typeof kept?.text === "string" ? kept : null;
    } catch {
      return null;
    }
  }

  #saveState() {
    const state = JSON.stringify(this.#state());
    this.link.disabled = state.length > MAX_LINK_LENGTH;
    try {
      localStorage.setItem(STORAGE_KEY, state);
    } catch {
      // More than the browser can store; it is parsed all the same.
    }
  }

  #address() {
    return `${GATEWAY}#/playground?s=${encodeState(this.#state())}`;
  }

  async #parse() {
    const parseId = (this.#parseCount += 1);
    const { text, tools, trust, dialect } = this.#state();
    const given = readTools(tools);
    this.#showProblem(given.problem);
    if (given.problem) return;
    try {
      const found = await post("parse", { text, tools: given.tools, trust, dialect });
      // Ignore the result if the user has typed on.
      if (parseId === this.#parseCount) this.#show(text, found);
    } catch (problem) {
      if (parseId === this.#parseCount) this.#showProblem(problem.message);
    }
  }

  #show(text, found) {
    this.output.update(text, found, "No calls found.");
    this.rest.update(found.text);
    this.reasoning.update(found.reasoning ?? "");
    this.reasoningSection.hidden = !found.reasoning;
    setText(this.verdict, found.dialect ? `Dialect: ${found.dialect}` : "");
    this.verdict.hidden = !found.dialect;
  }

  #showProblem(problem) {
    setText(this.toolsProblem, problem ?? "");
    this.toolsProblem.hidden = !problem;
    this.tools.setAttribute("aria-invalid", Boolean(problem));
  }

  #select({ start, end }, mark) {
    this.text.focus({ preventScroll: true });
    this.text.setSelectionRange(start, end);
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
    return { problem: `Invalid JSON: ${problem.message}` };
  }
}

function labelled(text, control) {
  return h("label.labelled", h("span.faint", text), control);
}

const NAMES = ["text", "tools", "trust", "dialect"];

/** Encodes a state for use in a URL. */
function encodeState(state) {
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  const binary = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** Decodes a state; null if it is invalid. */
function decodeState(packed) {
  try {
    const binary = atob(packed.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(binary, (one) => one.charCodeAt(0));
    const state = JSON.parse(new TextDecoder().decode(bytes));
    return NAMES.every((name) => typeof state[name] === "string") ? state : null;
  } catch {
    return null;
  }
}

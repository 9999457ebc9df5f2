// A model's output as it is read: pasted on one side, understood on the other, as one types.

import { post } from "./api.js";
import { debounced, h, line, setText } from "./dom.js";
import { pack, unpack } from "./linked.js";
import { copyButton } from "./parts.js";
import { Reading } from "./reading.js";

const KEPT = "toolspeak.playground";
const WAIT = 150;
/** More than this makes addresses that break in chats and mails. */
const LONGEST_LINK = 5_000;

export class PlaygroundView {
  #about;
  #asked = 0;

  constructor(about) {
    this.#about = about;
    this.#build();
    this.#fill(this.#kept() ?? this.#example());
  }

  #build() {
    const changed = debounced(WAIT, () => {
      this.#keep();
      this.#parse();
    });
    this.text = h("textarea", {
      class: "input mono", "aria-label": "Model output", spellcheck: "false",
      placeholder: "Paste what a model wrote.",
      on: { input: changed },
    });
    this.tools = h("textarea", {
      class: "input mono", "aria-label": "Tools, as JSON", spellcheck: "false",
      on: { input: changed },
    });
    this.toolsProblem = h("p", { class: "problem", role: "status", hidden: true });
    this.trust = choice("Trust", this.#about.trust, changed);
    this.dialect = choice(
      "Dialect",
      ["auto", ...this.#about.dialects.map(({ name }) => name)],
      changed,
    );
    this.examples = h(
      "select",
      { "aria-label": "Load an example", on: { change: () => this.#loadExample() } },
      h("option", { value: "" }, "Load an example…"),
      this.#about.dialects.filter(({ example }) => example).map(({ name, models }) => h(
        "option",
        { value: name },
        models ? `${name}: ${line(models, 60)}` : name,
      )),
    );
    this.link = copyButton(
      "Copy link",
      () => this.#address(),
      { tip: "A link that holds this text and these tools" },
    );
    this.reading = new Reading({ onMark: (start, end) => this.#select(start, end) });
    this.node = h(
      "section",
      { class: "view playground", "aria-label": "Playground" },
      h(
        "div",
        { class: "toolbar" },
        this.examples,
        labelled("trust", this.trust),
        labelled("dialect", this.dialect),
        h("span", { class: "spring" }),
        this.link,
      ),
      h(
        "div",
        { class: "columns" },
        h(
          "section",
          { class: "column inputs", "aria-label": "Input" },
          h("h2", { class: "column-title" }, "Model output"),
          this.text,
          h("h2", { class: "column-title" }, "Tools"),
          this.tools,
          this.toolsProblem,
        ),
        this.reading.marked,
        this.reading.understood,
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
    const state = JSON.stringify(this.#state());
    this.link.disabled = state.length > LONGEST_LINK;
    try {
      localStorage.setItem(KEPT, state);
    } catch {
      // More than a browser keeps: it is parsed all the same.
    }
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
      if (asked === this.#asked) this.reading.update(text, found);
    } catch (problem) {
      if (asked === this.#asked) this.#complain(problem.message);
    }
  }

  #complain(problem) {
    setText(this.toolsProblem, problem ?? "");
    this.toolsProblem.hidden = !problem;
    this.tools.setAttribute("aria-invalid", Boolean(problem));
  }

  #select(start, end) {
    this.text.focus({ preventScroll: true });
    this.text.setSelectionRange(start, end);
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
  return h(
    "select",
    { "aria-label": label, on: { change: changed } },
    values.map((value) => h("option", { value }, value)),
  );
}

function labelled(text, control) {
  return h("label", { class: "labelled" }, h("span", { class: "faint" }, text), control);
}

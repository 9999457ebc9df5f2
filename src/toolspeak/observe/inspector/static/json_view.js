// Views of JSON: numbers exactly as written, and a tree whose branches are built when they are
// opened, so that a megabyte costs no more than what is visible.

import { appendChildren, h, setChildren, setText } from "./dom.js";
import { count } from "./format.js";
import { TextPane } from "./text_pane.js";
import { button, copyButton } from "./widgets.js";

const STEP = 100;
const LONG = 600;
const LINES = 60;

/** A number that JavaScript would round. */
class ExactNumber {
  constructor(source) {
    this.source = source;
  }

  toJSON() {
    return JSON.rawJSON ? JSON.rawJSON(this.source) : Number(this.source);
  }
}

// A float such as 12.0 stays a number: only numbers that would lose digits are kept apart.
function keepExactNumber(_key, value, context) {
  const source = context?.source;
  if (typeof value !== "number" || !source || String(value) === source) return value;
  return canonicalDigits(String(value)) === canonicalDigits(source) ? value : new ExactNumber(source);
}

/** Normalizes a number: 1.20e3, 1200.0 and 1200 are all "12e4". */
function canonicalDigits(written) {
  const match = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(written);
  if (!match) return written; // Infinity: more than JavaScript can hold.
  const [, minus, whole, part = "", exponent = "0"] = match;
  const all = (whole + part).replace(/^0+/, "");
  if (!all) return "0";
  const power = Number(exponent) + all.length - part.length;
  return `${minus}${all.replace(/0+$/, "")}e${power}`;
}

export function parseExact(text) {
  return JSON.parse(text, keepExactNumber);
}

export function tryParse(text) {
  try {
    return { value: parseExact(text) };
  } catch {
    return null;
  }
}

/** A tree, expanded as far as it fits into that many lines. */
export function jsonTree(value, { lines = LINES } = {}) {
  return h("div.json", node(value, null, depthWithin(value, lines)));
}

/** A value with nothing collapsed or shortened. */
export function expandedJson(value) {
  return h("div.json", expandedNode(value, null));
}

function expandedNode(value, key) {
  if (!isBranch(value)) return h("div.json-leaf", label(key), fullLeaf(value));
  const { entries, opens, closes } = partsOf(value);
  if (!entries.length) return h("div.json-leaf", label(key), punctuation(opens + closes));
  return h(
    "div.json-branch",
    h("div.json-leaf", label(key), punctuation(opens)),
    h("div.json-children", entries.map(([name, one]) => expandedNode(one, name))),
    h("div.json-punctuation.json-closing", closes),
  );
}

function depthWithin(value, lines) {
  let level = [value];
  for (let depth = 0, shown = 1; ; depth += 1) {
    level = level.filter(isBranch).flatMap((one) => Object.values(one).slice(0, lines + 1));
    shown += level.length;
    // The outermost level is always open.
    if (!level.length || (shown > lines && depth > 0)) return depth;
  }
}

function isBranch(value) {
  return value !== null && typeof value === "object" && !(value instanceof ExactNumber);
}

function node(value, key, depth) {
  if (isBranch(value)) return branch(value, key, depth);
  return h("div.json-leaf", label(key), leaf(value));
}

function label(key) {
  if (key === null) return null;
  const isIndex = typeof key === "number";
  return [
    h("span", { class: isIndex ? "json-index" : "json-key" }, isIndex ? key : JSON.stringify(key)),
    h("span.json-punctuation", ": "),
  ];
}

function leaf(value) {
  const written = typeof value === "string" ? JSON.stringify(value) : "";
  return written.length > LONG ? longString(written) : fullLeaf(value);
}

function fullLeaf(value) {
  if (value instanceof ExactNumber) return h("span.json-number", value.source);
  const written = typeof value === "string" ? JSON.stringify(value) : String(value);
  return h("span", { class: `json-${value === null ? "null" : typeof value}` }, written);
}

function longString(written) {
  const text = h("span.json-string", `${written.slice(0, LONG)}…`);
  const more = button(`Show all ${count(written.length, "character")}`, () => {
    setText(text, written);
    more.remove();
  }, { class: "link" });
  return [text, " ", more];
}

function branch(value, key, depth) {
  const { entries, opens, closes } = partsOf(value);
  if (!entries.length) return h("div.json-leaf", label(key), punctuation(opens + closes));
  const size = count(entries.length, Array.isArray(value) ? "item" : "key");
  const children = h("div.json-children");
  const details = h(
    "details.json-branch",
    h(
      "summary",
      label(key),
      punctuation(opens),
      h("span.json-size", ` ${size} `),
      h("span.json-punctuation.json-end", closes),
    ),
    children,
    h("div.json-punctuation.json-closing", closes),
  );
  const build = () => children.firstChild || fill(children, entries, 0, depth - 1);
  details.addEventListener("toggle", () => details.open && build());
  if (depth > 0 && entries.length <= STEP) {
    build();
    details.open = true;
  }
  return details;
}

function partsOf(value) {
  if (Array.isArray(value)) {
    return { entries: value.map((item, at) => [at, item]), opens: "[", closes: "]" };
  }
  return { entries: Object.entries(value), opens: "{", closes: "}" };
}

function punctuation(text) {
  return h("span.json-punctuation", text);
}

function fill(children, entries, from, depth) {
  const part = entries.slice(from, from + STEP);
  appendChildren(children, part.map(([key, value]) => node(value, key, depth)));
  const left = entries.length - from - STEP;
  if (left <= 0) return;
  const more = button(`Show ${left.toLocaleString("en")} more`, () => {
    more.remove();
    fill(children, entries, from + STEP, depth);
  }, { class: "link" });
  children.append(more);
}

export class BodyView {
  #text = "";
  #drawn = null;
  #asText = false;

  constructor(label) {
    this.pane = new TextPane({ label });
    this.tree = h("div.tree", { role: "group", "aria-label": label });
    this.choice = button("View as text", (event) => {
      event.preventDefault();
      this.#asText = !this.#asText;
      this.#draw();
    }, { class: "quiet small" });
    this.tools = [this.choice, copyButton("Copy", () => this.#text, { class: "quiet small" })];
    this.node = h("div.body-view");
  }

  update(text) {
    if (text === this.#text && this.#drawn !== null) return;
    this.#text = text;
    this.#drawn = null;
    this.#draw();
  }

  #draw() {
    this.#drawn ??= tryParse(this.#text) ?? false;
    this.choice.hidden = !this.#drawn;
    this.choice.textContent = this.#asText ? "View as tree" : "View as text";
    if (!this.#drawn || this.#asText) {
      this.pane.update(this.#text);
      setChildren(this.node, this.pane.node);
      return;
    }
    if (this.#drawn.value !== this.tree.shown) {
      this.tree.shown = this.#drawn.value;
      this.tree.replaceChildren(jsonTree(this.#drawn.value));
    }
    setChildren(this.node, this.tree);
  }
}

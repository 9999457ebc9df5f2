// JSON that is looked at: numbers exactly as they were written, and a tree that is built where one
// opens it, so that a megabyte costs no more than what is on the screen.

import { add, h, visible } from "./dom.js";
import { count } from "./format.js";

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

// A float of the gateway's own, such as 12.0, stays a number: only what would be lost is kept apart.
function exactly(_key, value, context) {
  const source = context?.source;
  if (typeof value !== "number" || !source || String(value) === source) return value;
  return digits(String(value)) === digits(source) ? value : new ExactNumber(source);
}

/** The same for all ways to write a number: 1.20e3, 1200.0 and 1200 are "12e4". */
function digits(written) {
  const match = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(written);
  if (!match) return written; // Infinity: more than JavaScript can hold.
  const [, minus, whole, part = "", exponent = "0"] = match;
  const all = (whole + part).replace(/^0+/, "");
  if (!all) return "0";
  const power = Number(exponent) + all.length - part.length;
  return `${minus}${all.replace(/0+$/, "")}e${power}`;
}

export function parseExact(text) {
  return JSON.parse(text, exactly);
}

export function tryParse(text) {
  try {
    return { value: parseExact(text) };
  } catch {
    return null;
  }
}

/** The tree of a value, opened as deep as it fits into so many lines. */
export function jsonTree(value, { lines = LINES } = {}) {
  return h("div", { class: "json" }, node(value, null, depthWithin(value, lines)));
}

/** The whole of a value: nothing of it is folded or cut, however long it is. */
export function wholeJson(value) {
  return h("div", { class: "json" }, wholeNode(value, null));
}

function wholeNode(value, key) {
  if (!isBranch(value)) return h("div", { class: "json-leaf" }, label(key), wholeLeaf(value));
  const { entries, opens, closes } = partsOf(value);
  if (!entries.length) return h("div", { class: "json-leaf" }, label(key), sign(opens + closes));
  return h(
    "div",
    { class: "json-branch" },
    h("div", { class: "json-leaf" }, label(key), sign(opens)),
    h("div", { class: "json-children" }, entries.map(([name, one]) => wholeNode(one, name))),
    h("div", { class: "json-sign json-closing" }, closes),
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
  return h("div", { class: "json-leaf" }, label(key), leaf(value));
}

function label(key) {
  if (key === null) return null;
  const isIndex = typeof key === "number";
  return [
    h("span", { class: isIndex ? "json-index" : "json-key" }, isIndex ? key : JSON.stringify(key)),
    h("span", { class: "json-sign" }, ": "),
  ];
}

function leaf(value) {
  const written = typeof value === "string" ? JSON.stringify(value) : "";
  return written.length > LONG ? longString(written) : wholeLeaf(value);
}

function wholeLeaf(value) {
  if (value instanceof ExactNumber) return h("span", { class: "json-number" }, value.source);
  const written = typeof value === "string" ? JSON.stringify(value) : String(value);
  return h("span", { class: `json-${value === null ? "null" : typeof value}` }, written);
}

function longString(written) {
  const text = h("span", { class: "json-string" }, `${written.slice(0, LONG)}…`);
  const more = h(
    "button",
    { class: "link", type: "button" },
    `all ${count(written.length, "character")}`,
  );
  more.addEventListener("click", () => {
    text.textContent = visible(written);
    more.remove();
  });
  return [text, " ", more];
}

function branch(value, key, depth) {
  const { entries, opens, closes } = partsOf(value);
  if (!entries.length) return h("div", { class: "json-leaf" }, label(key), sign(opens + closes));
  const held = count(entries.length, Array.isArray(value) ? "item" : "key");
  const children = h("div", { class: "json-children" });
  const details = h(
    "details",
    { class: "json-branch" },
    h(
      "summary",
      null,
      label(key),
      sign(opens),
      h("span", { class: "json-held" }, ` ${held} `),
      h("span", { class: "json-sign json-end" }, closes),
    ),
    children,
    h("div", { class: "json-sign json-closing" }, closes),
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

function sign(text) {
  return h("span", { class: "json-sign" }, text);
}

function fill(children, entries, from, depth) {
  const part = entries.slice(from, from + STEP);
  add(children, part.map(([key, value]) => node(value, key, depth)));
  const left = entries.length - from - STEP;
  if (left <= 0) return;
  const more = h("button", { class: "link", type: "button" }, `${left.toLocaleString("en")} more`);
  more.addEventListener("click", () => {
    more.remove();
    fill(children, entries, from + STEP, depth);
  });
  children.append(more);
}

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
  return source.replace(/[eE].*|\D/g, "").length > 15 ? new ExactNumber(source) : value;
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
  if (value instanceof ExactNumber) return h("span", { class: "json-number" }, value.source);
  if (typeof value !== "string") {
    return h("span", { class: `json-${value === null ? "null" : typeof value}` }, String(value));
  }
  const written = JSON.stringify(value);
  if (written.length <= LONG) return h("span", { class: "json-string" }, written);
  return longString(written);
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
  const isList = Array.isArray(value);
  const entries = isList ? value.map((item, at) => [at, item]) : Object.entries(value);
  const [opens, closes] = isList ? ["[", "]"] : ["{", "}"];
  if (!entries.length) return h("div", { class: "json-leaf" }, label(key), sign(opens + closes));
  const held = count(entries.length, isList ? "item" : "key");
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

// A pane for text that may be long, grow, or be cut off by the slider; only changes are drawn. Its
// highlights (calls, notes, …) may be nested but never overlap partly.

import { h, splitInvisible } from "./dom.js";
import { count, joinPresent } from "./format.js";
import { button, copyButton } from "./widgets.js";

const KINDS = {
  call: "call",
  rejected: "rejected call",
  note: "note",
  reasoning: "reasoning",
  secret: "masked secret",
};

const MAX_TEXT_NODE = 4096;

/** Characters that are shown until the user asks for all. */
const INITIAL_LENGTH = 40_000;
/** Characters per block: blocks are laid out separately, and only while visible. */
const BLOCK = 12_000;
/** Characters that are added per frame when the user asks for all. */
const LENGTH_PER_FRAME = 120_000;

export class TextPane {
  #blocks = [];
  #content = { text: "", highlights: [], end: 0 };
  #most = INITIAL_LENGTH;
  #tallest = 0;
  #body = h("div.pane-text");
  #more = button("", () => this.#showAll(), { class: "link pane-more", hidden: true });

  /** True if the pane scrolls along with new text, unless the user has scrolled away. */
  follows = false;

  /** `label` is for screen readers; frames break anywhere, not only between words. */
  constructor({ label, empty = "Empty.", isFrames = false }) {
    this.empty = h("p.faint.pane-empty", empty);
    this.copy = copyButton("Copy", () => this.#content.text, { class: "quiet small" });
    this.node = h(
      "div",
      { class: isFrames ? "pane frames" : "pane", role: "group", "aria-label": label },
      this.#body, this.empty, this.#more,
    );
  }

  update(text, spans = [], end = text.length) {
    const before = this.#content.text;
    if (text !== before && !text.startsWith(before) && !before.startsWith(text)) this.#clear();
    this.#content = { text, highlights: sortHighlights(spans), end };
    this.#draw();
  }

  /** Prepares the pane for another text. */
  reset() {
    this.#content = { text: "", highlights: [], end: 0 };
    this.#clear();
  }

  /** Scrolls to a mark and flashes it. */
  reveal(start) {
    const find = () => this.#body.querySelector(`mark[data-start="${Number(start)}"]`);
    if (!find() && this.#most < this.#content.end) this.#show(this.#content.end);
    const mark = find();
    if (mark) flash(mark);
  }

  #clear() {
    this.#blocks = [];
    this.#body.replaceChildren();
    this.#most = INITIAL_LENGTH;
    this.#tallest = 0;
    this.node.style.minHeight = "";
  }

  #draw() {
    const { text, end } = this.#content;
    const isAtEnd = this.node.scrollHeight - this.node.scrollTop - this.node.clientHeight < 24;
    const shown = Math.min(end, this.#most);
    const cuts = blocksOf(text, shown);
    for (const [at, [from, to]] of cuts.entries()) this.#drawBlock(at, from, to);
    for (const block of this.#blocks.splice(cuts.length)) block.node.remove();
    this.empty.hidden = end > 0;
    this.#more.hidden = shown >= end;
    this.#more.textContent = `Show all ${count(end, "character")}`;
    this.#holdHeight();
    // Keyboard users need focus here, but only to scroll.
    const scrolls = this.node.scrollHeight > this.node.clientHeight + 1;
    if (scrolls) this.node.tabIndex = 0;
    else this.node.removeAttribute("tabindex");
    if (this.follows && isAtEnd && shown >= end) this.node.scrollTop = this.node.scrollHeight;
  }

  // Keep the height, so that content below does not jump when the slider moves back.
  #holdHeight() {
    const height = this.node.offsetHeight;
    if (height <= this.#tallest) return;
    this.#tallest = height;
    this.node.style.minHeight = `min(${height}px, var(--pane-most))`;
  }

  #drawBlock(at, from, to) {
    const { text, highlights: spans } = this.#content;
    const block = (this.#blocks[at] ??= this.#newBlock());
    const pieces = splitText(spans, from, to);
    // Pieces of the same text with equal keys look the same.
    const keys = pieces.map((piece) => JSON.stringify(piece));
    const changed = keys.findIndex((key, index) => block.keys[index] !== key);
    let kept = changed < 0 ? keys.length : changed;
    if (kept === keys.length && kept === block.keys.length) return;
    const isGrowing = kept === block.keys.length - 1 && kept < keys.length;
    if (isGrowing && grow(block.node.lastChild, block.pieces[kept], pieces[kept], text)) kept += 1;
    while (block.node.childNodes.length > kept) block.node.lastChild.remove();
    for (const piece of pieces.slice(kept)) block.node.append(renderPiece(text, piece));
    Object.assign(block, { keys, pieces });
  }

  #newBlock() {
    const node = h("div.pane-block");
    this.#body.append(node);
    return { node, keys: [], pieces: [] };
  }

  #show(most) {
    this.#most = most;
    this.#draw();
  }

  #showAll() {
    this.#show(this.#most + LENGTH_PER_FRAME);
    if (this.#most < this.#content.text.length) requestAnimationFrame(() => this.#showAll());
    else this.#most = Infinity;
  }
}

// A text node that only grows keeps a selection that starts in it.
function grow(node, before, after, text) {
  const isPlain = !before.span && !after.span && node instanceof Text;
  if (!isPlain || before.start !== after.start || after.end < before.end) return false;
  const added = text.slice(before.end, after.end);
  if (splitInvisible(added).length > 1) return false;
  node.appendData(added);
  return true;
}

/** Returns the ranges of the blocks, which end at line ends where possible. */
function blocksOf(text, shown) {
  const blocks = [];
  let at = 0;
  while (shown - at > BLOCK) {
    const newline = text.lastIndexOf("\n", at + BLOCK);
    if (newline > at + BLOCK / 2) {
      blocks.push([at, newline]);
      at = newline + 1;
      continue;
    }
    const isWithinPair = /[\ud800-\udbff]/.test(text[at + BLOCK - 1]);
    blocks.push([at, at + BLOCK - (isWithinPair ? 1 : 0)]);
    at = blocks.at(-1)[1];
  }
  blocks.push([at, shown]);
  return blocks;
}

export function flash(element) {
  element.scrollIntoView({ block: "nearest" });
  element.classList.remove("flash");
  void element.offsetWidth; // Restarts the animation.
  element.classList.add("flash");
}

/** Outer highlights first, without notes on the same range as another highlight. */
function sortHighlights(spans) {
  const range = ({ start, end }) => `${start}-${end}`;
  const covered = new Set(spans.filter(({ kind }) => kind !== "note").map(range));
  return spans
    .filter((span) => span.kind !== "note" || !covered.has(range(span)))
    .sort((one, other) => one.start - other.start || other.end - one.end);
}

/**
 * Splits a range of the text into plain text and outermost highlights, each with those inside it.
 * `spans` are sorted.
 */
function splitText(spans, from, to) {
  const found = [];
  let at = from;
  const plain = (end) => {
    for (; at < end; at = Math.min(end, at + MAX_TEXT_NODE)) {
      found.push({ start: at, end: Math.min(end, at + MAX_TEXT_NODE), span: null, inner: [] });
    }
  };
  for (let index = 0; index < spans.length; index += 1) {
    const span = spans[index];
    if (span.end <= at || span.start >= to || span.end <= span.start) continue;
    plain(Math.max(at, span.start));
    const end = Math.min(span.end, to);
    const inner = [];
    while (spans[index + 1]?.start < end) inner.push(spans[(index += 1)]);
    found.push({ start: at, end, span, inner });
    at = end;
  }
  plain(to);
  return found;
}

function renderPiece(text, piece) {
  if (!piece.span) return renderPlainText(text.slice(piece.start, piece.end));
  const { kind, index, label, description } = piece.span;
  const mark = h("mark", {
    class: `mark mark-${kind}`,
    "data-kind": kind,
    "data-index": index,
    "data-start": piece.span.start,
    "data-tip": joinPresent(": ", label, description),
  });
  for (const inside of splitText(piece.inner, piece.start, piece.end)) {
    mark.append(renderPiece(text, inside));
  }
  return mark;
}

function renderPlainText(text) {
  const parts = splitInvisible(text);
  if (parts.length === 1) return document.createTextNode(text);
  return h("span", parts.map((part, at) => (at % 2 ? renderInvisible(part) : part)));
}

function renderInvisible(character) {
  const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  return h("span.invisible", { "data-tip": `U+${code}` }, character);
}

/** Explains the colors of highlights of these kinds. */
export function renderLegend(kinds) {
  return Object.keys(KINDS).filter((kind) => kinds.includes(kind)).map((kind) =>
    h("span.legend-item", h("mark", { class: `mark mark-${kind}` }, "ab"), KINDS[kind]),
  );
}

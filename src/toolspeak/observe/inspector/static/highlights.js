// Renders text with highlights (calls, notes, …), which may be nested but never overlap partly.

import { h, invisibleSymbol, findInvisible } from "./dom.js";

const KINDS = {
  call: "call",
  rejected: "rejected call",
  note: "note",
  reasoning: "reasoning",
  secret: "masked secret",
};

const MAX_TEXT_NODE = 4096;

/** Outer highlights first, without notes on the same range as another highlight. */
export function sortHighlights(spans) {
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
export function splitText(spans, from, to) {
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

/** Equal for pieces of the same text that look the same. */
export function pieceKey({ start, end, span, inner }) {
  const of = (one) => `${one.start}-${one.end}${one.kind}${one.index}${one.label}${one.description}`;
  return span ? `${start}-${end}/${[span, ...inner].map(of).join("/")}` : `${start}-${end}`;
}

export function renderPiece(text, piece) {
  if (!piece.span) return renderPlainText(text.slice(piece.start, piece.end));
  const { kind, index, label, description } = piece.span;
  const mark = h("mark", {
    class: `mark mark-${Object.hasOwn(KINDS, kind) ? kind : "note"}`,
    "data-kind": kind,
    "data-index": index,
    "data-start": piece.span.start,
    "data-tip": [label, description].filter((one) => one).join(": "),
  });
  for (const inside of splitText(piece.inner, piece.start, piece.end)) mark.append(renderPiece(text, inside));
  return mark;
}

function renderPlainText(text) {
  const invisible = [...findInvisible(text)];
  if (!invisible.length) return document.createTextNode(text);
  const node = h("span", { class: "plain" });
  let at = 0;
  for (const [index, length] of invisible) {
    if (index > at) node.append(text.slice(at, index));
    const character = text.slice(index, index + length);
    const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    node.append(h("span", { class: "invisible", "data-tip": `U+${code}` }, invisibleSymbol(character)));
    at = index + length;
  }
  if (at < text.length) node.append(text.slice(at));
  return node;
}

export function renderLegend(spans) {
  const kinds = Object.keys(KINDS).filter((kind) => spans.some((span) => span.kind === kind));
  return kinds.map((kind) =>
    h("span", { class: "legend-item" }, h("mark", { class: `mark mark-${kind}` }, "ab"), KINDS[kind]),
  );
}

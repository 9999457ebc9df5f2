// Text with spans in it (calls, notes, …) as nodes. Spans may stand in one another, never across.

import { h, nameOfUnseen, unseenIn } from "./dom.js";

const KINDS = {
  call: "a call",
  rejected: "not made",
  note: "mended, or noted",
  reasoning: "reasoning",
  secret: "a secret, masked",
};

const LONGEST_TEXT_NODE = 4096;

/** The outer ones first; without notes on the very place of something that says more. */
export function inOrder(spans) {
  const place = ({ start, end }) => `${start}-${end}`;
  const told = new Set(spans.filter(({ kind }) => kind !== "note").map(place));
  return spans
    .filter((span) => span.kind !== "note" || !told.has(place(span)))
    .sort((one, other) => one.start - other.start || other.end - one.end);
}

/**
 * What stands side by side between two places of the text: plain text, and the outermost spans,
 * each with those inside it. `spans` are in order.
 */
export function pieces(spans, from, to) {
  const found = [];
  let at = from;
  const plain = (end) => {
    for (; at < end; at = Math.min(end, at + LONGEST_TEXT_NODE)) {
      found.push({ start: at, end: Math.min(end, at + LONGEST_TEXT_NODE), span: null, inner: [] });
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

/** Says whether two pieces of the same text look the same. */
export function signature({ start, end, span, inner }) {
  const of = (one) => `${one.start}-${one.end}${one.kind}${one.index}${one.label}${one.description}`;
  return span ? `${start}-${end}/${[span, ...inner].map(of).join("/")}` : `${start}-${end}`;
}

export function nodeOf(text, piece) {
  if (!piece.span) return plainNode(text.slice(piece.start, piece.end));
  const { kind, index, label, description } = piece.span;
  const mark = h("mark", {
    class: `mark mark-${Object.hasOwn(KINDS, kind) ? kind : "note"}`,
    "data-kind": kind,
    "data-index": index,
    "data-start": piece.span.start,
    "data-tip": [label, description].filter((one) => one).join(": "),
  });
  for (const inside of pieces(piece.inner, piece.start, piece.end)) mark.append(nodeOf(text, inside));
  return mark;
}

function plainNode(text) {
  const unseen = [...unseenIn(text)];
  if (!unseen.length) return document.createTextNode(text);
  const node = h("span", { class: "plain" });
  let at = 0;
  for (const [index, length] of unseen) {
    if (index > at) node.append(text.slice(at, index));
    const character = text.slice(index, index + length);
    const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    node.append(h("span", { class: "unseen", "data-tip": `U+${code}` }, nameOfUnseen(character)));
    at = index + length;
  }
  if (at < text.length) node.append(text.slice(at));
  return node;
}

export function legend(spans) {
  const there = Object.keys(KINDS).filter((kind) => spans.some((span) => span.kind === kind));
  return there.map((kind) =>
    h("span", { class: "legend-item" }, h("mark", { class: `mark mark-${kind}` }, "ab"), KINDS[kind]),
  );
}

// The calls, rejected calls and notes of a reply, and the text in which they are highlighted.

import { h, keyedList, oneLine, setText } from "./dom.js";
import { joinPresent } from "./format.js";
import { jsonTree } from "./json_view.js";
import { flash, renderLegend, TextPane } from "./text_pane.js";
import { button, copyButton, fieldList, updateIfChanged } from "./widgets.js";

export class ParsedReply {
  #calls = h("div.cards");
  #rejected = h("div.cards");
  #notes = h("ul.notes");
  #empty = h("p.faint");

  /** Calls `onSelect(kind, index)` when a card is clicked, `onHover(kind, index or null)` on hover. */
  constructor({ onSelect, onHover = () => {} }) {
    this.node = h("div.parsed-reply", this.#calls, this.#rejected, this.#notes, this.#empty);
    const card = (kind, make) => ({ item, index }) => {
      const node = make(item, () => onSelect(kind, index));
      node.dataset.kind = kind;
      node.dataset.index = index;
      node.addEventListener("pointerenter", () => onHover(kind, index));
      node.addEventListener("pointerleave", () => onHover(kind, null));
      return node;
    };
    this.drawCalls = keyedByContent(this.#calls, card("call", callCard));
    this.drawRejected = keyedByContent(this.#rejected, card("rejected", rejectedCard));
    this.drawNotes = keyedByContent(this.#notes, card("note", noteItem));
  }

  /** `empty` is the text for a reply without any of them. */
  update({ calls, rejected = [], notes }, empty) {
    setText(this.#empty, empty);
    this.drawCalls(withIndex(calls));
    this.drawRejected(withIndex(rejected));
    // The card of a rejected call already shows the note about it.
    const shown = new Set(rejected.map(({ code, problem }) => `${code} ${problem}`));
    const others = withIndex(notes).filter(({ item }) => !shown.has(`${item.code} ${item.message}`));
    this.drawNotes(others);
    this.#notes.hidden = !others.length;
    this.#empty.hidden = Boolean(calls.length || rejected.length || notes.length);
  }

  #find(kind, index) {
    return this.node.querySelector(`[data-kind="${CSS.escape(kind)}"][data-index="${Number(index)}"]`);
  }

  reveal(kind, index) {
    const card = this.#find(kind, index);
    if (card) flash(card);
  }

  activate(kind, index) {
    for (const card of this.node.querySelectorAll(".active")) card.classList.remove("active");
    if (index !== null) this.#find(kind, index)?.classList.add("active");
  }
}

/** The text of a reply next to what was parsed from it; each card leads to its mark, and back. */
export class HighlightedReply {
  #highlights = [];

  /** Calls `onMark(highlight, mark)` when a highlight is clicked. */
  constructor({ label, empty, onMark = () => {} }) {
    this.onMark = onMark;
    this.legend = h("div.legend");
    this.text = new TextPane({ label, empty });
    this.parsed = new ParsedReply({
      onSelect: (kind, index) => this.#reveal(kind, index),
      onHover: (kind, index) => this.#activate(kind, index),
    });
    const { node } = this.text;
    node.addEventListener("click", (event) => this.#clicked(event));
    node.addEventListener("pointerover", (event) => {
      const mark = event.target.closest("mark[data-kind]");
      this.parsed.activate(mark?.dataset.kind ?? "", mark ? mark.dataset.index : null);
    });
    node.addEventListener("pointerleave", () => this.parsed.activate("", null));
  }

  /** Shows the first `end` characters of the text; `empty` is shown if it has no calls or notes. */
  update(text, reply, empty, end = text.length) {
    const { highlights } = reply;
    this.#highlights = highlights;
    this.text.update(text, highlights, end);
    const kinds = highlights.map(({ kind }) => kind);
    updateIfChanged(this.legend, kinds, renderLegend);
    this.parsed.update(reply, empty);
  }

  #find(kind, index) {
    return this.#highlights.find((one) => one.kind === kind && one.index === Number(index));
  }

  #reveal(kind, index) {
    const highlight = this.#find(kind, index);
    if (highlight) this.text.reveal(highlight.start);
  }

  #activate(kind, index) {
    for (const mark of this.text.node.querySelectorAll("mark[data-kind]")) {
      const isActive = mark.dataset.kind === kind && mark.dataset.index === String(index);
      mark.classList.toggle("active", isActive);
    }
  }

  #clicked(event) {
    const mark = event.target.closest("mark[data-kind]");
    // A click that ends a text selection is not a navigation.
    if (!mark || !getSelection().isCollapsed) return;
    const { kind, index } = mark.dataset;
    this.parsed.reveal(kind, index);
    this.onMark(this.#find(kind, index), mark);
  }
}

function withIndex(items) {
  return items.map((item, index) => ({ item, index }));
}

// Cards with the same index and content are kept, so that an expanded tree stays expanded.
function keyedByContent(element, make) {
  return keyedList(element, (entry) => JSON.stringify(entry), make);
}

export function callCard(call, select) {
  const written = () => JSON.stringify(call.arguments, null, 2);
  return h(
    "article.card.card-call",
    { "aria-label": `Call to ${oneLine(call.name, 80)}` },
    h(
      "header",
      select ? button(
        call.name,
        select,
        { class: "name", tip: "Show in the text" },
      ) : h("span.name", call.name),
      h("span.faint.mono.small", joinPresent(" · ", call.dialect, call.id)),
      copyButton("Copy", written, { class: "small quiet" }),
    ),
    jsonTree(call.arguments),
  );
}

function rejectedCard(block, select) {
  return h(
    "article.card.card-rejected",
    h(
      "header",
      button(block.name || "rejected call", select, { class: "name", tip: "Show in the text" }),
      h("code.code-badge", block.code),
    ),
    h("p", block.problem),
    block.path && block.path !== "$" ? h("code.faint", block.path) : null,
  );
}

function noteItem(note, select) {
  return h(
    "li.note",
    h(
      "span.note-head",
      button(note.code, select, { class: "code-badge" }),
      note.where && note.where.length < 60 ? h("code.faint.small", note.where) : null,
    ),
    h("span.note-message", note.message),
    note.meaning && note.meaning !== note.message ? h(
      "span.faint.note-meaning",
      note.meaning,
    ) : null,
  );
}

export function failureBox(failure) {
  if (!failure) return null;
  return h(
    "div.failure",
    { role: "note" },
    h("strong", joinPresent(" · ", failure.kind, failure.status)),
    h("p", failure.message),
    fieldList([["code", failure.code], ["param", failure.param]]),
  );
}

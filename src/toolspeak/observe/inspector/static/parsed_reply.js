// The calls, rejected calls and notes of a reply.

import { h, keyedList, oneLine, setText } from "./dom.js";
import { jsonTree } from "./json_view.js";
import { flash } from "./text_pane.js";
import { button, copyButton, fieldList } from "./widgets.js";

export class ParsedReply {
  #calls = h("div", { class: "cards" });
  #rejected = h("div", { class: "cards" });
  #notes = h("ul", { class: "notes" });
  #empty = h("p", { class: "faint" });

  /** Calls `onSelect(kind, index)` when a card is clicked, `onHover(kind, index or null)` on hover. */
  constructor({ onSelect, onHover = () => {} }) {
    this.node = h(
      "div",
      { class: "parsed-reply" },
      this.#calls,
      this.#rejected,
      this.#notes,
      this.#empty,
    );
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
    "article",
    { class: "card card-call", "aria-label": `Call of ${oneLine(call.name, 80)}` },
    h(
      "header",
      null,
      select ? button(
        call.name,
        select,
        { class: "name", tip: "Show in the text" },
      ) : h("span", { class: "name" }, call.name),
      h(
        "span",
        { class: "faint mono small" },
        [call.dialect, call.id].filter((one) => one).join(" · "),
      ),
      copyButton("Copy", written, { class: "small quiet" }),
    ),
    jsonTree(call.arguments),
  );
}

function rejectedCard(block, select) {
  return h(
    "article",
    { class: "card card-rejected" },
    h(
      "header",
      null,
      button(block.name || "rejected call", select, { class: "name", tip: "Show in the text" }),
      h("code", { class: "code-badge" }, block.code),
    ),
    h("p", null, block.problem),
    block.path && block.path !== "$" ? h("code", { class: "faint" }, block.path) : null,
  );
}

function noteItem(note, select) {
  return h(
    "li",
    { class: "note" },
    h(
      "span",
      { class: "note-head" },
      button(note.code, select, { class: "code-badge" }),
      note.where && note.where.length < 60 ? h("code", { class: "faint small" }, note.where) : null,
    ),
    h("span", { class: "note-message" }, note.message),
    note.meaning && note.meaning !== note.message ? h(
      "span",
      { class: "faint note-meaning" },
      note.meaning,
    ) : null,
  );
}

export function failureBox(failure) {
  if (!failure) return null;
  return h(
    "div",
    { class: "failure", role: "note" },
    h("strong", null, [failure.kind, failure.status].filter((one) => one).join(" · ")),
    h("p", null, failure.message),
    fieldList([["code", failure.code ?? ""], ["param", failure.param ?? ""]]),
  );
}

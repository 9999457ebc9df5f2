// What was made of a reply: calls, blocks that are none, and notes.

import { button, copyButton, facts } from "./parts.js";
import { h, keyed, line, setText } from "./dom.js";
import { jsonTree } from "./json.js";
import { flash } from "./textpane.js";

export class Understood {
  #calls = h("div", { class: "cards" });
  #rejected = h("div", { class: "cards" });
  #notes = h("ul", { class: "notes" });
  #empty = h("p", { class: "faint" });

  /** `onChoose(kind, index)` hears of a click on a card, `onHover(kind, index or null)` of hovering. */
  constructor({ onChoose, onHover = () => {} }) {
    this.node = h(
      "div",
      { class: "understood" },
      this.#calls,
      this.#rejected,
      this.#notes,
      this.#empty,
    );
    const card = (kind, make) => ({ item, index }) => {
      const node = make(item, () => onChoose(kind, index));
      node.dataset.kind = kind;
      node.dataset.index = index;
      node.addEventListener("pointerenter", () => onHover(kind, index));
      node.addEventListener("pointerleave", () => onHover(kind, null));
      return node;
    };
    this.drawCalls = byContent(this.#calls, card("call", callCard));
    this.drawRejected = byContent(this.#rejected, card("rejected", rejectedCard));
    this.drawNotes = byContent(this.#notes, card("note", noteLine));
  }

  /** `empty` is what it says if there is nothing. */
  update({ calls, rejected = [], notes }, empty) {
    setText(this.#empty, empty);
    this.drawCalls(numbered(calls));
    this.drawRejected(numbered(rejected));
    // A block that is no call is also noted, which its card says already.
    const told = new Set(rejected.map(({ code, problem }) => `${code} ${problem}`));
    const others = numbered(notes).filter(({ item }) => !told.has(`${item.code} ${item.message}`));
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

  light(kind, index) {
    for (const lit of this.node.querySelectorAll(".lit")) lit.classList.remove("lit");
    if (index !== null) this.#find(kind, index)?.classList.add("lit");
  }
}

function numbered(items) {
  return items.map((item, index) => ({ item, index }));
}

// Cards of the same place and content stay: a tree that one has opened does not close.
function byContent(element, make) {
  return keyed(element, (entry) => JSON.stringify(entry), make);
}

export function callCard(call, choose) {
  const written = () => JSON.stringify(call.arguments, null, 2);
  return h(
    "article",
    { class: "card card-call", "aria-label": `Call of ${line(call.name, 80)}` },
    h(
      "header",
      null,
      choose ? button(
        call.name,
        choose,
        { class: "name", tip: "Show where it stands" },
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

function rejectedCard(block, choose) {
  return h(
    "article",
    { class: "card card-rejected" },
    h(
      "header",
      null,
      button(block.name || "not a call", choose, { class: "name", tip: "Show where it stands" }),
      h("code", { class: "code-badge" }, block.code),
    ),
    h("p", null, block.problem),
    block.path && block.path !== "$" ? h("code", { class: "faint" }, block.path) : null,
  );
}

function noteLine(note, choose) {
  return h(
    "li",
    { class: "note" },
    h(
      "span",
      { class: "note-head" },
      button(note.code, choose, { class: "code-badge" }),
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
    facts([["code", failure.code ?? ""], ["param", failure.param ?? ""]]),
  );
}

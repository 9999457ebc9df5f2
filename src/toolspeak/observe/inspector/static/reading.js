// How a text was read: marked where something was found, and what that was.

import { h, setText } from "./dom.js";
import { legend } from "./highlight.js";
import { column, section, showOnce } from "./parts.js";
import { TextPane, flash } from "./textpane.js";
import { lightMarks, linkHover } from "./turn.js";
import { Understood } from "./understood.js";

export class Reading {
  #spans = [];

  /** `onMark(start, end)` hears which part of the text was clicked. */
  constructor({ onMark }) {
    this.onMark = onMark;
    this.pane = new TextPane({
      label: "The output, marked",
      empty: "What the model wrote appears here, with what was found in it.",
    });
    this.legend = h("div", { class: "legend" });
    this.found = new Understood({
      onChoose: (kind, index) => this.#reveal(kind, index),
      onHover: (kind, index) => lightMarks(this.pane.node, kind, index),
    });
    linkHover(this.pane.node, this.found);
    this.pane.node.addEventListener("click", (event) => this.#clicked(event));
    this.verdict = h("p", { class: "outcome" });
    this.left = new TextPane({ label: "The text that is left" });
    this.reasoning = new TextPane({ label: "Reasoning" });
    this.reasoningSection = section("Reasoning", { open: false }, this.reasoning.node);
    this.marked = column(
      "As it was read",
      h("div", { class: "stack pad" }, this.legend, this.pane.node),
    );
    this.understood = column(
      "Understood as",
      h(
        "div",
        { class: "stack" },
        h("div", { class: "pad" }, this.verdict, this.found.node),
        section("Text that is left", {}, this.left.node).node,
        this.reasoningSection.node,
      ),
    );
  }

  update(text, found) {
    this.#spans = found.highlights;
    this.pane.update(text, found.highlights);
    showOnce(this.legend, found.highlights.map((span) => span.kind), () => legend(found.highlights));
    this.found.update(found, "No call in it.");
    this.left.update(found.text);
    this.reasoning.update(found.reasoning ?? "");
    this.reasoningSection.node.hidden = !found.reasoning;
    setText(this.verdict, found.dialect ? `Read as ${found.dialect}.` : "");
    this.verdict.hidden = !found.dialect;
  }

  #reveal(kind, index) {
    const span = this.#spans.find((one) => one.kind === kind && one.index === index);
    if (span) this.pane.reveal(span.start);
  }

  #clicked(event) {
    const mark = event.target.closest("mark[data-kind]");
    // Who selects text does not want to go anywhere.
    if (!mark || !getSelection().isCollapsed) return;
    const { start, kind, index } = mark.dataset;
    this.found.reveal(kind, index);
    const span = this.#spans.find((one) => one.start === Number(start) && one.kind === kind);
    if (span) this.onMark(span.start, span.end);
    flash(mark);
  }
}

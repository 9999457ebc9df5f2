// A body that may be JSON: as a tree, or as the text that it is.

import { button, copyButton } from "./parts.js";
import { h, place } from "./dom.js";
import { jsonTree, tryParse } from "./json.js";
import { TextPane } from "./textpane.js";

export class Body {
  #text = "";
  #drawn = null;
  #asText = false;

  constructor(label) {
    this.pane = new TextPane({ label });
    this.tree = h("div", { class: "tree", role: "group", "aria-label": label });
    this.choice = button("as text", (event) => {
      event.preventDefault();
      this.#asText = !this.#asText;
      this.#draw();
    }, { class: "quiet small" });
    this.tools = [this.choice, copyButton("Copy", () => this.#text, { class: "quiet small" })];
    this.node = h("div", { class: "body-view" });
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
    this.choice.textContent = this.#asText ? "as a tree" : "as text";
    if (!this.#drawn || this.#asText) {
      this.pane.update(this.#text);
      place(this.node, this.pane.node);
      return;
    }
    if (this.#drawn.value !== this.tree.shown) {
      this.tree.shown = this.#drawn.value;
      this.tree.replaceChildren(jsonTree(this.#drawn.value));
    }
    place(this.node, this.tree);
  }
}

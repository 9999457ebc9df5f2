// A list of any length that keeps only visible rows in the document.

import { h } from "./dom.js";

/** Rows beyond the visible ones, so that fast scrolling shows no gaps. */
const OVERSCAN = 8;

export class VirtualList {
  #rows = new Map();
  #spare = [];
  #count = 0;
  #frame = 0;

  /** `make()` creates a row, `fill(row, index)` shows an item in it. */
  constructor({ height, make, fill, onScroll = () => {}, onDraw = () => {}, ...props }) {
    this.height = height;
    this.make = make;
    this.fill = fill;
    this.onDraw = onDraw;
    this.spacer = h("div", { class: "list-spacer", role: "presentation" });
    this.node = h("div", { class: "list", ...props }, this.spacer);
    this.node.addEventListener("scroll", () => {
      this.#later();
      onScroll();
    }, { passive: true });
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  get scrollTop() {
    return this.node.scrollTop;
  }

  set scrollTop(value) {
    this.node.scrollTop = value;
  }

  /** Shows that many items, any of which may have changed. */
  show(count) {
    this.#count = count;
    this.draw();
  }

  scrollTo(index) {
    const top = index * this.height;
    // A header stays at the top, above the rows.
    const page = this.node.clientHeight - this.spacer.offsetTop;
    if (top < this.scrollTop) this.scrollTop = top;
    else if (top + this.height > this.scrollTop + page) this.scrollTop = top + this.height - page;
    this.draw();
  }

  rowsInPage() {
    return Math.max(1, Math.floor(this.node.clientHeight / this.height) - 1);
  }

  draw() {
    this.spacer.style.height = `${this.#count * this.height}px`;
    const first = Math.max(0, Math.floor(this.scrollTop / this.height) - OVERSCAN);
    const inSight = Math.ceil(this.node.clientHeight / this.height) + 2 * OVERSCAN;
    const last = Math.min(this.#count, first + inSight);
    for (const [index, row] of this.#rows) {
      if (index >= first && index < last) continue;
      this.#rows.delete(index);
      this.#spare.push(row);
    }
    for (let index = first; index < last; index += 1) this.#drawRow(index);
    for (const row of this.#spare.splice(0)) row.remove();
    this.onDraw();
  }

  #later() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.draw();
    });
  }

  #drawRow(index) {
    let row = this.#rows.get(index);
    if (!row) {
      row = this.#spare.pop() ?? this.make();
      this.#rows.set(index, row);
      row.style.transform = `translateY(${index * this.height}px)`;
      row.setAttribute("aria-posinset", index + 1);
      if (!row.parentNode) this.spacer.append(row);
    }
    row.setAttribute("aria-setsize", this.#count);
    this.fill(row, index);
  }
}

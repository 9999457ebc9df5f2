// The rows of the list of requests, of which only visible ones are in the document.

import { h, oneLine, setText } from "./dom.js";
import { clock, count, duration } from "./format.js";
import { requestState, statusText } from "./request_store.js";

/** Rows beyond the visible ones, so that fast scrolling shows no gaps. */
const OVERSCAN = 8;

const COLUMNS = [
  ["time", "Time"],
  ["status", "Status"],
  ["api", "API"],
  ["model", "Model"],
  ["mode", "Mode"],
  ["user-message", "User message"],
  ["calls", "Calls"],
  ["retries", "Retries"],
  ["notes", "Notes"],
  ["duration", "Duration"],
];

export function headerRow() {
  const cell = ([name, label]) => h("span", { class: `cell ${name}` }, label);
  return h("div.row.row-head", { "aria-hidden": "true" }, COLUMNS.map(cell));
}

export function createRow() {
  const cells = COLUMNS.map(([name]) => h("span", { class: `cell ${name}` }));
  return h("a.row", { role: "option", tabindex: "-1" }, cells);
}

const filled = new WeakMap();

export function fillRow(row, summary, { wires, isSelected }) {
  row.setAttribute("aria-selected", isSelected);
  if (filled.get(row) === summary) return;
  filled.set(row, summary);
  const contents = cellContents(summary, wires);
  for (const [at, [name]] of COLUMNS.entries()) {
    const [text, tip] = contents[name];
    setText(row.children[at], text);
    setTooltip(row.children[at], tip);
  }
  row.setAttribute("href", `#/requests/${encodeURIComponent(summary.key)}`);
  row.id = `row-${summary.key}`;
  row.dataset.key = summary.key;
  row.dataset.state = requestState(summary);
}

function setTooltip(cell, text) {
  if (text) cell.dataset.tip = oneLine(text);
  else delete cell.dataset.tip;
}

/** The text of each cell, and its tooltip if it has one. */
function cellContents(summary, wires) {
  const { calls, notes, retries } = summary;
  const isCanceled = summary.status === 499;
  const model = summary.upstream_model || summary.model;
  const message = oneLine(summary.user_message, 200) || summary.target;
  const furtherCalls = calls.length > 1 ? ` +${calls.length - 1}` : "";
  const overhead = summary.overhead_ms;
  return {
    time: [clock(summary.started_at)],
    status: [
      statusText(summary),
      isCanceled ? "The client disconnected before the response was complete." : summary.failure,
    ],
    api: [wires[summary.wire] ?? summary.wire],
    model: [oneLine(model, 80), model !== summary.model && `requested as ${summary.model}`],
    mode: [summary.mode],
    "user-message": [message, message.length > 40 && message],
    calls: [oneLine(calls[0], 60) + furtherCalls, calls.join(", ")],
    retries: retries ? [`↻ ${retries}`, count(retries, "retry", "retries")] : [],
    notes: [notes.length || "", notes.join(", ")],
    duration: [
      summary.is_finished ? duration(summary.ms) : "",
      overhead && `${duration(overhead)} gateway overhead`,
    ],
  };
}

/** A list of any length. */
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
    this.spacer = h("div.list-spacer", { role: "presentation" });
    this.node = h("div.list", { ...props }, this.spacer);
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

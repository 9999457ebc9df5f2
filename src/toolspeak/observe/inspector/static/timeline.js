// The attempts of a request over time; clicking a row selects the attempt that is shown below.

import { h, keyedList, setText, svg } from "./dom.js";
import { count, duration } from "./format.js";
import { button } from "./widgets.js";

const REASON_LABELS = {
  known: "no model call",
  decided: "no model call",
  "tools rejected": "tools in prompt",
};
/** Outcomes that lead to a retry: docs/reliability.md. */
const RETRY_OUTCOMES = new Set([
  "invalid-call", "unknown-tool", "missing-call", "false-refusal",
  "truncated-call", "repeated-call", "wrong-format", "empty",
]);

export class Timeline {
  #rows;
  #list = h(
    "div",
    { class: "timeline-attempts", role: "tablist", "aria-label": "Attempts", "aria-orientation": "vertical" },
  );
  #client = newRow("div", "client");
  #lastSelected = -1;

  constructor({ onSelect }) {
    this.#rows = keyedList(this.#list, (_attempt, at) => at, (_attempt, key) => {
      const at = Number(key);
      const row = newRow("button", "attempt");
      row.node.addEventListener("click", () => onSelect(at));
      const update = (attempt) => drawAttempt(row, attempt, this.length, at === this.selected, at);
      return { node: row.node, update };
    });
    setText(this.#client.label, "response");
    this.node = h("div", { class: "timeline" }, this.#list, this.#client.node);
    this.#list.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      const next = Math.max(0, Math.min(this.#list.children.length - 1, this.selected + step));
      onSelect(next);
      this.#list.children[next].focus();
    });
  }

  update(detail, { length, selected, time }) {
    this.length = length;
    this.selected = selected;
    this.#rows(detail.attempts);
    this.#scrollToSelected(selected);
    const { chunks } = detail.response;
    const first = chunks[0]?.ms ?? null;
    drawTrack(this.#client, length, first, first, chunks.at(-1)?.ms ?? null, chunks);
    setText(this.#client.time, chunks.length ? count(chunks.length, "chunk") : "");
    this.node.style.setProperty("--head", `${(100 * Math.min(time, length)) / length}%`);
  }

  // A small model may need many attempts, of which only some fit.
  #scrollToSelected(selected) {
    if (selected === this.#lastSelected) return;
    this.#lastSelected = selected;
    this.#list.children[selected]?.scrollIntoView({ block: "nearest" });
  }
}

function newRow(tag, name) {
  const label = h("span", { class: "timeline-label" });
  const waiting = h("span", { class: "bar bar-waiting" });
  const receiving = h("span", { class: "bar bar-receiving" });
  const ticks = svg("path", { class: "ticks", d: "" });
  const drawing = svg(
    "svg",
    { viewBox: "0 0 1000 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    ticks,
  );
  const track = h("span", { class: "track" }, waiting, receiving, drawing);
  const time = h("span", { class: "timeline-duration" });
  const node =
    tag === "button"
      ? button(
        [label, track, time],
        () => {},
        { class: `timeline-row ${name}`, role: "tab", "aria-controls": "attempt-request attempt-reply" },
      )
      : h("div", { class: `timeline-row ${name}` }, label, track, time);
  return { node, label, waiting, receiving, ticks, time };
}

function drawAttempt(row, attempt, length, isSelected, at) {
  setText(row.label, attemptLabel(attempt, at));
  const end = attempt.end_ms ?? length;
  drawTrack(row, length, attempt.start_ms, attempt.first_byte_ms ?? end, end, attempt.chunks);
  setText(row.time, attempt.end_ms === null ? "…" : duration(attempt.end_ms - attempt.start_ms));
  row.node.setAttribute("aria-selected", isSelected);
  row.node.tabIndex = isSelected ? 0 : -1;
  row.node.dataset.state = attempt.failure ? "failed" : "";
  row.node.dataset.tip = attempt.reason_text || attempt.outcome_text || "";
}

export function isRetry(reason) {
  return RETRY_OUTCOMES.has(reason);
}

function attemptLabel({ reason }, at) {
  const label = isRetry(reason) ? `retry: ${reason}` : REASON_LABELS[reason] ?? (reason || "attempt");
  return `${at + 1} ${label}`;
}

function drawTrack(row, length, from, first, to, chunks) {
  const share = (ms) => `${Math.max(0, Math.min(100, (100 * ms) / length))}%`;
  for (const [bar, start, end] of [[row.waiting, from, first], [row.receiving, first, to]]) {
    bar.hidden = start === null;
    bar.style.left = share(start ?? 0);
    bar.style.width = share(Math.max(0, (end ?? 0) - (start ?? 0)));
  }
  // The slider moves often, but the chunks rarely change.
  if (row.chunks === chunks && row.length === length) return;
  [row.chunks, row.length] = [chunks, length];
  const places = new Set(chunks.map((chunk) => Math.round((1000 * chunk.ms) / length)));
  row.ticks.setAttribute("d", [...places].map((x) => `M${x} 0v10`).join(""));
}

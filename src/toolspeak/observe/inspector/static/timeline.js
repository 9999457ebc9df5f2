// A request over time: its attempts, of which one is selected, and the slider that replays it.

import { h, keyedList, setText, svg } from "./dom.js";
import { count, duration } from "./format.js";
import { button, menu } from "./widgets.js";

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 5];

const REASON_LABELS = {
  known: "call without the model",
  decided: "calls from decisions",
  "tools rejected": "tools in prompt",
};

export class Timeline {
  #rows;
  #list = h(
    "div.timeline-attempts",
    { role: "tablist", "aria-label": "Attempts", "aria-orientation": "vertical" },
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
    this.node = h("div.timeline", this.#list, this.#client.node);
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
  const label = h("span.timeline-label");
  const waiting = h("span.bar.bar-waiting");
  const receiving = h("span.bar.bar-receiving");
  const ticks = svg("path", { class: "ticks", d: "" });
  const drawing = svg(
    "svg",
    { viewBox: "0 0 1000 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    ticks,
  );
  const track = h("span.track", waiting, receiving, drawing);
  const time = h("span.timeline-duration");
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

function attemptLabel({ reason, is_retry: isRetry }, at) {
  const label = isRetry ? `retry: ${reason}` : REASON_LABELS[reason] ?? (reason || "attempt");
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

/**
 * Replays a request chunk by chunk. `time` is Infinity while it follows the end, or milliseconds
 * once the user has moved the slider.
 */
export class Replay {
  time = Infinity;
  length = 0.1;
  #moments = [0];
  #isOver = true;
  #frame = 0;

  /** Calls `onMove()` when the time changes. */
  constructor({ onMove }) {
    this.onMove = onMove;
    this.play = button(
      "▶",
      () => this.toggle(),
      { class: "play", "aria-label": "Play", tip: "Play (p)" },
    );
    this.speed = menu("Speed", SPEEDS.map((speed) => [String(speed), `${speed}×`]));
    this.speed.value = "1";
    this.range = h("input.slider", {
      type: "range", min: "0", max: "1", step: "any",
      "aria-label": "Position in the request",
      on: {
        input: () => this.moveTo(Number(this.range.value)),
        keydown: (event) => this.#key(event),
      },
    });
    this.shown = h("span.replay-time");
    this.live = button(
      "Live",
      () => this.moveTo(Infinity),
      { class: "live", tip: "Jump to the end" },
    );
    this.node = h(
      "div.replay",
      { role: "group", "aria-label": "Replay" },
      h("span.replay-controls", this.play, this.speed, this.live), this.range, this.shown,
    );
  }

  update(detail) {
    this.#moments = eventTimes(detail);
    this.#isOver = detail.summary.is_finished;
    this.length = totalDuration(this.#moments, detail);
    this.#draw();
  }

  reset() {
    this.#stop();
    this.time = Infinity;
  }

  moveTo(time) {
    this.time = time >= this.length ? Infinity : Math.max(0, time);
    this.#draw();
    this.onMove();
  }

  /** Moves to the next or previous chunk. */
  step(by) {
    this.#stop();
    const now = Math.min(this.time, this.length);
    const next =
      by > 0
        ? this.#moments.find((moment) => moment > now)
        : this.#moments.findLast((moment) => moment < now);
    this.moveTo(next ?? (by > 0 ? Infinity : 0));
  }

  toggle() {
    if (this.#frame) return this.#stop();
    if (this.time === Infinity) this.moveTo(0);
    let last = performance.now();
    const tick = (now) => {
      this.moveTo(this.time + (now - last) * Number(this.speed.value));
      last = now;
      if (this.time === Infinity) this.#stop();
      else this.#frame = requestAnimationFrame(tick);
    };
    this.#frame = requestAnimationFrame(tick);
    this.#draw();
  }

  pause() {
    if (this.#frame) this.#stop();
  }

  #stop() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#draw();
  }

  #key(event) {
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 };
    if (event.key in steps) this.step(steps[event.key]);
    else if (event.key === "Home") this.moveTo(0);
    else if (event.key === "End") this.moveTo(Infinity);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #draw() {
    const now = Math.min(this.time, this.length);
    this.range.max = this.length;
    this.range.value = now;
    const isLive = this.time === Infinity;
    const chunk = this.#moments.findLastIndex((moment) => moment <= now) + 1;
    this.range.setAttribute(
      "aria-valuetext",
      `${duration(now)}, step ${chunk} of ${this.#moments.length}`,
    );
    setText(this.shown, `${duration(now)} of ${duration(this.length)}`);
    setText(this.live, this.#isOver ? "End" : "Live");
    this.live.setAttribute("aria-pressed", isLive);
    setText(this.play, this.#frame ? "❚❚" : "▶");
    this.play.setAttribute("aria-label", this.#frame ? "Pause" : "Play");
  }
}

/** All times at which something happened, sorted. */
export function eventTimes({ attempts, response }) {
  const times = new Set([0]);
  for (const { start_ms: begun, end_ms: ended } of attempts) times.add(begun).add(ended ?? begun);
  for (const { chunks } of [...attempts, response]) for (const { ms } of chunks) times.add(ms);
  return [...times].sort((one, other) => one - other);
}

export function totalDuration(moments, { summary }) {
  return Math.max(moments.at(-1) ?? 0, summary.ms ?? 0, 0.1);
}

/** How many chunks had arrived by then. */
export function countChunks(chunks, time) {
  let low = 0;
  let high = chunks.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (chunks[middle].ms <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** How much of a text had arrived by then; a text without chunks arrived at once, at `whole`. */
export function visibleLength(chunks, field, time, text, whole) {
  if (time === Infinity) return text.length;
  if (!chunks.length) return whole !== null && whole <= time ? text.length : 0;
  const some = countChunks(chunks, time);
  return some ? Math.min(text.length, chunks[some - 1][field]) : 0;
}

/**
 * The index of the attempt at that time. At the end, that is the last one in which the model wrote
 * something, or else the last one with calls: a later attempt may have failed at once, or need no
 * model.
 */
export function attemptAt(attempts, time) {
  const isOver = time === Infinity && attempts.every((one) => one.end_ms !== null);
  const hasCalls = (one) => isOver && one.calls.length > 0;
  const isWritten = (one) => isOver && one.raw && (one.text || one.calls.length > 0);
  const hasBegun = (one) => one.start_ms <= time;
  const found = [isWritten, hasCalls, hasBegun].map((matches) => attempts.findLastIndex(matches));
  return found.find((index) => index >= 0) ?? 0;
}

// Replays a request chunk by chunk. `time` is Infinity while it follows the end, or milliseconds
// once the user has moved the slider.

import { h, setText } from "./dom.js";
import { duration } from "./format.js";
import { button } from "./widgets.js";

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 5];

export class Replay extends EventTarget {
  time = Infinity;
  length = 0.1;
  #moments = [0];
  #isOver = true;
  #frame = 0;

  constructor() {
    super();
    this.play = button(
      "▶",
      () => this.toggle(),
      { class: "play", "aria-label": "Play", tip: "Play (p)" },
    );
    this.speed = h(
      "select",
      { class: "speed", "aria-label": "Speed", value: "1" },
      SPEEDS.map((speed) => h("option", { value: String(speed), selected: speed === 1 }, `${speed}×`)),
    );
    this.range = h("input", {
      type: "range", class: "slider", min: "0", max: "1", step: "any",
      "aria-label": "Position in the request",
      on: { input: () => this.moveTo(Number(this.range.value)), keydown: (event) => this.#key(event) },
    });
    this.shown = h("span", { class: "replay-time" });
    this.live = button(
      "Live",
      () => this.moveTo(Infinity),
      { class: "live", tip: "Jump to the end" },
    );
    this.node = h(
      "div",
      { class: "replay", role: "group", "aria-label": "Replay" },
      h("span", { class: "replay-controls" }, this.play, this.speed, this.live), this.range, this.shown,
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
    this.dispatchEvent(new Event("move"));
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
      `${duration(now)}, event ${chunk} of ${this.#moments.length}`,
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

/** The index of the attempt at that time. */
export function attemptAt(attempts, time) {
  const begun = attempts.findLastIndex((one) => one.start_ms <= time);
  return Math.max(0, begun);
}

// When each turn was: a row for each, which also chooses what is shown of them below.

import { button } from "./parts.js";
import { h, keyed, setText, shape } from "./dom.js";
import { count, duration } from "./format.js";

/** What a reply comes to if it will not do: docs/reliability.md. */
const WILL_NOT_DO = new Set([
  "invalid-call", "unknown-tool", "missing-call", "false-refusal",
  "truncated-call", "repeated-call", "wrong-format", "empty",
]);

export class Timeline {
  #rows;
  #list = h(
    "div",
    { class: "timeline-turns", role: "tablist", "aria-label": "Turns", "aria-orientation": "vertical" },
  );
  #client = newRow("div", "client");
  #inSight = -1;

  constructor({ onChoose }) {
    this.#rows = keyed(this.#list, (_turn, at) => at, (_turn, key) => {
      const at = Number(key);
      const row = newRow("button", "turn");
      row.node.addEventListener("click", () => onChoose(at));
      const update = (turn) => drawTurn(row, turn, this.length, at === this.chosen, at);
      return { node: row.node, update };
    });
    setText(this.#client.label, "to the client");
    this.node = h("div", { class: "timeline" }, this.#list, this.#client.node);
    this.#list.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      const next = Math.max(0, Math.min(this.#list.children.length - 1, this.chosen + step));
      onChoose(next);
      this.#list.children[next].focus();
    });
  }

  update(detail, { length, chosen, time }) {
    this.length = length;
    this.chosen = chosen;
    this.#rows(detail.attempts);
    this.#keepInSight(chosen);
    const { chunks } = detail.response;
    const first = chunks[0]?.ms ?? null;
    drawTrack(this.#client, length, first, first, chunks.at(-1)?.ms ?? null, chunks);
    setText(this.#client.took, chunks.length ? count(chunks.length, "chunk") : "");
    this.node.style.setProperty("--head", `${(100 * Math.min(time, length)) / length}%`);
  }

  // Small models are led through many turns, of which only some have room.
  #keepInSight(chosen) {
    if (chosen === this.#inSight) return;
    this.#inSight = chosen;
    this.#list.children[chosen]?.scrollIntoView({ block: "nearest" });
  }
}

function newRow(tag, name) {
  const label = h("span", { class: "timeline-label" });
  const waits = h("span", { class: "bar bar-waits" });
  const comes = h("span", { class: "bar bar-comes" });
  const ticks = shape("path", { class: "ticks", d: "" });
  const drawing = shape(
    "svg",
    { viewBox: "0 0 1000 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    ticks,
  );
  const track = h("span", { class: "track" }, waits, comes, drawing);
  const took = h("span", { class: "timeline-took" });
  const node =
    tag === "button"
      ? button(
        [label, track, took],
        () => {},
        { class: `timeline-row ${name}`, role: "tab", "aria-controls": "turn-told turn-wrote" },
      )
      : h("div", { class: `timeline-row ${name}` }, label, track, took);
  return { node, label, waits, comes, ticks, took };
}

function drawTurn(row, turn, length, isChosen, at) {
  setText(row.label, nameOf(turn, at));
  const end = turn.end_ms ?? length;
  drawTrack(row, length, turn.start_ms, turn.first_byte_ms ?? end, end, turn.chunks);
  setText(row.took, turn.end_ms === null ? "…" : duration(turn.end_ms - turn.start_ms));
  row.node.setAttribute("aria-selected", isChosen);
  row.node.tabIndex = isChosen ? 0 : -1;
  row.node.dataset.state = turn.failure ? "failed" : "";
  row.node.dataset.tip = turn.reason_text || turn.outcome_text || "";
}

/** Whether a turn asks for the same once more, because of that. */
export function isAgain(why) {
  return WILL_NOT_DO.has(why);
}

function nameOf({ reason: why }, at) {
  return `${at + 1} ${isAgain(why) ? `again: ${why}` : why || "asked"}`;
}

function drawTrack(row, length, from, first, to, chunks) {
  const share = (ms) => `${Math.max(0, Math.min(100, (100 * ms) / length))}%`;
  for (const [bar, start, end] of [[row.waits, from, first], [row.comes, first, to]]) {
    bar.hidden = start === null;
    bar.style.left = share(start ?? 0);
    bar.style.width = share(Math.max(0, (end ?? 0) - (start ?? 0)));
  }
  // The slider moves often, the chunks do not.
  if (row.chunks === chunks && row.length === length) return;
  [row.chunks, row.length] = [chunks, length];
  const places = new Set(chunks.map((chunk) => Math.round((1000 * chunk.ms) / length)));
  row.ticks.setAttribute("d", [...places].map((place) => `M${place} 0v10`).join(""));
}

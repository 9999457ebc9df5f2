// One request, from what the client sent to what it received.

import { get, request } from "./api.js";
import { ReceivedColumn, SentColumn } from "./client.js";
import { h, line, place, setText } from "./dom.js";
import { count, duration, moment } from "./format.js";
import { turnAt } from "./moments.js";
import { button, column, copyButton, download, showOnce } from "./parts.js";
import { Replay } from "./replay.js";
import { stateOf, statusText } from "./rows.js";
import { Timeline } from "./timeline.js";
import { TurnView } from "./turn.js";

const AGAIN = 400;

export class DetailView {
  #about;
  #key = "";
  #detail = null;
  #chosen = 0;
  /** Whether one has chosen a turn, which then stays. */
  #isChosen = false;
  #timer = 0;

  constructor(about, { back, neighbour }) {
    this.#about = about;
    this.back = back;
    this.neighbour = neighbour;
    this.#build();
  }

  // What it is made of.

  #build() {
    this.title = h("h1", { class: "detail-title", tabindex: "-1" });
    this.meta = h("div", { class: "detail-meta" });
    const copyCurl = copyButton("Copy as curl", () => this.#detail.curl);
    const save = button(
      "Download JSON",
      () => this.#download().catch((problem) => this.#fail(problem)),
    );
    const link = copyButton("Copy link", () => `${location.origin}/#/requests/${this.#key}`);
    const step = (by, label, tip) => button(
      label,
      () => this.neighbour(this.#key, by),
      { class: "quiet step", "aria-label": tip, tip },
    );
    const bar = h(
      "div",
      { class: "detail-bar" },
      button("‹ Requests", () => this.back(), { class: "quiet", tip: "Back (Esc)" }),
      step(-1, "↑", "Newer (k)"), step(1, "↓", "Older (j)"),
      h("span", { class: "spring" }), copyCurl, save, link,
    );
    this.replay = new Replay();
    this.replay.addEventListener("move", () => {
      this.#isChosen = false;
      this.#draw();
    });
    this.timeline = new Timeline({ onChoose: (turn) => this.#choose(turn) });
    this.turn = new TurnView();
    this.sent = new SentColumn();
    this.received = new ReceivedColumn({
      onChoose: (kind, index) => this.turn.understood.reveal(kind, index),
    });
    const told = column("Model was told", this.turn.told);
    const wrote = column("Model wrote", this.turn.wrote);
    this.head = h("div", { class: "detail-head" }, bar, this.title, this.meta, this.timeline.node);
    this.columns = h("div", { class: "columns" }, this.sent.node, told, wrote, this.received.node);
    this.notice = h("div", { class: "empty", hidden: true });
    this.node = h(
      "section",
      { class: "view detail", "aria-label": "One request" },
      this.head,
      this.replay.node,
      this.columns,
      this.notice,
    );
  }

  // Which request it is.

  async enter(key) {
    if (key !== this.#key) {
      this.#key = key;
      this.#detail = null;
      this.#isChosen = false;
      this.replay.reset();
      this.received.reset();
      this.#hide(true);
      this.node.scrollTop = 0;
      for (const one of this.columns.children) one.scrollTop = 0;
    }
    await this.#load();
  }

  leave() {
    clearTimeout(this.#timer);
    this.replay.pause();
  }

  async #load() {
    const key = this.#key;
    clearTimeout(this.#timer);
    try {
      const detail = await get(`requests/${encodeURIComponent(key)}`);
      if (key !== this.#key) return;
      const isNew = !this.#detail;
      this.#detail = detail;
      this.#show();
      // Whoever does not see it hears what has been opened.
      if (isNew) this.title.focus({ preventScroll: true });
    } catch (problem) {
      if (key === this.#key) this.#fail(problem);
    }
    const isOver = this.#detail?.summary.is_finished ?? true;
    if (!isOver && this.node.isConnected) this.#timer = setTimeout(() => this.#loadIfSeen(), AGAIN);
  }

  #loadIfSeen() {
    if (document.visibilityState === "visible") return this.#load();
    document.addEventListener(
      "visibilitychange",
      () => this.node.isConnected && this.#load(),
      { once: true },
    );
  }

  #fail(problem) {
    // A request that is shown stays, while the gateway cannot be reached.
    if (this.#detail && problem.status !== 404) {
      this.#timer = setTimeout(() => this.#loadIfSeen(), 4 * AGAIN);
      return;
    }
    const kept = this.#about.keeps.requests;
    const most = kept.toLocaleString("en");
    const gone = `It is not there any more: the last ${most} are kept, while the gateway runs.`;
    this.#hide(true);
    this.notice.hidden = false;
    place(
      this.notice,
      h("h2", null, problem.status === 404 ? "No such request" : "It could not be loaded"),
      h("p", null, problem.status === 404 ? gone : problem.message),
      button("‹ Requests", () => this.back()),
    );
  }

  async #download() {
    const reply = await request(`requests/${encodeURIComponent(this.#key)}?download=1`);
    download(await reply.blob(), `${this.#key}.json`);
  }

  // What is shown of it.

  #hide(isHidden) {
    for (const part of [this.head, this.replay.node, this.columns]) part.hidden = isHidden;
  }

  #choose(turn) {
    this.#chosen = turn;
    this.#isChosen = true;
    this.#draw();
  }

  #show() {
    const detail = this.#detail;
    const { summary } = detail;
    this.#hide(false);
    this.notice.hidden = true;
    setText(this.title, line(summary.user_message, 300) || summary.target);
    this.#showMeta(summary, detail);
    this.sent.update(detail);
    this.received.update(detail);
    this.replay.update(detail);
    this.#draw();
  }

  #showMeta(summary, { masked_secrets: masked }) {
    const names = [summary.model, summary.upstream_model].filter((name) => name);
    const model = [...new Set(names)].map((name) => line(name, 60)).join(" → ");
    showOnce(this.meta, [summary, masked], () => [
      h("span", { class: "state", "data-state": stateOf(summary) }, statusText(summary)),
      h("span", null, this.#about.wires[summary.wire] ?? summary.wire),
      h("span", { class: "mono" }, model),
      summary.mode && h("span", null, summary.mode),
      h(
        "span",
        null,
        duration(summary.ms),
        summary.overhead_ms ? h(
          "span",
          { class: "faint" },
          ` (${duration(summary.overhead_ms)} gateway)`,
        ) : null,
      ),
      summary.retries > 0 && h("span", null, count(summary.retries, "retry", "retries")),
      masked > 0 && h("span", null, `${count(masked, "secret")} masked`),
      h("span", { class: "faint when" }, moment(summary.started_at)),
      h("span", { class: "faint mono when" }, summary.id || summary.key),
    ].filter((one) => one));
  }

  #draw() {
    const detail = this.#detail;
    if (!detail) return;
    const { time, length } = this.replay;
    if (!this.#isChosen) this.#chosen = turnAt(detail.attempts, time);
    this.#chosen = Math.min(this.#chosen, Math.max(0, detail.attempts.length - 1));
    this.timeline.update(detail, { length, time, chosen: this.#chosen });
    const turn = detail.attempts[this.#chosen];
    this.columns.classList.toggle("without-turns", !turn);
    if (turn) this.turn.update(turn, time, `${this.#key}/${this.#chosen}`);
    this.received.moveTo(detail, time);
  }

  key(event) {
    const isInControl = event.target.closest?.("button, select, input, textarea, .approval-arguments");
    if (event.key === "Escape") this.back();
    else if (event.key === "j") this.neighbour(this.#key, 1);
    else if (event.key === "k") this.neighbour(this.#key, -1);
    else if (event.key === "p") this.replay.toggle();
    else if (event.key === "ArrowRight" && !isInControl) this.replay.step(1);
    else if (event.key === "ArrowLeft" && !isInControl) this.replay.step(-1);
    else return false;
    return true;
  }
}

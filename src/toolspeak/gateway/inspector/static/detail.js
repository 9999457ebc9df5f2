// One request, from what the client sent to what it received.

import { get, request } from "./api.js";
import { Body } from "./body.js";
import { h, line, place, setText } from "./dom.js";
import { stateOf, statusText } from "./rows.js";
import { count, duration, moment, size, tokens } from "./format.js";
import { endAt, turnAt } from "./moments.js";
import { breakable, button, copyButton, download, facts, isPhone, section, showOnce } from "./parts.js";
import { Replay } from "./replay.js";
import { TextPane } from "./textpane.js";
import { Timeline } from "./timeline.js";
import { TurnView } from "./turn.js";
import { Understood, failureBox } from "./understood.js";

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
    const save = button("Download JSON", () => this.#download().catch((problem) => this.#fail(problem)));
    const link = copyButton("Copy link", () => `${location.origin}/#/requests/${this.#key}`);
    const step = (by, label, tip) => button(label, () => this.neighbour(this.#key, by), { class: "quiet step", "aria-label": tip, tip });
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
    this.sent = this.#buildSent();
    this.received = this.#buildReceived();
    const told = column("Model was told", this.turn.told);
    const wrote = column("Model wrote", this.turn.wrote);
    this.head = h("div", { class: "detail-head" }, bar, this.title, this.meta, this.timeline.node);
    this.columns = h("div", { class: "columns" }, this.sent, told, wrote, this.received);
    this.notice = h("div", { class: "empty", hidden: true });
    this.node = h("section", { class: "view detail", "aria-label": "One request" }, this.head, this.replay.node, this.columns, this.notice);
  }

  #buildSent() {
    this.sentFacts = h("div");
    this.sentBody = new Body("What the client sent");
    this.sentHeaders = h("div");
    return column(
      "Client sent",
      h(
        "div",
        { class: "stack" },
        this.sentFacts,
        section("Body", { open: !isPhone(), side: this.sentBody.tools }, this.sentBody.node).node,
        section("Headers", { open: false }, this.sentHeaders).node,
      ),
    );
  }

  #buildReceived() {
    this.receivedFacts = h("div");
    this.result = new Understood({ onChoose: (kind, index) => this.turn.understood.reveal(kind, index) });
    this.receivedBody = new TextPane({ label: "What the client received", isFrames: true });
    this.receivedHeaders = h("div");
    const copyBody = copyButton("Copy", () => this.#detail.received.body, { class: "quiet small" });
    this.bodySection = section("As it was sent", { open: !isPhone(), side: [copyBody] }, this.receivedBody.node);
    return column(
      "Client received",
      h(
        "div",
        { class: "stack" },
        this.receivedFacts,
        section("Calls and notes", {}, this.result.node).node,
        this.bodySection.node,
        section("Headers", { open: false }, this.receivedHeaders).node,
      ),
    );
  }

  // Which request it is.

  async enter(key) {
    if (key !== this.#key) {
      this.#key = key;
      this.#detail = null;
      this.#isChosen = false;
      this.replay.reset();
      this.receivedBody.reset();
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
    const isOver = this.#detail?.summary.is_over ?? true;
    if (!isOver && this.node.isConnected) this.#timer = setTimeout(() => this.#loadIfSeen(), AGAIN);
  }

  #loadIfSeen() {
    if (document.visibilityState === "visible") return this.#load();
    document.addEventListener("visibilitychange", () => this.node.isConnected && this.#load(), { once: true });
  }

  #fail(problem) {
    // A request that is shown stays, while the gateway cannot be reached.
    if (this.#detail && problem.status !== 404) {
      this.#timer = setTimeout(() => this.#loadIfSeen(), 4 * AGAIN);
      return;
    }
    const kept = this.#about.keeps?.requests;
    const gone = kept ? `It is not there any more: the last ${kept.toLocaleString("en")} are kept, while the gateway runs.` : problem.message;
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
    const { summary, sent, received } = detail;
    this.#hide(false);
    this.notice.hidden = true;
    setText(this.title, line(summary.asked, 300) || summary.target);
    this.#showMeta(summary, detail);
    showOnce(this.sentFacts, [sent.method, sent.target, sent.size], () =>
      facts([["request", h("span", { class: "mono" }, `${sent.method} `, breakable(sent.target))], ["size", size(sent.size)], ["tools", summary.tools || ""]]),
    );
    showOnce(this.sentHeaders, sent.headers, () => headers(sent.headers));
    this.sentBody.update(sent.body);
    showOnce(this.receivedFacts, [summary.status, summary.is_over, received.size, detail.usage, detail.failure], () => [
      failureBox(detail.failure),
      facts([["status", statusText(summary)], ["size", size(received.size)], ["tokens", tokens(detail.usage)]]),
    ]);
    showOnce(this.receivedHeaders, received.headers, () => headers(received.headers));
    this.result.update(detail, summary.is_over ? "No call." : "Nothing yet.");
    this.replay.update(detail);
    this.#draw();
  }

  #showMeta(summary, { hidden }) {
    const model = summary.served && summary.served !== summary.model ? `${line(summary.model, 60)} → ${line(summary.served, 60)}` : line(summary.model, 60);
    showOnce(this.meta, [summary, hidden], () => [
      h("span", { class: "state", "data-state": stateOf(summary) }, statusText(summary)),
      h("span", null, this.#about.wires[summary.wire] ?? summary.wire),
      h("span", { class: "mono" }, model),
      summary.mode && h("span", null, summary.mode),
      h("span", null, duration(summary.ms), summary.overhead_ms ? h("span", { class: "faint" }, ` (${duration(summary.overhead_ms)} gateway)`) : null),
      summary.retries > 0 && h("span", null, count(summary.retries, "retry", "retries")),
      hidden > 0 && h("span", null, `${count(hidden, "secret")} masked`),
      h("span", { class: "faint when" }, moment(summary.at)),
      h("span", { class: "faint mono when" }, summary.id || summary.key),
    ].filter((one) => one));
  }

  #draw() {
    const detail = this.#detail;
    if (!detail) return;
    const { time, length } = this.replay;
    if (!this.#isChosen) this.#chosen = turnAt(detail.turns, time);
    this.#chosen = Math.min(this.#chosen, Math.max(0, detail.turns.length - 1));
    this.timeline.update(detail, { length, time, chosen: this.#chosen });
    const turn = detail.turns[this.#chosen];
    this.columns.classList.toggle("without-turns", !turn);
    if (turn) this.turn.update(turn, time, `${this.#key}/${this.#chosen}`);
    const { body, chunks } = detail.received;
    this.receivedBody.follows = !detail.summary.is_over || time !== Infinity;
    this.receivedBody.update(body, [], endAt(chunks, "end", time, body, detail.summary.ms));
    this.bodySection.setHint(chunks.length ? count(chunks.length, "chunk") : "");
  }

  key(event) {
    const isInControl = event.target instanceof Element && event.target.closest("button, select, input, textarea");
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

function column(title, content) {
  return h("section", { class: "column", "aria-label": title }, h("h2", { class: "column-title" }, title), content);
}

function headers(values) {
  return h("dl", { class: "headers mono" }, Object.entries(values).map(([name, value]) => [h("dt", null, name), h("dd", null, String(value))]));
}

// One request: client request, model request, model reply, client response.

import { get, request } from "./api.js";
import { AttemptView } from "./attempt.js";
import { h, oneLine, setChildren, setText } from "./dom.js";
import { count, duration, moment, size, tokens } from "./format.js";
import { BodyView } from "./json_view.js";
import { failureBox, ParsedReply } from "./parsed_reply.js";
import { visibleLength, Replay, attemptAt } from "./replay.js";
import { requestState, statusText } from "./request_row.js";
import { TextPane } from "./text_pane.js";
import { Timeline } from "./timeline.js";
import { breakableUrl, button, column, copyButton, download, fieldList, isPhone, section, updateIfChanged } from "./widgets.js";

const POLL_MS = 400;

export class DetailView {
  #about;
  #key = "";
  #detail = null;
  #selected = 0;
  /** Whether the user selected an attempt, which then stays selected. */
  #isPinned = false;
  #timer = 0;

  constructor(about, { back, neighbour }) {
    this.#about = about;
    this.back = back;
    this.neighbour = neighbour;
    this.#build();
  }

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
      this.#isPinned = false;
      this.#draw();
    });
    this.timeline = new Timeline({ onSelect: (index) => this.#select(index) });
    this.attempt = new AttemptView();
    this.clientRequest = new ClientRequestColumn();
    this.clientResponse = new ClientResponseColumn({
      onSelect: (kind, index) => this.attempt.parsed.reveal(kind, index),
    });
    const modelRequest = column("Model request", this.attempt.requestPanel);
    const modelReply = column("Model reply", this.attempt.replyPanel);
    this.head = h("div", { class: "detail-head" }, bar, this.title, this.meta, this.timeline.node);
    this.columns = h("div", { class: "columns" }, this.clientRequest.node, modelRequest, modelReply, this.clientResponse.node);
    this.notice = h("div", { class: "empty", hidden: true });
    this.node = h(
      "section",
      { class: "view detail", "aria-label": "Request" },
      this.head,
      this.replay.node,
      this.columns,
      this.notice,
    );
  }

  async enter(key) {
    if (key !== this.#key) {
      this.#key = key;
      this.#detail = null;
      this.#isPinned = false;
      this.replay.reset();
      this.clientResponse.reset();
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
      // Screen readers announce the focused title.
      if (isNew) this.title.focus({ preventScroll: true });
    } catch (problem) {
      if (key === this.#key) this.#fail(problem);
    }
    const isOver = this.#detail?.summary.is_finished ?? true;
    if (!isOver && this.node.isConnected) this.#timer = setTimeout(() => this.#loadIfSeen(), POLL_MS);
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
    // Keep showing the request while the gateway is unreachable.
    if (this.#detail && problem.status !== 404) {
      this.#timer = setTimeout(() => this.#loadIfSeen(), 4 * POLL_MS);
      return;
    }
    const kept = this.#about.keeps.requests;
    const most = kept.toLocaleString("en");
    const gone = `The gateway keeps the last ${most} requests while it runs.`;
    this.#hide(true);
    this.notice.hidden = false;
    setChildren(
      this.notice,
      h("h2", null, problem.status === 404 ? "Request not found" : "Could not load the request"),
      h("p", null, problem.status === 404 ? gone : problem.message),
      button("‹ Requests", () => this.back()),
    );
  }

  async #download() {
    const reply = await request(`requests/${encodeURIComponent(this.#key)}?download=1`);
    download(await reply.blob(), `${this.#key}.json`);
  }

  #hide(isHidden) {
    for (const part of [this.head, this.replay.node, this.columns]) part.hidden = isHidden;
  }

  #select(index) {
    this.#selected = index;
    this.#isPinned = true;
    this.#draw();
  }

  #show() {
    const detail = this.#detail;
    const { summary } = detail;
    this.#hide(false);
    this.notice.hidden = true;
    setText(this.title, oneLine(summary.user_message, 300) || summary.target);
    this.#showMeta(summary, detail);
    this.clientRequest.update(detail);
    this.clientResponse.update(detail);
    this.replay.update(detail);
    this.#draw();
  }

  #showMeta(summary, { masked_secrets: masked }) {
    const names = [summary.model, summary.upstream_model].filter((name) => name);
    const model = [...new Set(names)].map((name) => oneLine(name, 60)).join(" → ");
    updateIfChanged(this.meta, [summary, masked], () => [
      h("span", { class: "state", "data-state": requestState(summary) }, statusText(summary)),
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
          ` (${duration(summary.overhead_ms)} overhead)`,
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
    if (!this.#isPinned) this.#selected = attemptAt(detail.attempts, time);
    this.#selected = Math.min(this.#selected, Math.max(0, detail.attempts.length - 1));
    this.timeline.update(detail, { length, time, selected: this.#selected });
    const attempt = detail.attempts[this.#selected];
    this.columns.classList.toggle("without-attempts", !attempt);
    if (attempt) this.attempt.update(attempt, time, `${this.#key}/${this.#selected}`);
    this.clientResponse.moveTo(detail, time);
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

export class ClientRequestColumn {
  constructor() {
    this.facts = h("div");
    this.body = new BodyView("Client request body");
    this.headers = h("div");
    this.node = column(
      "Client request",
      h(
        "div",
        { class: "stack" },
        this.facts,
        section("Body", { open: !isPhone(), side: this.body.tools }, this.body.node).node,
        section("Headers", { open: false }, this.headers).node,
      ),
    );
  }

  update({ request: sent, summary }) {
    const { method, target } = sent;
    updateIfChanged(this.facts, [method, target, sent.size, summary.tools], () =>
      fieldList([
        ["request", h("span", { class: "mono" }, `${method} `, breakableUrl(target))],
        ["size", size(sent.size)],
        ["tools", summary.tools || ""],
      ]),
    );
    updateIfChanged(this.headers, sent.headers, () => headers(sent.headers));
    this.body.update(sent.body);
  }
}

export class ClientResponseColumn {
  #text = "";

  /** Calls `onSelect(kind, index)` when a call or a note is clicked. */
  constructor({ onSelect }) {
    this.facts = h("div");
    this.parsed = new ParsedReply({ onSelect });
    this.body = new TextPane({ label: "Client response body", isFrames: true });
    this.headers = h("div");
    const side = [copyButton("Copy", () => this.#text, { class: "quiet small" })];
    this.bodySection = section("Raw response", { open: !isPhone(), side }, this.body.node);
    this.node = column(
      "Client response",
      h(
        "div",
        { class: "stack" },
        this.facts,
        section("Calls and notes", {}, this.parsed.node).node,
        this.bodySection.node,
        section("Headers", { open: false }, this.headers).node,
      ),
    );
  }

  reset() {
    this.body.reset();
  }

  update({ summary, response, calls, notes, usage, failure }) {
    const { status, is_finished: isOver } = summary;
    this.#text = response.body;
    updateIfChanged(this.facts, [status, isOver, response.size, usage, failure], () => [
      failureBox(failure),
      fieldList([
        ["status", statusText(summary)],
        ["size", size(response.size)],
        ["tokens", tokens(usage)],
      ]),
    ]);
    updateIfChanged(this.headers, response.headers, () => headers(response.headers));
    this.parsed.update({ calls, notes }, isOver ? "No calls." : "Waiting…");
    const { length } = response.chunks;
    this.bodySection.setHint(length ? count(length, "chunk") : "");
  }

  /** Shows what had been sent by then. */
  moveTo({ summary, response: { body, chunks } }, time) {
    this.body.follows = !summary.is_finished || time !== Infinity;
    this.body.update(body, [], visibleLength(chunks, "end", time, body, summary.ms));
  }
}

function headers(values) {
  const pairs = Object.entries(values).map(([name, value]) => [
    h("dt", null, name),
    h("dd", null, String(value)),
  ]);
  return h("dl", { class: "headers mono" }, pairs);
}

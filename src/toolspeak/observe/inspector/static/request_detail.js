// One request: client request, model request, model reply, client response.

import { GATEWAY, get, request } from "./api.js";
import { AttemptView } from "./attempt.js";
import { h, oneLine, setChildren, setText } from "./dom.js";
import { count, duration, moment, size, tokens } from "./format.js";
import { BodyView } from "./json_view.js";
import { failureBox, ParsedReply } from "./parsed_reply.js";
import { requestState, statusText } from "./request_store.js";
import { TextPane } from "./text_pane.js";
import { attemptAt, Replay, Timeline, visibleLength } from "./timeline.js";
import {
  button, column, copyButton, download, fieldList, isPhone, section, setHint, updateIfChanged,
} from "./widgets.js";

const POLL_MS = 400;

export class DetailView {
  #about;
  #key = "";
  #detail = null;
  #selected = 0;
  /** True once the user has selected an attempt, which then stays selected. */
  #isPinned = false;
  #timer = 0;

  constructor(about, { back, neighbour }) {
    this.#about = about;
    this.back = back;
    this.neighbour = neighbour;
    this.#build();
  }

  #build() {
    this.title = h("h1.detail-title", { tabindex: "-1" });
    this.meta = h("div.detail-meta");
    const copyCurl = copyButton("Copy as curl", () => this.#detail.curl);
    const save = button(
      "Download JSON",
      () => this.#download().catch((problem) => this.#fail(problem)),
    );
    const link = copyButton("Copy link", () => `${GATEWAY}#/requests/${this.#key}`);
    const step = (by, label, tip) => button(
      label,
      () => this.neighbour(this.#key, by),
      { class: "quiet step", "aria-label": tip, tip },
    );
    const bar = h(
      "div.detail-bar",
      button("‹ Requests", () => this.back(), { class: "quiet", tip: "Back (Esc)" }),
      step(-1, "↑", "Newer (k)"), step(1, "↓", "Older (j)"),
      h("span.spring"), copyCurl, save, link,
    );
    this.replay = new Replay({
      onMove: () => {
        this.#isPinned = false;
        this.#draw();
      },
    });
    this.timeline = new Timeline({ onSelect: (index) => this.#select(index) });
    this.attempt = new AttemptView();
    this.clientRequest = new ClientRequestColumn();
    this.clientResponse = new ClientResponseColumn({
      onSelect: (kind, index) => this.attempt.reply.parsed.reveal(kind, index),
    });
    const modelRequest = column("Model request", this.attempt.requestPanel);
    const modelReply = column("Model reply", this.attempt.replyPanel);
    this.head = h("div.detail-head", bar, this.title, this.meta, this.timeline.node);
    this.columns = h(
      "div.columns",
      this.clientRequest.node,
      modelRequest,
      modelReply,
      this.clientResponse.node,
    );
    this.notice = h("div.empty", { hidden: true });
    this.node = h(
      "section.view.detail",
      { "aria-label": "Request" },
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
    const most = this.#about.max_requests.toLocaleString("en");
    const gone = `The gateway keeps the last ${most} requests while it runs.`;
    this.#hide(true);
    this.notice.hidden = false;
    setChildren(
      this.notice,
      h("h2", problem.status === 404 ? "Request not found" : "Could not load the request"),
      h("p", problem.status === 404 ? gone : problem.message),
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
      h("span.state", { "data-state": requestState(summary) }, statusText(summary)),
      h("span", this.#about.wires[summary.wire] ?? summary.wire),
      h("span.mono", model),
      summary.mode && h("span", summary.mode),
      h(
        "span",
        duration(summary.ms),
        summary.overhead_ms > 0 &&
          h("span.faint", ` (${duration(summary.overhead_ms)} overhead)`),
      ),
      summary.retries > 0 && h("span", count(summary.retries, "retry", "retries")),
      masked > 0 && h("span", `${count(masked, "secret")} masked`),
      h("span.faint.when", moment(summary.started_at)),
      h("span.faint.mono.when", summary.id || summary.key),
    ]);
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

class ClientRequestColumn {
  constructor() {
    this.facts = h("div");
    this.body = new BodyView("Client request body");
    this.headers = h("div");
    this.node = column(
      "Client request",
      h(
        "div.stack",
        this.facts,
        section("Body", { open: !isPhone(), side: this.body.tools }, this.body.node),
        section("Headers", { open: false }, this.headers),
      ),
    );
  }

  update({ request: sent, summary }) {
    updateIfChanged(this.facts, [
      ["request", `${sent.method} ${sent.target}`, "mono"],
      ["size", size(sent.size)],
      ["tools", summary.tools || ""],
    ], fieldList);
    updateIfChanged(this.headers, sent.headers, renderHeaders);
    this.body.update(sent.body);
  }
}

class ClientResponseColumn {
  /** Calls `onSelect(kind, index)` when a call or a note is clicked. */
  constructor({ onSelect }) {
    this.facts = h("div");
    this.parsed = new ParsedReply({ onSelect });
    this.body = new TextPane({ label: "Client response body", isFrames: true });
    this.headers = h("div");
    this.bodySection = section(
      "Raw response",
      { open: !isPhone(), side: [this.body.copy] },
      this.body.node,
    );
    this.node = column(
      "Client response",
      h(
        "div.stack",
        this.facts,
        section("Calls and notes", {}, this.parsed.node),
        this.bodySection,
        section("Headers", { open: false }, this.headers),
      ),
    );
  }

  reset() {
    this.body.reset();
  }

  update({ summary, response, calls, notes, usage, failure }) {
    const fields = [
      ["status", statusText(summary)],
      ["size", size(response.size)],
      ["tokens", tokens(usage)],
    ];
    updateIfChanged(this.facts, [failure, fields], () => [failureBox(failure), fieldList(fields)]);
    updateIfChanged(this.headers, response.headers, renderHeaders);
    this.parsed.update({ calls, notes }, summary.is_finished ? "No calls or notes." : "Waiting…");
    const { length } = response.chunks;
    setHint(this.bodySection, length ? count(length, "chunk") : "");
  }

  /** Shows what had been sent by then. */
  moveTo({ summary, response: { body, chunks } }, time) {
    this.body.follows = !summary.is_finished || time !== Infinity;
    this.body.update(body, [], visibleLength(chunks, "end", time, body, summary.ms));
  }
}

function renderHeaders(headers) {
  const pairs = Object.entries(headers);
  return h("dl.headers.mono", pairs.map(([name, value]) => [h("dt", name), h("dd", value)]));
}

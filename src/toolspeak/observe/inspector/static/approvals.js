// Approvals that agents wait for. They are at the bottom of every view, where nothing moves when
// they appear. Only a button answers them, and not in the first moment after it appears.

import { post } from "./api.js";
import { h, keyedList, oneLine, setText } from "./dom.js";
import { count, countdown, joinPresent } from "./format.js";
import { expandedJson } from "./json_view.js";
import { button } from "./widgets.js";

/** A new button ignores clicks for this long: they were meant for something else. */
const CLICK_GUARD_MS = 800;
const RESULT_MS = 6_000;
const ANSWER_TEXTS = {
  yes: "Allowed once.",
  always: "Allowed for the rest of the agent's session.",
  no: "Denied.",
};

const TOO_LATE = "Too late: already answered or expired. Your answer had no effect.";

export class Approvals {
  #pending = [];
  #answered = new Map();

  constructor({ onCount }) {
    this.onCount = onCount;
    this.list = h("div.approval-cards");
    this.summary = h("span", { role: "status" });
    this.fold = button("Hide", () => this.#fold(), { class: "quiet small", "aria-expanded": "true" });
    this.node = h(
      "aside.approvals",
      { "aria-label": "Approvals", hidden: true },
      h("div.approvals-head", this.summary, h("span.spring"), this.fold),
      this.list,
    );
    this.drawCards = keyedList(this.list, (approval) => approval.id, (approval) => this.#card(approval));
    setInterval(() => this.#draw(), 1000);
  }

  update(approvals) {
    this.#pending = approvals;
    this.#draw();
  }

  show() {
    this.#fold(false);
    // Not a button: the next key may be meant for something else.
    this.list.firstElementChild?.focus();
  }

  #fold(isFolded = !this.node.classList.contains("folded")) {
    this.node.classList.toggle("folded", isFolded);
    setText(this.fold, isFolded ? "Show" : "Hide");
    this.fold.setAttribute("aria-expanded", !isFolded);
  }

  #draw() {
    const now = Date.now() / 1000;
    const open = this.#pending.filter(({ id, expires_at: expiresAt }) => expiresAt > now && !this.#answered.has(id));
    const answered = [...this.#answered.values()].map(({ approval }) => approval);
    this.node.hidden = !open.length && !answered.length;
    setText(this.summary, open.length ? `${count(open.length, "call")} waiting for approval` : "Answered");
    this.drawCards([...answered, ...open]);
    this.onCount(open.length);
  }

  #card(approval) {
    const { id, tool, source, agent, secrets } = approval;
    const left = h("span.expiry", { "data-tip": "Denied when the time is up" });
    const outcome = h("p.approval-result", { role: "status", hidden: true });
    const shownAt = performance.now();
    const answer = async (word) => {
      if (performance.now() - shownAt < CLICK_GUARD_MS || this.#answered.has(id)) return;
      await this.#answer(approval, word);
    };
    const choice = (word, label) =>
      button(label, () => answer(word), { class: `answer-${word}` });
    const buttons = h(
      "div.answers",
      choice("yes", "Allow once"),
      approval.can_always && choice("always", "Always allow"),
      choice("no", "Deny"),
      approval.can_always && h(
        "span.faint.small",
        "Always allow: this tool, with any arguments, until the agent's session ends.",
      ),
    );
    const node = h(
      "article.card.card-approval",
      { tabindex: "-1", "aria-label": `Approve ${oneLine(tool, 80)}?` },
      h(
        "header",
        h("strong.name", tool),
        h(
          "span.faint",
          joinPresent(
            ", ",
            source && `from ${oneLine(source, 120)}`,
            agent && `requested by ${oneLine(agent, 120)}`,
          ),
        ),
        h("span.spring"),
        left,
      ),
      approval.is_echo && h(
        "p.warning",
        "This call repeats one from a tool result. The user may not have asked for it.",
      ),
      secrets.length > 0 && h(
        "div.warning",
        "This call would receive secrets:",
        h("ul", secrets.map((words) => h("li", words))),
      ),
      h(
        "div.approval-arguments",
        { role: "region", "aria-label": "Arguments", tabindex: "0" },
        expandedJson(approval.arguments),
      ),
      buttons, outcome,
    );
    const update = () => {
      const result = this.#answered.get(id)?.result;
      setText(left, result ? "" : countdown(approval.expires_at - Date.now() / 1000));
      node.classList.toggle("is-over", Boolean(result));
      outcome.hidden = !result;
      setText(outcome, result ?? "");
    };
    return { node, update };
  }

  async #answer(approval, word) {
    const result = await post(`approvals/${encodeURIComponent(approval.id)}`, { answer: word }).then(
      ({ answer }) => ANSWER_TEXTS[answer] ?? oneLine(answer),
      (problem) => (problem.status === 404 ? TOO_LATE : `Could not answer: ${problem.message}`),
    );
    this.#answered.set(approval.id, { approval, result });
    this.#draw();
    setTimeout(() => {
      this.#answered.delete(approval.id);
      this.#pending = this.#pending.filter(({ id }) => id !== approval.id);
      this.#draw();
    }, RESULT_MS);
  }
}

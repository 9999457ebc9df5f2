// Questions of agents that wait for somebody. They stand at the lower edge of every view, where
// nothing moves when they come; only a button answers them, and none in the moment it appears.

import { post } from "./api.js";
import { button } from "./parts.js";
import { h, keyed, line, setText } from "./dom.js";
import { count, countdown } from "./format.js";
import { wholeJson } from "./json.js";

/** So long a button does nothing: a key or a click that was meant for something else. */
const STRAY = 800;
const SAID = 6_000;
const ANSWERS = {
  yes: "Allowed once.",
  always: "Allowed for the rest of the agent's session.",
  no: "Refused.",
};

const TOO_LATE = "Too late: it was answered elsewhere, or has expired. It was not allowed by this.";

export class Approvals {
  #pending = [];
  #answered = new Map();

  constructor({ onCount }) {
    this.onCount = onCount;
    this.list = h("div", { class: "approval-cards" });
    this.summary = h("span", { role: "status" });
    this.fold = button("Hide", () => this.#fold(), { class: "quiet small", "aria-expanded": "true" });
    this.node = h(
      "aside",
      { class: "approvals", "aria-label": "Approvals", hidden: true },
      h("div", { class: "approvals-head" }, this.summary, h("span", { class: "spring" }), this.fold),
      this.list,
    );
    this.drawCards = keyed(this.list, (approval) => approval.id, (approval) => this.#card(approval));
    setInterval(() => this.#draw(), 1000);
  }

  update(approvals) {
    this.#pending = approvals;
    this.#draw();
  }

  show() {
    this.#fold(false);
    // Not a button: the next key that is pressed may have been meant for something else.
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
    const said = [...this.#answered.values()].map(({ approval }) => approval);
    this.node.hidden = !open.length && !said.length;
    setText(this.summary, open.length ? `${count(open.length, "approval")} waiting` : "Answered");
    this.drawCards([...said, ...open]);
    this.onCount(open.length);
  }

  #card(approval) {
    const { id, tool, source, agent, secrets } = approval;
    const left = h("span", { class: "expiry", "data-tip": "Then the answer is no" });
    const outcome = h("p", { class: "said", role: "status", hidden: true });
    const shownAt = performance.now();
    const answer = async (word) => {
      if (performance.now() - shownAt < STRAY || this.#answered.has(id)) return;
      await this.#answer(approval, word);
    };
    const choice = (word, label, name) => button(
      label,
      () => answer(word),
      { class: `answer ${name}` },
    );
    const buttons = h(
      "div",
      { class: "answers" },
      choice("yes", "Yes, once", "answer-yes"),
      approval.can_always && choice("always", "Always", "answer-always"),
      choice("no", "No", "answer-no"),
      approval.can_always && h(
        "span",
        { class: "faint small" },
        "Always: this tool, with any arguments, until the agent's session ends.",
      ),
    );
    const node = h(
      "article",
      { class: "card card-approval", tabindex: "-1", "aria-label": `May ${line(tool, 80)} run?` },
      h(
        "header",
        null,
        h("strong", { class: "name" }, tool),
        h(
          "span",
          { class: "faint" },
          [
            source && `from ${line(source, 120)}`,
            agent && `asked by ${line(agent, 120)}`,
          ].filter((one) => one).join(", "),
        ),
        h("span", { class: "spring" }),
        left,
      ),
      approval.is_echo && h(
        "p",
        { class: "warning" },
        "The model only repeats a call that stands in what a tool has given it. ",
        "Nobody may have asked for it.",
      ),
      secrets.length > 0 && h(
        "div",
        { class: "warning" },
        "The call would be given secrets:",
        h("ul", null, secrets.map((words) => h("li", null, words))),
      ),
      h(
        "div",
        { class: "approval-arguments", role: "region", "aria-label": "Arguments", tabindex: "0" },
        wholeJson(approval.arguments),
      ),
      buttons, outcome,
    );
    const update = () => {
      const said = this.#answered.get(id)?.said;
      setText(left, said ? "" : countdown(approval.expires_at - Date.now() / 1000));
      node.classList.toggle("is-over", Boolean(said));
      outcome.hidden = !said;
      setText(outcome, said ?? "");
    };
    return { node, update };
  }

  async #answer(approval, word) {
    const said = await post(`approvals/${encodeURIComponent(approval.id)}`, { answer: word }).then(
      ({ answer }) => ANSWERS[answer] ?? line(answer),
      (problem) => (problem.status === 404 ? TOO_LATE : `Not answered: ${problem.message}`),
    );
    this.#answered.set(approval.id, { approval, said });
    this.#draw();
    setTimeout(() => {
      this.#answered.delete(approval.id);
      this.#pending = this.#pending.filter(({ id }) => id !== approval.id);
      this.#draw();
    }, SAID);
  }
}

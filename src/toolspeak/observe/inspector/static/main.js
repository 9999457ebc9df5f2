// The page: its frame, and which view the address names.

import { decoded, get, live, offerToken, onRefused, takeToken, tryToken } from "./api.js";
import { Approvals } from "./approvals.js";
import { ChatView } from "./chat.js";
import { DetailView } from "./detail.js";
import { h, place, setText } from "./dom.js";
import { installKeys } from "./keys.js";
import { button } from "./parts.js";
import { PlaygroundView } from "./playground.js";
import { RequestsView } from "./requests.js";
import { Requests } from "./store.js";
import { installTips } from "./tip.js";

const NAMES = { requests: "Requests", playground: "Playground", chat: "Chat" };

class Page {
  #requests = new Requests();
  #views = {};
  #view = null;
  #epoch = null;
  #started = Promise.resolve();
  /** The filter of the list, for the way back to it. */
  #filter = "";

  constructor() {
    this.main = h("main", { class: "main" });
    this.links = Object.entries(NAMES).map(([name, label]) => h(
      "a",
      { href: `#/${name}`, "data-view": name },
      label,
    ));
    this.connection = h("span", { class: "connection", role: "status" });
    this.approvals = new Approvals({ onCount: (waiting) => this.#countApprovals(waiting) });
    this.badge = button("", () => this.approvals.show(), { class: "badge", hidden: true });
    this.theme = button(
      "◐",
      () => toolspeakTheme.toggle(),
      { class: "quiet", "aria-label": "Dark or light", tip: "Dark or light" },
    );
    this.help = button(
      "?",
      () => this.showKeys(),
      { class: "quiet keys", "aria-label": "Keys", tip: "Keys" },
    );
    const bar = h(
      "header",
      { class: "topbar" },
      h("span", { class: "brand" }, "toolspeak"),
      h("nav", { "aria-label": "Views" }, this.links),
      h("span", { class: "spring" }), this.connection, this.badge, this.theme, this.help,
    );
    document.body.replaceChildren(bar, this.main, this.approvals.node);
    installTips();
    this.showKeys = installKeys({
      go: (letter) => this.#go(letter),
      search: () => this.#search(),
      view: () => this.#view,
    });
    onRefused((refused) => this.#refuse(refused));
    window.addEventListener("hashchange", () => this.#move());
  }

  /** Once after the other: what an earlier start is refused is not said over a later one. */
  start() {
    const start = () => this.#start();
    return (this.#started = this.#started.then(start, start));
  }

  async #start() {
    takeToken();
    await tryToken();
    try {
      this.about = await get("about");
    } catch (problem) {
      if (problem.status === 401 || problem.status === 403) return;
      this.#wait();
      return;
    }
    this.#views = {};
    this.#route();
    if (!this.isFollowing) this.#follow();
  }

  #wait() {
    place(
      this.main,
      h(
        "div",
        { class: "empty" },
        h("p", { class: "faint" }, "The gateway does not answer. It is tried again every few seconds."),
      ),
    );
    setTimeout(() => this.start(), 2000);
  }

  #follow() {
    this.isFollowing = true;
    live((message) => this.#hear(message), (isConnected) => this.#connected(isConnected));
  }

  #hear({ requests = [], approvals, epoch }) {
    const isAnew = epoch && this.#epoch && epoch !== this.#epoch;
    this.#epoch = epoch ?? this.#epoch;
    if (isAnew) this.#requests.replace(requests);
    else this.#requests.take(requests);
    if (approvals) this.approvals.update(approvals);
  }

  #connected(isConnected) {
    setText(this.connection, isConnected ? "" : "reconnecting…");
    this.connection.classList.toggle("lost", !isConnected);
  }

  #countApprovals(waiting) {
    this.badge.hidden = !waiting;
    setText(this.badge, `${waiting} to approve`);
    document.title = waiting ? `(${waiting}) Toolspeak` : "Toolspeak";
  }

  // Where one is.

  async #move() {
    if (takeToken() && (await tryToken())) await this.start();
    else this.#route();
  }

  #route() {
    if (!this.about) return;
    const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
    const [, name = "requests", key = ""] = path.split("/");
    const view = Object.hasOwn(NAMES, name) ? name : "requests";
    const words = new URLSearchParams(query);
    if (view === "requests" && key) {
      this.#show("detail", decoded(key));
    } else {
      if (view === "requests") this.#filterBy(query);
      this.#show(view, words);
    }
    for (const link of this.links) {
      if (link.dataset.view === view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  #filterBy(query) {
    this.#filter = query;
    this.links[0].setAttribute("href", this.#listAddress());
  }

  #listAddress() {
    return this.#filter ? `#/requests?${this.#filter}` : "#/requests";
  }

  #show(name, where) {
    const view = (this.#views[name] ??= this.#make(name));
    if (this.#view !== view) this.#view?.leave?.();
    this.#view = view;
    place(this.main, view.node);
    view.enter(where);
  }

  #make(name) {
    if (name === "playground") return new PlaygroundView(this.about);
    if (name === "chat") return new ChatView(this.about);
    if (name === "detail") return this.#makeDetail();
    return new RequestsView(this.#requests, this.about, {
      openWith: (key) => (location.hash = `#/requests/${encodeURIComponent(key)}`),
      onFilter: (query) => {
        this.#filterBy(query);
        history.replaceState(null, "", this.#listAddress());
      },
    });
  }

  #makeDetail() {
    const list = () => (this.#views.requests ??= this.#make("requests"));
    return new DetailView(this.about, {
      back: () => (location.hash = this.#listAddress()),
      neighbour: (key, step) => {
        const next = list().neighbour(key, step);
        if (!next) return;
        list().select(next);
        location.replace(`#/requests/${encodeURIComponent(next)}`);
      },
    });
  }

  #go(letter) {
    const name = { r: "requests", p: "playground", c: "chat" }[letter];
    if (name) location.hash = name === "requests" ? this.#listAddress() : `#/${name}`;
    if (letter === "a") this.approvals.show();
    return Boolean(name) || letter === "a";
  }

  #search() {
    const list = (this.#views.requests ??= this.#make("requests"));
    if (this.#view !== list) {
      history.pushState(null, "", this.#listAddress());
      this.#route();
    }
    // At once: what is typed next belongs there.
    list.search.focus();
  }

  // Who may not see it.

  #refuse({ status, message }) {
    this.isFollowing = false;
    this.#view = null;
    const problem = this.main.querySelector(".token-form .problem");
    if (status === 401 && problem) {
      // Somebody may be typing there.
      setText(problem, "That does not open it.");
      return;
    }
    const content = status === 401 ? this.#tokenForm() : h(
      "div",
      { class: "empty" },
      h("h2", null, "The inspector is off"),
      h("p", null, message),
    );
    place(this.main, content);
    content.querySelector("input")?.focus();
  }

  #tokenForm() {
    const field = h(
      "input",
      { type: "password", class: "input", "aria-label": "Token or admin key", autocomplete: "off" },
    );
    const enter = (event) => {
      event.preventDefault();
      offerToken(field.value);
      this.start();
    };
    return h(
      "form",
      { class: "empty token-form", on: { submit: enter } },
      h("h2", null, "A token is needed"),
      h(
        "p",
        null,
        "Open the address that ",
        h("code", null, "toolspeak serve"),
        " has printed, or paste its token, or the admin key:",
      ),
      h(
        "div",
        { class: "token-field" },
        field,
        h("button", { type: "submit", class: "primary" }, "Open"),
      ),
      h("p", { class: "problem", role: "status" }),
    );
  }
}

new Page().start();

// The page frame, routing between the views, and the keyboard shortcuts.

import { decodeUri, get, followLive, offerToken, onAccessError, readTokenFromUrl, verifyToken } from "./api.js";
import { Approvals } from "./approvals.js";
import { ChatView } from "./chat.js";
import { h, setChildren, setText } from "./dom.js";
import { PlaygroundView } from "./playground.js";
import { DetailView } from "./request_detail.js";
import { RequestsView } from "./request_list.js";
import { RequestStore } from "./request_store.js";
import { button, installTooltips } from "./widgets.js";

const VIEW_NAMES = { requests: "Requests", playground: "Playground", chat: "Chat" };
const KEYS = [
  ["j, k or ↓, ↑", "next, previous request"],
  ["Enter", "open the request"],
  ["Esc", "back"],
  ["/", "search"],
  ["←, →", "in a request: move by one step"],
  ["p", "in a request: play or pause"],
  ["g r, g p, g c", "go to requests, playground, chat"],
  ["g a", "go to pending approvals"],
  ["?", "show these shortcuts"],
];
const SEQUENCE_MS = 900;
const FIELDS = "input:not([type=range], [type=checkbox]), textarea, select";

class Page {
  #requests = new RequestStore();
  #views = {};
  #view = null;
  #epoch = null;
  #started = Promise.resolve();
  /** The filter of the list, to restore it on the way back. */
  #filter = "";

  constructor() {
    this.main = h("main.main");
    this.links = Object.entries(VIEW_NAMES).map(([name, label]) => h(
      "a",
      { href: `#/${name}`, "data-view": name },
      label,
    ));
    this.connection = h("span.connection", { role: "status" });
    this.approvals = new Approvals({ onCount: (waiting) => this.#countApprovals(waiting) });
    this.badge = button("", () => this.approvals.show(), { class: "badge", hidden: true });
    this.theme = button(
      "◐",
      () => toolspeakTheme.toggle(),
      { class: "quiet", "aria-label": "Switch theme", tip: "Switch theme" },
    );
    this.help = button(
      "?",
      () => this.showKeys(),
      { class: "quiet keys", "aria-label": "Keyboard shortcuts", tip: "Keyboard shortcuts (?)" },
    );
    const bar = h(
      "header.topbar",
      h("span.brand", "toolspeak"),
      h("nav", { "aria-label": "Views" }, this.links),
      h("span.spring"), this.connection, this.badge, this.theme, this.help,
    );
    document.body.replaceChildren(bar, this.main, this.approvals.node);
    installTooltips();
    this.showKeys = installShortcuts({
      go: (letter) => this.#go(letter),
      search: () => this.#search(),
      view: () => this.#view,
    });
    onAccessError((refused) => this.#showAccessError(refused));
    window.addEventListener("hashchange", () => this.#onHashChange());
  }

  /** Starts run one after another, so that an earlier failure cannot replace a later result. */
  start() {
    const start = () => this.#start();
    return (this.#started = this.#started.then(start, start));
  }

  async #start() {
    readTokenFromUrl();
    await verifyToken();
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
    setChildren(
      this.main,
      h("div.empty", h("p.faint", "The gateway is not responding. Retrying every few seconds…")),
    );
    setTimeout(() => this.start(), 2000);
  }

  #follow() {
    this.isFollowing = true;
    followLive((message) => this.#receive(message), (isConnected) => this.#connected(isConnected));
  }

  #receive({ requests = [], approvals, epoch }) {
    const isRestarted = epoch && this.#epoch && epoch !== this.#epoch;
    this.#epoch = epoch ?? this.#epoch;
    if (isRestarted) this.#requests.replace(requests);
    else this.#requests.merge(requests);
    if (approvals) this.approvals.update(approvals);
  }

  #connected(isConnected) {
    setText(this.connection, isConnected ? "" : "Reconnecting…");
    this.connection.classList.toggle("lost", !isConnected);
  }

  #countApprovals(waiting) {
    this.badge.hidden = !waiting;
    setText(this.badge, `${waiting} to approve`);
    document.title = waiting ? `(${waiting}) Toolspeak` : "Toolspeak";
  }

  // Routing.

  async #onHashChange() {
    if (readTokenFromUrl() && (await verifyToken())) await this.start();
    else this.#route();
  }

  #route() {
    if (!this.about) return;
    const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
    const [, name = "requests", key = ""] = path.split("/");
    const view = Object.hasOwn(VIEW_NAMES, name) ? name : "requests";
    const words = new URLSearchParams(query);
    if (view === "requests" && key) {
      this.#show("detail", decodeUri(key));
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
    setChildren(this.main, view.node);
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
    // Focus at once: the next keys belong to the search.
    list.search.focus();
  }

  // Access.

  #showAccessError({ status, message }) {
    this.isFollowing = false;
    this.#view = null;
    const problem = this.main.querySelector(".token-form .problem");
    if (status === 401 && problem) {
      // Keep the form: the user may be typing.
      setText(problem, "This token or key is wrong. Use the URL that `toolspeak serve` printed.");
      return;
    }
    const content = status === 401 ? this.#tokenForm() : h(
      "div.empty",
      h("h2", "The inspector is off"),
      h("p", message),
    );
    setChildren(this.main, content);
    content.querySelector("input")?.focus();
  }

  #tokenForm() {
    const field = h(
      "input.input",
      { type: "password", "aria-label": "Token or admin key", autocomplete: "off" },
    );
    const enter = (event) => {
      event.preventDefault();
      offerToken(field.value);
      this.start();
    };
    return h(
      "form.empty.token-form",
      { on: { submit: enter } },
      h("h2", "Sign in"),
      h(
        "p",
        "Open the URL that ",
        h("code", "toolspeak serve"),
        " printed, or enter its token or the admin key:",
      ),
      h("div.token-field", field, h("button.primary", { type: "submit" }, "Sign in")),
      h("p.problem", { role: "status" }),
    );
  }
}

// Keyboard shortcuts.

/** `go(letter)` handles g and a letter, `search()` the slash; `view().key` handles all others. */
function installShortcuts({ go, search, view }) {
  const card = createHelpDialog();
  let leaderAt = -Infinity;

  document.addEventListener("keydown", (event) => {
    const isShortcut = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (!isShortcut || event.defaultPrevented || card.open) return;
    const isTyping = event.target.closest?.(FIELDS);
    if (isTyping) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const isSecond = event.timeStamp - leaderAt < SEQUENCE_MS;
    leaderAt = -Infinity;
    if (isSecond && go(event.key)) event.preventDefault();
    else if (event.key === "g") leaderAt = event.timeStamp;
    else if (event.key === "?") card.showModal();
    else if (event.key === "/") {
      event.preventDefault();
      search();
    } else if (view()?.key?.(event)) event.preventDefault();
  });
  return () => card.showModal();
}

function createHelpDialog() {
  const card = h(
    "dialog.help",
    { "aria-label": "Keyboard shortcuts" },
    h("h2", "Keyboard shortcuts"),
    h("dl", KEYS.map(([keys, meaning]) => [h("dt", keys), h("dd", meaning)])),
    button("Close", () => card.close()),
  );
  document.body.append(card);
  return card;
}

new Page().start();

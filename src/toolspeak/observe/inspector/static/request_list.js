// The list of requests, with its filter and selection.

import { GATEWAY } from "./api.js";
import { debounce, h, setText } from "./dom.js";
import { count } from "./format.js";
import { createRow, fillRow, headerRow, VirtualList } from "./request_rows.js";
import { createMatcher, EMPTY_FILTER, FLAGS, readFilter, writeFilter } from "./request_store.js";
import { button, isPhone, menu, updateIfChanged } from "./widgets.js";

const ROW_HEIGHT = 32;
const PHONE_ROW_HEIGHT = 62;
const MODES = [["", "All modes"], ["native"], ["prompt"], ["constrained"]];

export class RequestsView {
  #requests;
  #about;
  #filter = EMPTY_FILTER;
  #shown = [];
  #new = 0;
  #selected = "";
  #isPaused = false;
  #scrollTop = 0;

  constructor(requests, about, { openWith, onFilter }) {
    this.#requests = requests;
    this.#about = about;
    this.open = openWith;
    this.onFilter = onFilter;
    this.#build();
    requests.addEventListener("change", () => this.#changed());
    requests.addEventListener("replaced", () => this.#showNew());
    this.#apply();
  }

  #build() {
    this.search = h("input.search", {
      type: "search", placeholder: "Search", "aria-label": "Search requests",
      "aria-keyshortcuts": "/", spellcheck: "false", autocomplete: "off",
      on: { input: debounce(120, () => this.#set({ search: this.search.value.trim() })) },
    });
    const apis = Object.entries(this.#about.wires);
    this.api = menu("API", [["", "All APIs"], ...apis], (api) => this.#set({ api }));
    this.mode = menu("Mode", MODES, (mode) => this.#set({ mode }));
    this.flags = Object.entries(FLAGS).map(([name, { label }]) => this.#flag(name, label));
    this.pause = button(
      "Pause",
      () => this.#pause(),
      { class: "toggle pause", "aria-pressed": "false" },
    );
    this.requestCount = h("span.faint.request-count");
    this.newRequests = button("", () => this.#showNew(), { class: "new-requests", hidden: true });
    this.list = new VirtualList({
      height: isPhone() ? PHONE_ROW_HEIGHT : ROW_HEIGHT,
      make: createRow,
      fill: (row, index) => this.#fill(row, index),
      onScroll: () => this.#scrolled(),
      onDraw: () => this.#drawSelection(),
      role: "listbox", tabindex: "0", "aria-label": "Requests, newest first",
    });
    this.list.node.prepend(headerRow());
    matchMedia("(max-width: 700px)").addEventListener("change", (phone) => {
      this.list.height = phone.matches ? PHONE_ROW_HEIGHT : ROW_HEIGHT;
      this.#apply();
    });
    this.empty = h("div.empty");
    const tools = h(
      "div.toolbar",
      { role: "search" },
      this.search, this.api, this.mode,
      h("span.flags", { role: "group", "aria-label": "Filter by" }, this.flags),
      this.requestCount, h("span.spring"), this.pause,
    );
    this.node = h(
      "section.view.requests",
      { "aria-label": "Requests" },
      tools,
      this.newRequests,
      this.list.node,
      this.empty,
    );
  }

  #flag(name, label) {
    const toggle = () => {
      const has = this.#filter.has.filter((other) => other !== name);
      this.#set({ has: has.length < this.#filter.has.length ? has : [...has, name] });
    };
    return button(label, toggle, { class: "toggle", "aria-pressed": "false", "data-name": name });
  }

  #fill(row, index) {
    const summary = this.#shown[index];
    const isSelected = summary.key === this.#selected;
    fillRow(row, summary, { wires: this.#about.wires, isSelected });
  }

  enter(words) {
    const filter = readFilter(words);
    if (writeFilter(filter) !== writeFilter(this.#filter)) {
      this.#filter = filter;
      this.#apply();
    }
    this.list.scrollTop = this.#scrollTop;
    this.list.draw();
    if (this.#selected) this.list.node.focus({ preventScroll: true });
  }

  leave() {
    this.#scrollTop = this.list.scrollTop;
  }

  #set(change) {
    this.#filter = { ...this.#filter, ...change };
    this.#selected = "";
    this.list.scrollTop = 0;
    this.#apply();
    this.onFilter(writeFilter(this.#filter));
  }

  #matching() {
    return this.#requests.all.filter(createMatcher(this.#filter, this.#about.wires)).reverse();
  }

  /** Shows all matching requests. */
  #apply() {
    this.#shown = this.#matching();
    this.#new = 0;
    this.#draw();
  }

  #changed() {
    const holds = this.#isPaused || this.#selected || this.list.scrollTop > 4;
    if (!holds) return this.#apply();
    const known = new Set(this.#shown.map((summary) => summary.key));
    this.#new = this.#matching().filter((summary) => !known.has(summary.key)).length;
    // Visible rows stay in place and only update their content.
    if (!this.#isPaused) this.#shown = this.#shown.map((old) => this.#requests.get(old.key) ?? old);
    this.#draw();
  }

  #draw() {
    const { search, api, mode, has } = this.#filter;
    if (document.activeElement !== this.search) this.search.value = search;
    this.api.value = api;
    this.mode.value = mode;
    for (const toggle of this.flags) {
      toggle.setAttribute("aria-pressed", has.includes(toggle.dataset.name));
    }
    const total = this.#requests.all.length;
    const isAll = !writeFilter(this.#filter);
    const shown = this.#shown.length.toLocaleString("en");
    const all = total ? count(total, "request") : "";
    setText(this.requestCount, isAll ? all : `${shown} of ${total.toLocaleString("en")}`);
    this.newRequests.hidden = !this.#new;
    setText(this.newRequests, `↑ ${this.#new.toLocaleString("en")} new`);
    this.list.show(this.#shown.length);
    this.#drawEmpty(total);
  }

  #drawEmpty(total) {
    this.empty.hidden = this.#shown.length > 0;
    if (this.empty.hidden) return;
    updateIfChanged(this.empty, total > 0, (hasAny) =>
      hasAny ? this.#nothingFound() : renderFirstSteps(),
    );
  }

  #nothingFound() {
    const all = button("Show all", () => {
      this.search.value = "";
      this.#set(EMPTY_FILTER);
    });
    return h("p", "No requests match. ", all);
  }

  #pause() {
    this.#isPaused = !this.#isPaused;
    this.pause.setAttribute("aria-pressed", this.#isPaused);
    setText(this.pause, this.#isPaused ? "Paused" : "Pause");
    if (!this.#isPaused) this.#changed();
  }

  #showNew() {
    this.#selected = "";
    this.#scrollTop = this.list.scrollTop = 0;
    this.#apply();
  }

  #scrolled() {
    if (this.#new && this.list.scrollTop === 0 && !this.#selected && !this.#isPaused) this.#apply();
  }

  /** The key of the request that many rows below another. */
  neighbour(key, step) {
    const at = this.#shown.findIndex((summary) => summary.key === key);
    return this.#shown[at < 0 ? 0 : at + step]?.key;
  }

  select(key) {
    this.#selected = key;
    const at = this.#shown.findIndex((summary) => summary.key === key);
    if (at >= 0) this.list.scrollTo(at);
    this.#scrollTop = this.list.scrollTop;
    this.list.draw();
  }

  /** Marks the active row for screen readers, while it is in the document. */
  #drawSelection() {
    const { node } = this.list;
    const row = node.querySelector('a.row[aria-selected="true"]');
    if (row) node.setAttribute("aria-activedescendant", row.id);
    else node.removeAttribute("aria-activedescendant");
  }

  #moveSelection(step) {
    const at = this.#shown.findIndex((summary) => summary.key === this.#selected);
    const next = at < 0 ? 0 : Math.max(0, Math.min(this.#shown.length - 1, at + step));
    if (!this.#shown[next]) return;
    this.select(this.#shown[next].key);
    this.list.node.focus({ preventScroll: true });
  }

  /** Handles a key; returns whether it did. */
  key(event) {
    const page = this.list.rowsInPage();
    const steps = {
      j: 1,
      ArrowDown: 1,
      k: -1,
      ArrowUp: -1,
      PageDown: page,
      PageUp: -page,
      Home: -Infinity,
      End: Infinity,
    };
    const isInControl = event.target.closest?.("button, select, input, .approval-arguments");
    if (isInControl && event.key !== "j" && event.key !== "k") return false;
    if (event.key in steps) this.#moveSelection(steps[event.key]);
    else if (event.key === "Enter" && this.#selected) this.open(this.#selected);
    else if (event.key === "Escape" && this.#selected) this.#deselect();
    else return false;
    return true;
  }

  #deselect() {
    this.#selected = "";
    this.#changed();
    this.list.draw();
  }
}

const CITY = { type: "object", properties: { city: { type: "string" } } };
const BODY = {
  messages: [{ role: "user", content: "What is the weather in Oslo?" }],
  tools: [{ type: "function", function: { name: "get_weather", parameters: CITY } }],
};

function renderFirstSteps() {
  const curl = [
    `curl -s ${GATEWAY}v1/chat/completions \\`,
    "  -H 'content-type: application/json' \\",
    `  -d '${JSON.stringify(BODY)}'`,
  ].join("\n");
  return h(
    "div.first-steps",
    h("h2", "No requests yet"),
    h("p", "Requests to this gateway appear here. To send one from a shell:"),
    h("pre.code", curl),
    h(
      "p.faint",
      "Or talk to a model in ", h("a", { href: "#/chat" }, "the chat"),
      ", or see how replies are parsed in ", h("a", { href: "#/playground" }, "the playground"), ".",
    ),
  );
}

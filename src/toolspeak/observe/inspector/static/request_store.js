// The requests that the page knows, in order of arrival, their states, and the filter for them.

/** More than a gateway keeps, and few enough to search on each key press. */
const MAX_REQUESTS = 10_000;

export class RequestStore extends EventTarget {
  /** Oldest first. */
  all = [];
  #byKey = new Map();

  get(key) {
    return this.#byKey.get(key);
  }

  /** Adds new summaries and replaces earlier ones. */
  merge(summaries) {
    if (!summaries.length) return;
    this.#add(summaries);
    this.dispatchEvent(new Event("change"));
  }

  /** Replaces all: the gateway was restarted. */
  replace(summaries) {
    this.#byKey.clear();
    this.#add(summaries);
    this.dispatchEvent(new Event("replaced"));
  }

  #add(summaries) {
    for (const summary of summaries) this.#byKey.set(summary.key, summary);
    // A Map keeps the position of replaced entries.
    this.all = [...this.#byKey.values()];
    const isInOrder = this.all.every((one, at) => !at || this.all[at - 1].started_at <= one.started_at);
    if (!isInOrder) this.all.sort((one, other) => one.started_at - other.started_at);
    for (const old of this.all.splice(0, this.all.length - MAX_REQUESTS)) this.#byKey.delete(old.key);
  }
}

export const FLAGS = {
  calls: { label: "Calls", test: (summary) => summary.calls.length > 0 },
  retried: { label: "Retried", test: (summary) => summary.retries > 0 },
  notes: { label: "Notes", test: (summary) => summary.notes.length > 0 },
  failed: { label: "Failed", test: isFailed },
};

export const EMPTY_FILTER = { search: "", api: "", mode: "", has: [] };

function isFailed(summary) {
  return Boolean(summary.failure) || summary.status >= 400;
}

export function requestState(summary) {
  if (!summary.is_finished) return "running";
  if (summary.status === 499) return "canceled";
  return isFailed(summary) ? "failed" : "done";
}

export function statusText(summary) {
  if (!summary.is_finished) return "running";
  return summary.status === 499 ? "canceled" : String(summary.status || "");
}

export function readFilter(words) {
  const has = (words.get("has") ?? "").split(",").filter((name) => Object.hasOwn(FLAGS, name));
  return {
    search: words.get("q") ?? "",
    api: words.get("api") ?? "",
    mode: words.get("mode") ?? "",
    has,
  };
}

export function writeFilter({ search, api, mode, has }) {
  const words = new URLSearchParams();
  if (search) words.set("q", search);
  if (api) words.set("api", api);
  if (mode) words.set("mode", mode);
  if (has.length) words.set("has", has.join(","));
  // Commas need no escape here, and unescaped links are easier to read.
  return words.toString().replaceAll("%2C", ",");
}

const SEARCHED = [
  "key", "id", "wire", "target", "model", "upstream_model", "upstream", "mode", "user_message",
  "failure", "calls", "notes", "status",
];
const texts = new WeakMap();

function searchText(summary, wires) {
  if (!texts.has(summary)) texts.set(summary, joinSearchText(summary, wires));
  return texts.get(summary);
}

function joinSearchText(summary, wires) {
  const words = SEARCHED.map((name) => summary[name]);
  return [...words.flat(), wires[summary.wire], statusText(summary)].join("\n").toLowerCase();
}

/** Returns the test of a filter; a summary must contain every word of the search. */
export function createMatcher({ search, api, mode, has }, wires) {
  const words = search.toLowerCase().split(/\s+/).filter((word) => word);
  return (summary) =>
    (!api || summary.wire === api) &&
    (!mode || summary.mode === mode) &&
    has.every((name) => FLAGS[name].test(summary)) &&
    words.every((word) => searchText(summary, wires).includes(word));
}

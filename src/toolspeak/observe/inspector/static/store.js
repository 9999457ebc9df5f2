// All requests that the page knows of, in the order in which they came.

/** More than a gateway keeps, and few enough to search while one types. */
const MOST = 10_000;

export class Requests extends EventTarget {
  /** Oldest first. */
  all = [];
  #byKey = new Map();

  get(key) {
    return this.#byKey.get(key);
  }

  /** Takes in summaries, new ones and those that replace earlier ones. */
  take(summaries) {
    if (!summaries.length) return;
    this.#add(summaries);
    this.dispatchEvent(new Event("change"));
  }

  /** Forgets all others: the gateway has started anew. */
  replace(summaries) {
    this.#byKey.clear();
    this.#add(summaries);
    this.dispatchEvent(new Event("anew"));
  }

  #add(summaries) {
    for (const summary of summaries) this.#byKey.set(summary.key, summary);
    // Replaced ones keep their place in a Map.
    this.all = [...this.#byKey.values()];
    const isInOrder = this.all.every((one, at) => !at || this.all[at - 1].started_at <= one.started_at);
    if (!isInOrder) this.all.sort((one, other) => one.started_at - other.started_at);
    for (const old of this.all.splice(0, this.all.length - MOST)) this.#byKey.delete(old.key);
  }
}

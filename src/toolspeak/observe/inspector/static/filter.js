// Which requests are shown: as words of the address, so that it can be linked.

export const TRAITS = {
  calls: { label: "calls", test: (summary) => summary.calls.length > 0 },
  retried: { label: "retried", test: (summary) => summary.retries > 0 },
  notes: { label: "notes", test: (summary) => summary.notes.length > 0 },
  failed: { label: "failed", test: isFailed },
};

export const NOTHING = { search: "", api: "", mode: "", has: [] };

export function isFailed(summary) {
  return Boolean(summary.failure) || summary.status >= 400;
}

export function readFilter(words) {
  const has = (words.get("has") ?? "").split(",").filter((name) => Object.hasOwn(TRAITS, name));
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
  // A comma needs no escape here, and links are read by people.
  return words.toString().replaceAll("%2C", ",");
}

const texts = new WeakMap();

function textOf(summary, wires) {
  if (!texts.has(summary)) texts.set(summary, writeText(summary, wires));
  return texts.get(summary);
}

function writeText(summary, wires) {
  const {
    key,
    id,
    wire,
    target,
    model,
    upstream_model,
    upstream,
    mode,
    user_message,
    calls,
    notes,
    failure,
  } = summary;
  const words = [key, id, wire, wires[wire], target, model, upstream_model, upstream, mode, user_message, failure];
  return [...words, ...calls, ...notes, summary.status || "running"].join("\n").toLowerCase();
}

/** The test of a filter: every word of the search is somewhere in what the row tells. */
export function matcher({ search, api, mode, has }, wires) {
  const words = search.toLowerCase().split(/\s+/).filter((word) => word);
  return (summary) =>
    (!api || summary.wire === api) &&
    (!mode || summary.mode === mode) &&
    has.every((name) => TRAITS[name].test(summary)) &&
    words.every((word) => textOf(summary, wires).includes(word));
}

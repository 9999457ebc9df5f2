// One row of the list of requests.

import { h, line, setText } from "./dom.js";
import { clock, duration } from "./format.js";
import { isFailed } from "./filter.js";

const COLUMNS = [
  ["time", "Time"],
  ["status", "Status"],
  ["api", "API"],
  ["model", "Model"],
  ["mode", "Mode"],
  ["asked", "Asked"],
  ["calls", "Calls"],
  ["retries", "Retries"],
  ["notes", "Notes"],
  ["ms", "Took"],
];

export function header() {
  const cell = ([name, label]) => h("span", { class: `cell ${name}` }, label);
  return h("div", { class: "row row-head", "aria-hidden": "true" }, COLUMNS.map(cell));
}

export function makeRow() {
  const cells = COLUMNS.map(([name]) => h("span", { class: `cell ${name}` }));
  return h("a", { class: "row", role: "option", tabindex: "-1" }, cells);
}

const filled = new WeakMap();

export function fillRow(row, summary, { wires, isSelected }) {
  row.setAttribute("aria-selected", isSelected);
  if (filled.get(row) === summary) return;
  filled.set(row, summary);
  const texts = textsOf(summary, wires);
  for (const [at, [name]] of COLUMNS.entries()) setText(row.children[at], texts[name]);
  row.setAttribute("href", `#/requests/${encodeURIComponent(summary.key)}`);
  row.id = `row-${summary.key}`;
  row.dataset.key = summary.key;
  row.dataset.state = stateOf(summary);
  const [, status, , model, , asked, calls, retries, notes, took] = row.children;
  tip(status, summary.status === 499 ? "The client left before the end." : summary.failure);
  tip(
    model,
    summary.upstream_model && summary.upstream_model !== summary.model ? `asked for ${line(summary.model)}` : "",
  );
  tip(asked, texts.asked.length > 40 ? texts.asked : "");
  tip(calls, summary.calls.length ? line(summary.calls.join(", ")) : "");
  tip(retries, summary.retries ? `asked again ${summary.retries} times` : "");
  tip(notes, line(summary.notes.join(", ")));
  tip(took, summary.overhead_ms ? `of which ${duration(summary.overhead_ms)} in the gateway` : "");
}

function tip(cell, text) {
  if (text) cell.dataset.tip = line(text);
  else delete cell.dataset.tip;
}

function textsOf(summary, wires) {
  const { calls, notes, retries } = summary;
  return {
    time: clock(summary.started_at),
    status: statusText(summary),
    api: wires[summary.wire] ?? summary.wire,
    model: line(summary.upstream_model || summary.model, 80),
    mode: summary.mode,
    asked: line(summary.user_message, 200) || summary.target,
    calls: calls.length > 1 ? `${line(calls[0], 60)} +${calls.length - 1}` : line(calls[0] ?? "", 60),
    retries: retries ? `↻ ${retries}` : "",
    notes: notes.length || "",
    ms: summary.is_finished ? duration(summary.ms) : "",
  };
}

export function stateOf(summary) {
  if (!summary.is_finished) return "running";
  if (summary.status === 499) return "left";
  return isFailed(summary) ? "failed" : "done";
}

export function statusText(summary) {
  if (!summary.is_finished) return "running";
  return summary.status === 499 ? "left" : String(summary.status || "");
}

// One row of the list of requests.

import { h, oneLine, setText } from "./dom.js";
import { clock, count, duration } from "./format.js";
import { isFailed } from "./request_store.js";

const COLUMNS = [
  ["time", "Time"],
  ["status", "Status"],
  ["api", "API"],
  ["model", "Model"],
  ["mode", "Mode"],
  ["user-message", "User message"],
  ["calls", "Calls"],
  ["retries", "Retries"],
  ["notes", "Notes"],
  ["duration", "Duration"],
];

export function headerRow() {
  const cell = ([name, label]) => h("span", { class: `cell ${name}` }, label);
  return h("div", { class: "row row-head", "aria-hidden": "true" }, COLUMNS.map(cell));
}

export function createRow() {
  const cells = COLUMNS.map(([name]) => h("span", { class: `cell ${name}` }));
  return h("a", { class: "row", role: "option", tabindex: "-1" }, cells);
}

const filled = new WeakMap();

export function fillRow(row, summary, { wires, isSelected }) {
  row.setAttribute("aria-selected", isSelected);
  if (filled.get(row) === summary) return;
  filled.set(row, summary);
  const texts = cellTexts(summary, wires);
  for (const [at, [name]] of COLUMNS.entries()) setText(row.children[at], texts[name]);
  row.setAttribute("href", `#/requests/${encodeURIComponent(summary.key)}`);
  row.id = `row-${summary.key}`;
  row.dataset.key = summary.key;
  row.dataset.state = requestState(summary);
  const [, status, , model, , message, calls, retries, notes, time] = row.children;
  setTooltip(status, summary.status === 499 ? "The client disconnected before the end." : summary.failure);
  setTooltip(
    model,
    summary.upstream_model && summary.upstream_model !== summary.model ? `requested as ${oneLine(summary.model)}` : "",
  );
  setTooltip(message, texts["user-message"].length > 40 ? texts["user-message"] : "");
  setTooltip(calls, summary.calls.length ? oneLine(summary.calls.join(", ")) : "");
  setTooltip(retries, summary.retries ? count(summary.retries, "retry", "retries") : "");
  setTooltip(notes, oneLine(summary.notes.join(", ")));
  setTooltip(time, summary.overhead_ms ? `${duration(summary.overhead_ms)} gateway overhead` : "");
}

function setTooltip(cell, text) {
  if (text) cell.dataset.tip = oneLine(text);
  else delete cell.dataset.tip;
}

function cellTexts(summary, wires) {
  const { calls, notes, retries } = summary;
  return {
    time: clock(summary.started_at),
    status: statusText(summary),
    api: wires[summary.wire] ?? summary.wire,
    model: oneLine(summary.upstream_model || summary.model, 80),
    mode: summary.mode,
    "user-message": oneLine(summary.user_message, 200) || summary.target,
    calls: calls.length > 1 ? `${oneLine(calls[0], 60)} +${calls.length - 1}` : oneLine(calls[0] ?? "", 60),
    retries: retries ? `↻ ${retries}` : "",
    notes: notes.length || "",
    duration: summary.is_finished ? duration(summary.ms) : "",
  };
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

// What the page asks of the gateway, with its token.

import { parseExact } from "./json.js";

const ROOT = "/inspector/api/";
const TOKEN = "toolspeak.token";
/** Longer than this without even a ping, and the connection is taken for lost. */
const SILENCE = 40_000;
const SLOWEST = 8_000;

export class Refused extends Error {
  constructor(status, message, details = {}) {
    super(message);
    this.status = status;
    this.details = details;
  }
}

const refusals = new EventTarget();

/** Hears of every refusal that concerns the page as a whole: 401 and 403. */
export function onRefused(listener) {
  refusals.addEventListener("refused", (event) => listener(event.detail));
}

/** Takes the token out of the address, where it would be copied along with links. */
export function takeToken() {
  const match = /(?:^#|[?&])token=([^&]*)/.exec(location.hash);
  if (!match) return;
  keepToken(decodeURIComponent(match[1]));
  const rest = location.hash.replace(match[0], "").replace(/^#?&/, "#").replace(/^(#?[^?&]*)&/, "$1?");
  history.replaceState(null, "", rest.length > 1 ? rest : "#/requests");
}

export function keepToken(token) {
  localStorage.setItem(TOKEN, token.trim());
}

export async function request(path, options = {}) {
  const headers = new Headers(options.headers);
  const token = localStorage.getItem(TOKEN);
  if (token) headers.set("authorization", `Bearer ${token}`);
  if (options.body) headers.set("content-type", "application/json");
  const reply = await fetch(ROOT + path, { cache: "no-store", ...options, headers }).catch(unreachable);
  if (reply.ok) return reply;
  throw await refusalOf(reply);
}

function unreachable(problem) {
  if (problem.name === "AbortError") throw problem;
  throw new Refused(0, "The gateway cannot be reached.");
}

async function refusalOf(reply) {
  let details = {};
  try {
    details = (await reply.json()).error ?? {};
  } catch {
    // Not of the inspector itself: the status has to do.
  }
  const message = details.message ?? `The gateway answered ${reply.status}.`;
  const refused = new Refused(reply.status, message, details);
  if (reply.status === 401 || reply.status === 403) {
    refusals.dispatchEvent(new CustomEvent("refused", { detail: refused }));
  }
  return refused;
}

export async function get(path, options) {
  return parseExact(await (await request(path, options)).text());
}

export async function post(path, body, options) {
  const sent = { method: "POST", body: JSON.stringify(body), ...options };
  return parseExact(await (await request(path, sent)).text());
}

/** The lines of a reply, as they come. */
export async function* lines(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const whole = (rest + value).split("\n");
      rest = whole.pop();
      yield* whole;
    }
    if (rest) yield rest;
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * Tells all that is new, for as long as the page is open: each message goes to `hears`, and
 * `isConnected(true or false)` follows the connection, which is made anew whenever it is lost.
 */
export function live(hears, isConnected) {
  let after = 0;
  let wait = 0;
  let woken = () => {};

  async function follow() {
    const abort = new AbortController();
    let silence = setTimeout(() => abort.abort(), SILENCE);
    try {
      const reply = await request(`live?after=${after}`, { signal: abort.signal });
      for await (const text of lines(reply)) {
        clearTimeout(silence);
        silence = setTimeout(() => abort.abort(), SILENCE);
        wait = 0;
        isConnected(true);
        if (!text.trim()) continue;
        const message = JSON.parse(text);
        after = message.next ?? after;
        hears(message);
      }
    } finally {
      clearTimeout(silence);
    }
  }

  async function forever() {
    for (;;) {
      try {
        await follow();
      } catch (problem) {
        // The form for the token, or the message that it is off, says it better.
        if (problem instanceof Refused && [401, 403].includes(problem.status)) return;
      }
      isConnected(false);
      wait = Math.min(SLOWEST, Math.max(400, wait * 2));
      await Promise.race([
        new Promise((resolve) => setTimeout(resolve, wait * (0.8 + 0.4 * Math.random()))),
        new Promise((resolve) => (woken = resolve)),
      ]);
    }
  }

  const wake = () => document.visibilityState === "visible" && woken();
  document.addEventListener("visibilitychange", wake);
  window.addEventListener("online", () => woken());
  forever();
}

/** Parses server-sent events that carry JSON: the values of their data lines. */
export async function* events(reply) {
  for await (const text of lines(reply)) {
    const data = text.startsWith("data:") ? text.slice(5).trim() : "";
    if (data && data !== "[DONE]") yield JSON.parse(data);
  }
}

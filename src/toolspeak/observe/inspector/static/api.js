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

/** A token that is not yet known to be good, and where it is to be kept. */
let offer = null;

/**
 * Takes the token out of the address, where it would be copied along with links; whether there was
 * one. Anybody can make a link with any token, so that it first has to be tried.
 */
export function takeToken() {
  const match = /(?:^#|[?&])token=([^&]*)/.exec(location.hash);
  if (!match) return false;
  offer = { token: decoded(match[1]).trim(), storage: localStorage };
  const rest = location.hash.replace(match[0], "").replace(/^#?&/, "#").replace(/^(#?[^?&]*)&/, "$1?");
  history.replaceState(null, "", rest.length > 1 ? rest : "#/requests");
  return true;
}

/** Takes what somebody has typed: it may be the key of an admin, so it goes when the tab does. */
export function offerToken(typed) {
  offer = { token: typed.trim(), storage: sessionStorage };
}

/** Keeps the token that was offered if it opens the gateway, else the one of before. */
export async function tryToken() {
  if (!offer) return false;
  const tried = offer;
  const status = await statusWith(tried.token);
  // Nobody was there to say: it is tried again later.
  if (!status || offer !== tried) return false;
  offer = null;
  const isKept = status < 300 || (status !== 401 && !heldToken());
  if (isKept) {
    // What is typed holds for this tab, and a newer address goes before it.
    sessionStorage.removeItem(TOKEN);
    tried.storage.setItem(TOKEN, tried.token);
  }
  return isKept;
}

function heldToken() {
  return sessionStorage.getItem(TOKEN) ?? localStorage.getItem(TOKEN) ?? "";
}

async function statusWith(token) {
  const headers = new Headers();
  if (!authorize(headers, token)) return 401;
  const asked = fetch(`${ROOT}about`, { cache: "no-store", headers });
  return asked.then((reply) => reply.status, () => 0);
}

/** Whether it is a token that can be sent at all. */
function authorize(headers, token) {
  try {
    headers.set("authorization", `Bearer ${token}`);
    return Boolean(token);
  } catch {
    return false;
  }
}

export function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export async function request(path, options = {}) {
  const headers = new Headers(options.headers);
  const token = heldToken();
  if (token) authorize(headers, token);
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
  let epoch = "";
  let wait = 0;
  let woken = () => {};

  // A gateway that was started anew counts from its own beginning: what it is asked for does, too.
  function isOfAnother(message) {
    const isAnother = message.epoch && epoch && message.epoch !== epoch;
    epoch = message.epoch ?? epoch;
    return isAnother && after > 0;
  }

  /** Whether it has to be asked again, from the beginning. */
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
        const message = parseExact(text);
        if (isOfAnother(message)) {
          after = 0;
          return true;
        }
        after = message.next ?? after;
        hears(message);
      }
      return false;
    } finally {
      clearTimeout(silence);
    }
  }

  async function forever() {
    for (;;) {
      try {
        if (await follow()) continue;
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

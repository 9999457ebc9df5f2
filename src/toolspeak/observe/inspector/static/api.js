// Requests to the gateway's inspector API, with its token.

import { parseExact } from "./json_view.js";

/** The gateway's address, with the path at which it is mounted. */
export const GATEWAY = new URL("..", import.meta.url).href;
const ROOT = `${GATEWAY}inspector/api/`;
const TOKEN = "toolspeak.token";
/** Without even a ping for this long, the connection counts as lost. */
const SILENCE_MS = 40_000;
const MAX_RETRY_MS = 8_000;

class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let accessErrorListener = () => {};

/** Sets the listener for 401 and 403, which concern the whole page. */
export function onAccessError(listener) {
  accessErrorListener = listener;
}

/** A token that is not verified yet, and where to store it. */
let offer = null;

/**
 * Moves the token out of the address, so that it is not copied with links; returns whether there
 * was one. Anybody can craft a link with any token, so it is verified first.
 */
export function readTokenFromUrl() {
  const match = /(?:^#|[?&])token=([^&]*)/.exec(location.hash);
  if (!match) return false;
  offer = { token: decodeUri(match[1]).trim(), storage: localStorage };
  const rest = location.hash.replace(match[0], "").replace(/^#?&/, "#").replace(/^(#?[^?&]*)&/, "$1?");
  history.replaceState(null, "", rest.length > 1 ? rest : "#/requests");
  return true;
}

/** Sets a typed token. It may be an admin key, so it is forgotten with the tab. */
export function offerToken(typed) {
  offer = { token: typed.trim(), storage: sessionStorage };
}

/** Stores the offered token if the gateway accepts it; else keeps the previous one. */
export async function verifyToken() {
  if (!offer) return false;
  const tried = offer;
  const status = await checkToken(tried.token);
  // The gateway did not respond: try again later.
  if (!status || offer !== tried) return false;
  offer = null;
  const isKept = status < 300 || (status !== 401 && !storedToken());
  if (isKept) {
    // A newer token replaces the typed one of this tab.
    sessionStorage.removeItem(TOKEN);
    tried.storage.setItem(TOKEN, tried.token);
  }
  return isKept;
}

function storedToken() {
  return sessionStorage.getItem(TOKEN) ?? localStorage.getItem(TOKEN) ?? "";
}

async function checkToken(token) {
  const headers = new Headers();
  if (!authorize(headers, token)) return 401;
  const response = fetch(`${ROOT}about`, { cache: "no-store", headers });
  return response.then((reply) => reply.status, () => 0);
}

/** Sets the header; returns whether the token can be sent at all. */
function authorize(headers, token) {
  try {
    headers.set("authorization", `Bearer ${token}`);
    return Boolean(token);
  } catch {
    return false;
  }
}

export function decodeUri(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export async function request(path, options = {}) {
  const headers = new Headers(options.headers);
  const token = storedToken();
  if (token) authorize(headers, token);
  if (options.body) headers.set("content-type", "application/json");
  const reply = await fetch(ROOT + path, { cache: "no-store", ...options, headers }).catch(throwUnreachable);
  if (reply.ok) return reply;
  throw await readError(reply);
}

function throwUnreachable(problem) {
  if (problem.name === "AbortError") throw problem;
  throw new ApiError(0, "Cannot reach the gateway.");
}

async function readError(reply) {
  let details = {};
  try {
    details = (await reply.json()).error ?? {};
  } catch {
    // The error is not from the inspector itself: use the status.
  }
  const message = details.message ?? `The gateway returned status ${reply.status}.`;
  const refused = new ApiError(reply.status, message);
  if (reply.status === 401 || reply.status === 403) accessErrorListener(refused);
  return refused;
}

export async function get(path) {
  return parseExact(await (await request(path)).text());
}

export async function post(path, body) {
  const sent = { method: "POST", body: JSON.stringify(body) };
  return parseExact(await (await request(path, sent)).text());
}

/** Yields the lines of a response as they arrive. */
async function* readLines(reply) {
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
 * Follows live updates while the page is open: calls `onMessage` with each, and `onConnection(true
 * or false)` as the connection changes. It reconnects whenever the connection is lost.
 */
export function followLive(onMessage, onConnection) {
  let after = 0;
  let wait = 0;
  let woken = () => {};

  async function follow() {
    const abort = new AbortController();
    let hasBegun = false;
    let silence = setTimeout(() => abort.abort(), SILENCE_MS);
    try {
      const reply = await request(`live?after=${after}`, { signal: abort.signal });
      for await (const text of readLines(reply)) {
        clearTimeout(silence);
        silence = setTimeout(() => abort.abort(), SILENCE_MS);
        wait = 0;
        hasBegun = true;
        onConnection(true);
        if (!text.trim()) continue;
        const message = parseExact(text);
        after = message.next ?? after;
        onMessage(message);
      }
      // Streams end from time to time; but one that is empty is from a gateway that stops.
      if (!hasBegun) throw new ApiError(0, "The gateway is stopping.");
    } finally {
      clearTimeout(silence);
    }
  }

  async function forever() {
    for (;;) {
      try {
        await follow();
      } catch (problem) {
        // The token form or the message about the disabled inspector is shown instead.
        if (problem instanceof ApiError && [401, 403].includes(problem.status)) return;
        onConnection(false);
      }
      wait = Math.min(MAX_RETRY_MS, Math.max(400, wait * 2));
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

/** Yields the JSON values of server-sent events. */
export async function* readServerSentEvents(reply) {
  for await (const text of readLines(reply)) {
    const data = text.startsWith("data:") ? text.slice(5).trim() : "";
    if (data && data !== "[DONE]") yield JSON.parse(data);
  }
}

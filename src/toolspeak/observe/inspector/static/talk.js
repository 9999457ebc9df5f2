// A conversation with a model over OpenAI's chat API: what is said, without how it looks.

import { events, request } from "./api.js";

/** Asks, and tells of each piece as it comes: {text}, {calls}, {id}. Gives the whole message. */
export async function ask({ model, messages, tools, signal, tell }) {
  const body = JSON.stringify({ model, messages, stream: true, ...(tools.length ? { tools } : {}) });
  const reply = await request("chat", { method: "POST", body, signal });
  tell({ id: reply.headers.get("x-request-id") });
  const message = { role: "assistant", content: "", tool_calls: [] };
  for await (const event of events(reply)) {
    if (event.error) throw new Error(event.error.message ?? "The reply broke off.");
    const delta = event.choices?.[0]?.delta ?? {};
    if (delta.content) {
      message.content += delta.content;
      tell({ text: message.content });
    }
    for (const piece of delta.tool_calls ?? []) takeCall(message.tool_calls, piece);
  }
  return withoutEmpty(message);
}

function takeCall(calls, { index = calls.length, id, function: { name, arguments: text } = {} }) {
  const call = (calls[index] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
  if (id) call.id = id;
  if (name) call.function.name = name;
  call.function.arguments += text ?? "";
}

function withoutEmpty(message) {
  const calls = message.tool_calls.filter((call) => call);
  const { tool_calls: _, ...rest } = message;
  return calls.length ? { ...rest, tool_calls: calls } : rest;
}

// What to do where nothing has happened yet.

import { h } from "./dom.js";

const CITY = { type: "object", properties: { city: { type: "string" } } };
const BODY = {
  model: "any",
  messages: [{ role: "user", content: "What is the weather in Oslo?" }],
  tools: [{ type: "function", function: { name: "get_weather", parameters: CITY } }],
};

export function firstSteps() {
  const curl = [
    `curl -s ${location.origin}/v1/chat/completions \\`,
    "  -H 'content-type: application/json' \\",
    `  -d '${JSON.stringify(BODY)}'`,
  ].join("\n");
  return h(
    "div",
    { class: "first-steps" },
    h("h2", null, "No request yet"),
    h("p", null, "Whatever a client asks this gateway appears here. In a shell, for example:"),
    h("pre", { class: "code" }, curl),
    h(
      "p",
      { class: "faint" },
      "Or talk with a model in ", h("a", { href: "#/chat" }, "the chat"),
      ", or see how a reply is read in ", h("a", { href: "#/playground" }, "the playground"), ".",
    ),
  );
}

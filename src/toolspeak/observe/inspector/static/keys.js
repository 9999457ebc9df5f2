// What keys do, and the card that says so.

import { h } from "./dom.js";
import { button } from "./parts.js";

const KEYS = [
  ["j, k or ↓, ↑", "next, previous request"],
  ["Enter", "open it"],
  ["Esc", "back"],
  ["/", "search"],
  ["←, →", "in a request: chunk by chunk"],
  ["p", "in a request: play, pause"],
  ["g r, g p, g c", "requests, playground, chat"],
  ["g a", "approvals that wait"],
  ["?", "this card"],
];
const SEQUENCE = 900;
const FIELDS = "input:not([type=range], [type=checkbox]), textarea, select";

/** `go(letter)` follows g and a letter, `search()` the slash, `view()` has the keys of its own. */
export function installKeys({ go, search, view }) {
  const card = helpCard();
  let leaderAt = -Infinity;

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || card.open) return;
    const isTyping = event.target.closest?.(FIELDS);
    if (isTyping) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const isSecond = event.timeStamp - leaderAt < SEQUENCE;
    leaderAt = -Infinity;
    if (isSecond && go(event.key)) event.preventDefault();
    else if (event.key === "g") leaderAt = event.timeStamp;
    else if (event.key === "?") card.showModal();
    else if (event.key === "/") {
      event.preventDefault();
      search();
    } else if (view()?.key?.(event)) event.preventDefault();
  });
  return () => card.showModal();
}

function helpCard() {
  const card = h(
    "dialog",
    { class: "help", "aria-label": "Keys" },
    h("h2", null, "Keys"),
    h("dl", null, KEYS.map(([keys, meaning]) => [h("dt", null, keys), h("dd", null, meaning)])),
    button("Close", () => card.close()),
  );
  document.body.append(card);
  return card;
}

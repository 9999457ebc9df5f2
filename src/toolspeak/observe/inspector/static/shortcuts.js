// Keyboard shortcuts, and the dialog that lists them.

import { h } from "./dom.js";
import { button } from "./widgets.js";

const KEYS = [
  ["j, k or ↓, ↑", "next, previous request"],
  ["Enter", "open the request"],
  ["Esc", "back"],
  ["/", "search"],
  ["←, →", "in a request: step through the chunks"],
  ["p", "in a request: play or pause"],
  ["g r, g p, g c", "go to requests, playground, chat"],
  ["g a", "go to pending approvals"],
  ["?", "show these shortcuts"],
];
const SEQUENCE_MS = 900;
const FIELDS = "input:not([type=range], [type=checkbox]), textarea, select";

/** `go(letter)` handles g and a letter, `search()` the slash; `view().key` handles all others. */
export function installShortcuts({ go, search, view }) {
  const card = createHelpDialog();
  let leaderAt = -Infinity;

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || card.open) return;
    const isTyping = event.target.closest?.(FIELDS);
    if (isTyping) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const isSecond = event.timeStamp - leaderAt < SEQUENCE_MS;
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

function createHelpDialog() {
  const card = h(
    "dialog",
    { class: "help", "aria-label": "Keyboard shortcuts" },
    h("h2", null, "Keyboard shortcuts"),
    h("dl", null, KEYS.map(([keys, meaning]) => [h("dt", null, keys), h("dd", null, meaning)])),
    button("Close", () => card.close()),
  );
  document.body.append(card);
  return card;
}

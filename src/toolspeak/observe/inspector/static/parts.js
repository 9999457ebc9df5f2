// Small parts that several views are made of.

import { h, place, setText } from "./dom.js";

/** A section that opens and closes. `side` stands at the right of its title. */
export function section(title, { open = true, side = [], class: name = "" } = {}, ...children) {
  const heading = h("span", { class: "section-title" }, title);
  const hint = h("span", { class: "section-hint faint" });
  const node = h(
    "details",
    { class: `section ${name}`, open },
    h("summary", null, heading, hint, h("span", { class: "section-side" }, side)),
    h("div", { class: "section-body" }, children),
  );
  return { node, setTitle: (text) => setText(heading, text), setHint: (text) => setText(hint, text) };
}

/** A column of a view, with its title. */
export function column(title, ...children) {
  const heading = h("h2", { class: "column-title" }, title);
  return h("section", { class: "column", "aria-label": title }, heading, children);
}

export function button(text, action, { tip = "", class: name = "", ...others } = {}) {
  const on = { click: action };
  return h("button", { type: "button", class: name, "data-tip": tip || null, on, ...others }, text);
}

/** Copies what `text()` gives when it is pressed, and says so in its own place. */
export function copyButton(label, text, options) {
  const node = button(label, async (event) => {
    event.preventDefault(); // In a summary it would also close the section.
    const copied = await copy(text());
    node.textContent = copied ? "Copied" : "Not copied";
    setTimeout(() => (node.textContent = label), 1200);
  }, options);
  return node;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyByHand(text);
  }
}

// Only for pages from this machine or over TLS there is a clipboard.
function copyByHand(text) {
  const area = h("textarea", { class: "offscreen", value: text });
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  return copied;
}

export function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export function facts(pairs) {
  const rows = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return h(
    "dl",
    { class: "facts" },
    rows.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
  );
}

const shown = new WeakMap();

/** Fills an element anew if its content is another: what one has selected in it stays otherwise. */
export function showOnce(element, content, make) {
  const written = JSON.stringify(content);
  if (shown.has(element) && shown.get(element) === written) return;
  shown.set(element, written);
  place(element, make());
}

/** An address that may go on in the next line after a slash. */
export function breakable(address) {
  return address.split(/(?<=\/)/).flatMap((part) => [part, h("wbr")]);
}

export function isPhone() {
  return matchMedia("(max-width: 700px)").matches;
}

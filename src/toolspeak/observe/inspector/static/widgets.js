// Small widgets that several views use.

import { h, setChildren, setText } from "./dom.js";

/** A collapsible section; `side` is at the right of its title. */
export function section(title, { open = true, side = [] } = {}, ...children) {
  return h(
    "details.section",
    { open },
    h(
      "summary",
      h("span.section-title", title),
      h("span.section-hint.faint"),
      h("span.section-side", side),
    ),
    h("div.section-body", children),
  );
}

/** Sets the text next to the title of a section. */
export function setHint(node, text) {
  setText(node.querySelector(".section-hint"), text);
}

export function column(title, ...children) {
  return h("section.column", { "aria-label": title }, h("h2.column-title", title), children);
}

export function button(text, action, { tip = "", class: name = "", ...others } = {}) {
  const on = { click: action };
  return h("button", { type: "button", class: name, "data-tip": tip || null, on, ...others }, text);
}

/** A field for text that is not prose. */
export function codeField(label, props) {
  return h("textarea.input.mono", { "aria-label": label, spellcheck: "false", ...props });
}

/** A menu of [value, label] pairs, where the label may be left out. */
export function menu(label, options, onChange = () => {}) {
  const node = h(
    "select",
    { "aria-label": label, on: { change: () => onChange(node.value) } },
    options.map(([value, text = value]) => h("option", { value }, text)),
  );
  return node;
}

/** Copies the result of `text()` and confirms it in its label. */
export function copyButton(label, text, options) {
  const node = button(label, async (event) => {
    event.preventDefault(); // In a summary, it would also toggle the section.
    const copied = await copy(text());
    node.textContent = copied ? "Copied" : "Copy failed";
    setTimeout(() => (node.textContent = label), 1200);
  }, options);
  return node;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyWithSelection(text);
  }
}

// The clipboard API exists only on localhost and over TLS.
function copyWithSelection(text) {
  const area = h("textarea.offscreen", { value: text });
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

/** Lists [name, value, class] that have a value; those with a class are names or URLs. */
export function fieldList(pairs) {
  const rows = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return h(
    "dl.facts",
    rows.map(([name, value, style = ""]) => [
      h("dt", name),
      h("dd", { class: style }, style ? breakable(value) : value),
    ]),
  );
}

/** Names and URLs may wrap after each slash. */
function breakable(text) {
  return text.split(/(?<=\/)/).flatMap((part) => [part, h("wbr")]);
}

const shown = new WeakMap();

/** Renders an element again only if its content changed, which keeps a selection in it. */
export function updateIfChanged(element, content, render) {
  const written = JSON.stringify(content);
  if (shown.has(element) && shown.get(element) === written) return;
  shown.set(element, written);
  setChildren(element, render(content));
}

export function isPhone() {
  return matchMedia("(max-width: 700px)").matches;
}

const WAIT = 250;

export function installTooltips() {
  const tip = h("div.tip", { role: "tooltip", id: "tip", hidden: true });
  document.body.append(tip);
  let timer = 0;

  const hide = () => {
    clearTimeout(timer);
    tip.hidden = true;
  };
  const show = (target) => {
    setText(tip, target.dataset.tip);
    tip.hidden = false;
    // A mark may span several lines; its first box is where it starts.
    const box = target.getClientRects()[0];
    if (!box) return hide();
    const left = Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8));
    const below = box.bottom + 6;
    const fits = below + tip.offsetHeight < innerHeight;
    tip.style.left = `${left}px`;
    tip.style.top = `${fits ? below : Math.max(4, box.top - tip.offsetHeight - 6)}px`;
  };
  const consider = (event) => {
    const target = event.target instanceof Element && event.target.closest("[data-tip]");
    hide();
    if (target && target.dataset.tip) timer = setTimeout(show, WAIT, target);
  };

  document.addEventListener("pointerover", consider);
  document.addEventListener("focusin", consider);
  document.addEventListener("pointerdown", hide);
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, true);
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
}

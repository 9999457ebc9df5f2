// The only place that creates elements. Strings become text nodes or attributes of this list and
// nothing else, so that no text of a model is ever parsed as markup.

const ATTRIBUTES = new Set([
  "autocomplete", "class", "id", "max", "min", "placeholder", "role", "rows", "spellcheck", "step",
  "tabindex", "type",
]);
const SHAPE_ATTRIBUTES = new Set(["class", "d", "viewBox", "preserveAspectRatio", "aria-hidden"]);
const PROPERTIES = new Set(["checked", "disabled", "hidden", "open", "selected", "value"]);

// Characters that are invisible or change how others are shown: control characters and direction
// overrides. Joiners stay, because some scripts and emoji need them, and so do line ends.
const INVISIBLE_PATTERNS = [
  "\\r(?!\\n)",
  "[\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u180e]",
  "[\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb]",
  "\\udb40[\\udc00-\\udfff]",
];
const INVISIBLE = new RegExp(`(${INVISIBLE_PATTERNS.join("|")})`, "g");

function invisibleSymbol(character) {
  return `⟨${character.codePointAt(0).toString(16).toUpperCase().padStart(2, "0")}⟩`;
}

/** Replaces each invisible character by a symbol. */
function escapeInvisible(text) {
  return String(text).replace(INVISIBLE, invisibleSymbol);
}

/** Splits a text such that every other part is an invisible character. */
export function splitInvisible(text) {
  return text.split(INVISIBLE);
}

/** Collapses whitespace, and shortens to `most` characters. */
export function oneLine(text, most = 400) {
  const flat = escapeInvisible(String(text ?? "").slice(0, most * 2)).replace(/\s+/g, " ").trim();
  return flat.length > most ? `${flat.slice(0, most)}…` : flat;
}

function setAttribute(element, name, value) {
  if (name === "on") {
    for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
  } else if (name === "href") {
    if (!/^#\//.test(value)) throw new Error(`links stay within the page: ${value}`);
    element.setAttribute("href", value);
  } else if (PROPERTIES.has(name)) {
    element[name] = value;
  } else if (ATTRIBUTES.has(name) || /^(aria|data)-[a-z-]+$/.test(name)) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : escapeInvisible(value));
    }
  } else {
    throw new Error(`no attribute for this page: ${name}`);
  }
}

/**
 * Creates an element: h("p.note.small", { id: "x" }, "text", other, …). The properties may be left
 * out; null and false are skipped.
 */
export function h(selector, ...content) {
  const [tag, ...classes] = selector.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  // The value of an option or a range depends on the other attributes.
  const { value, ...others } = isProperties(content[0]) ? content.shift() : {};
  for (const [name, given] of Object.entries(others)) setAttribute(element, name, given);
  appendChildren(element, content);
  if (value !== undefined) setAttribute(element, "value", value);
  return element;
}

function isProperties(value) {
  return value instanceof Object && Object.getPrototypeOf(value) === Object.prototype;
}

export function appendChildren(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(escapeInvisible(child)));
  }
  return element;
}

export function svg(tag, props, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) {
    if (!SHAPE_ATTRIBUTES.has(name)) throw new Error(`no attribute for a shape: ${name}`);
    element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Sets text only if it differs, so that a selection in it survives. */
export function setText(element, text) {
  const shown = escapeInvisible(text ?? "");
  if (element.textContent !== shown) element.textContent = shown;
}

/** Sets the children, unless they are the same already. */
export function setChildren(element, ...children) {
  const wanted = children.flat(Infinity).filter((child) => child);
  const isThere =
    wanted.length === element.childNodes.length &&
    wanted.every((child, at) => element.childNodes[at] === child);
  if (!isThere) element.replaceChildren(...wanted);
}

/**
 * Renders a list with one node per key: `make(item)` creates it, with an optional `update(item)`.
 * Nodes that remain in the list are not touched.
 */
export function keyedList(element, keyOf, make) {
  const made = new Map();
  return (items) => {
    const wanted = new Map(items.map((item, at) => [String(keyOf(item, at)), item]));
    for (const key of made.keys()) if (!wanted.has(key)) made.delete(key);
    const nodes = [...wanted].map(([key, item]) => {
      if (!made.has(key)) made.set(key, make(item, key));
      const entry = made.get(key);
      entry.update?.(item);
      return entry.node ?? entry;
    });
    setChildren(element, nodes);
  };
}

export function debounce(wait, action) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, wait);
  };
}

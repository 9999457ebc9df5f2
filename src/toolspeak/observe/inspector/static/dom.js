// The only place where elements are made. Strings become text nodes or attributes of this list, and
// nothing else: whatever a model says, none of it is ever read as markup.

const ATTRIBUTES = new Set([
  "autocomplete", "checked", "class", "cols", "disabled", "for", "hidden", "id", "inputmode", "list",
  "max", "maxlength", "min", "name", "open", "placeholder", "role", "rows", "selected", "spellcheck",
  "step", "tabindex", "title", "type", "value", "wrap",
]);
const SHAPE_ATTRIBUTES = new Set(["class", "d", "viewBox", "preserveAspectRatio", "aria-hidden"]);
const PROPERTIES = new Set(["checked", "disabled", "hidden", "open", "selected", "value"]);

// Characters that show nothing, or change how others are shown: controls, and those that turn the
// direction of text. Joiners stay, some scripts and emoji need them, and so do ends of lines.
const UNSEEN = new RegExp(
  [
    "\\r(?!\\n)",
    "[\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u180e]",
    "[\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb]",
    "\\udb40[\\udc00-\\udfff]",
  ].join("|"),
  "g",
);

export function nameOfUnseen(character) {
  return `⟨${character.codePointAt(0).toString(16).toUpperCase().padStart(2, "0")}⟩`;
}

/** The text, with a sign in place of each character that cannot be seen. */
export function visible(text) {
  return String(text).replace(UNSEEN, nameOfUnseen);
}

/** Where unseen characters are: [index, length] each. */
export function* unseenIn(text) {
  for (const match of text.matchAll(UNSEEN)) yield [match.index, match[0].length];
}

/** On one line, and not longer than so much. */
export function line(text, most = 400) {
  const flat = visible(String(text ?? "").slice(0, most * 2)).replace(/\s+/g, " ").trim();
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
      element.setAttribute(name, value === true ? "" : visible(value));
    }
  } else {
    throw new Error(`no attribute for this page: ${name}`);
  }
}

/** An element: h("p", {class: "note"}, "text", other, …). Nothing is made of null and false. */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  // The value of an option or a range depends on what was set before it.
  const { value, ...others } = props ?? {};
  for (const [name, given] of Object.entries(others)) setAttribute(element, name, given);
  add(element, children);
  if (value !== undefined) setAttribute(element, "value", value);
  return element;
}

export function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
  return element;
}

/** A drawing, of shapes that this page knows. */
export function shape(tag, props, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) {
    if (!SHAPE_ATTRIBUTES.has(name)) throw new Error(`no attribute for a shape: ${name}`);
    element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Sets text only where it differs, so that a selection in it survives. */
export function setText(element, text) {
  const shown = visible(text ?? "");
  if (element.textContent !== shown) element.textContent = shown;
}

/** Puts these children there, and leaves alone what is there already. */
export function place(element, ...children) {
  const wanted = children.flat(Infinity).filter((child) => child);
  const isThere =
    wanted.length === element.childNodes.length &&
    wanted.every((child, at) => element.childNodes[at] === child);
  if (!isThere) element.replaceChildren(...wanted);
}

/**
 * A list of things of which each has its node, kept by key: `make(item)` makes it, with an
 * `update(item)` where it may change. Nodes that are still wanted are not touched.
 */
export function keyed(element, keyOf, make) {
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
    place(element, nodes);
  };
}

export function debounced(wait, action) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), wait);
  };
}

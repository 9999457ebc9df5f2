// What stands in the playground, as a part of its address.

const NAMES = ["text", "tools", "trust", "dialect"];

/** A state as letters that an address can hold. */
export function pack(state) {
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  const binary = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** The state again, or null if these letters hold none. */
export function unpack(packed) {
  try {
    const binary = atob(packed.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(binary, (one) => one.charCodeAt(0));
    const state = JSON.parse(new TextDecoder().decode(bytes));
    return NAMES.every((name) => typeof state[name] === "string") ? state : null;
  } catch {
    return null;
  }
}

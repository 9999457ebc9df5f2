// Formats numbers and times.

export function duration(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 9.95) return `${ms.toFixed(1)} ms`;
  if (ms < 9995) return `${Math.round(ms)} ms`;
  if (ms < 99500) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)} min ${String(seconds % 60).padStart(2, "0")} s`;
}

export function clock(unix) {
  return new Date(unix * 1000).toLocaleTimeString("en-GB", { hour12: false });
}

export function moment(unix) {
  const date = new Date(unix * 1000);
  const day = date.toLocaleDateString("en-CA");
  return `${day} ${clock(unix)}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

export function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1e6) return `${(bytes / 1e3).toFixed(1)} kB`;
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

export function count(number, word, plural = `${word}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? word : plural}`;
}

/** Token usage: 210 input, 40 output. */
export function tokens(usage) {
  const words = ([name, value]) => `${value.toLocaleString("en")} ${name.replaceAll("_", " ")}`;
  return Object.entries(usage ?? {}).filter(([, value]) => value > 0).map(words).join(", ");
}

/** Remaining time: 1:05. */
export function countdown(seconds) {
  const left = Math.max(0, Math.ceil(seconds));
  return `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`;
}

/** Joins the parts that are there. */
export function joinPresent(separator, ...parts) {
  return parts.filter((part) => part).join(separator);
}

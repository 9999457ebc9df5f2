// What had come at which time: the sums behind the slider.

/** All moments at which something happened, in order. */
export function momentsOf({ attempts, response }) {
  const times = new Set([0]);
  for (const { start_ms: begun, end_ms: ended } of attempts) times.add(begun).add(ended ?? begun);
  for (const { chunks } of [...attempts, response]) for (const { ms } of chunks) times.add(ms);
  return [...times].sort((one, other) => one - other);
}

/** When the last thing happened, so far. */
export function lengthOf(moments, { summary }) {
  return Math.max(moments.at(-1) ?? 0, summary.ms ?? 0, 0.1);
}

/** How many of these chunks had come. */
export function chunksUntil(chunks, time) {
  let low = 0;
  let high = chunks.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (chunks[middle].ms <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** How much of a text had come, if its chunks say so; without any it came at once, at `whole`. */
export function endAt(chunks, field, time, text, whole) {
  if (time === Infinity) return text.length;
  if (!chunks.length) return whole !== null && whole <= time ? text.length : 0;
  const some = chunksUntil(chunks, time);
  return some ? Math.min(text.length, chunks[some - 1][field]) : 0;
}

/** The index of the turn that was going on. */
export function turnAt(turns, time) {
  const begun = turns.findLastIndex((turn) => turn.start_ms <= time);
  return Math.max(0, begun);
}

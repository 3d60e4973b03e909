// Durations as Ollama writes them: the time that a model stays in memory.

import { byName } from "./by-name.ts";

const units: Readonly<Record<string, number>> = byName({
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  μs: 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
});

/**
 * Ollama's durations: a number of seconds, or "5m", "1h30m", "300ms"; below 0: without end. undefined: it is none of these.
 */
export function keepMsOf(value: unknown): number | undefined {
  if (typeof value === "number") {
    if (Number.isNaN(value)) return undefined;
    return value < 0 ? Infinity : value * 1000;
  }
  if (typeof value !== "string" || value.length > 100) return undefined;
  const text = value.trim();
  if (/^[-+]?\d+(\.\d+)?$/.test(text)) return keepMsOf(Number(text));
  const parts = /^([-+]?)((?:\d+(?:\.\d*)?(?:ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)$/.exec(text);
  if (!parts) return undefined;
  if (parts[1] === "-") return Infinity;
  let ms = 0;
  for (const [, count, unit] of parts[2]!.matchAll(/(\d+(?:\.\d*)?)([a-z\u00b5\u03bc]+)/g)) {
    ms += Number(count) * units[unit!]!;
  }
  return ms;
}

/** For messages. */
export const keepAliveText =
  'seconds, or a duration like "5m" or "1h30m"; 0: it is unloaded at once, -1: it stays';

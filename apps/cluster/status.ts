// The status of several workers as one engine's: numbers are added, except those that are the same on every machine.

import type { EngineStatus } from "../../src/index.ts";

/** Numbers that are not amounts. */
const same: ReadonlySet<string> = new Set(["kvBlockTokens", "bytesPerToken"]);

export function addedStatus(a: EngineStatus, b: EngineStatus): EngineStatus {
  return added(a, b, "") as EngineStatus;
}

function added(a: unknown, b: unknown, key: string): unknown {
  if (typeof a === "number" && typeof b === "number") return same.has(key) ? a : a + b;
  if (typeof a !== "object" || a === null || typeof b !== "object" || b === null) return a ?? b;
  const other = b as Record<string, unknown>;
  const sums = Object.entries(a).map(([name, value]) => [name, added(value, other[name], name)]);
  return { ...other, ...Object.fromEntries(sums) };
}

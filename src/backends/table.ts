// The table of backends: one line for each, in order of preference; the reference is last because it can do anything.

import type { Backend } from "./backend.ts";
import { ReferenceBackend } from "./reference/reference.ts";

export interface BackendEntry {
  readonly name: string;
  /** True where this machine can run it, otherwise the reason. */
  available(): true | string;
  create(): Backend;
}

const entries: BackendEntry[] = [
  { name: "reference", available: () => true, create: () => new ReferenceBackend() },
];

export function allBackends(): readonly BackendEntry[] {
  return entries;
}

/** Puts a backend before those that are there. */
export function registerBackend(entry: BackendEntry): void {
  entries.unshift(entry);
}

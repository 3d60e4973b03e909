// Which model leaves memory next, so that another one fits. Computes and changes nothing: registry.ts asks again after each change.

import type { PoolLimits } from "./on-demand.ts";

/** A model in memory. */
export interface Held {
  readonly id: string;
  readonly bytes: number;
  readonly isPinned: boolean;
  /** It is on its way out. */
  readonly isLeaving: boolean;
  /** It was asked to leave a moment ago, and still computed. */
  readonly isResting: boolean;
  /** Requests that use it now. */
  readonly users: number;
  /** When it was last used, as a counter. */
  readonly used: number;
}

export interface CapacityFacts {
  readonly needs: number;
  readonly free: number;
  /** Besides the model that is to be loaded. */
  readonly held: readonly Held[];
  readonly limits: PoolLimits;
}

/** Room; none, even if all that may leave had left; or the model that leaves next; or what leaves now must have left first. */
export type Decision = "fits" | "never" | "wait" | Held;

export function makeRoom({ needs, free, held, limits }: CapacityFacts): Decision {
  if (held.length < limits.models && needs <= free) return "fits";
  const leaving = held.filter(({ isPinned, isLeaving }) => !isPinned || isLeaving);
  const most = free + leaving.reduce((bytes, one) => bytes + one.bytes, 0);
  if (held.length - leaving.length >= limits.models || needs > most) return "never";
  if (leaving.some(({ isLeaving }) => isLeaving)) return "wait";
  const [next] = leaving.toSorted((a, b) => order(a) - order(b) || a.used - b.used);
  return !next || next.isResting ? "wait" : next;
}

/** Idle ones before all others, the least recently used first. */
function order({ users }: Held): number {
  return users === 0 ? 0 : 1;
}

// The queue of state units that wait to be copied out of the backend. A waiting unit holds its block or slot, so that no batch
// overwrites it. If a batch needs that room, the unit is copied at once and waits without it; beyond EARLY_BYTES of such copies it
// is dropped.

import type { BlockPool } from "../state/block-pool.ts";
import type { Owner } from "./owners.ts";
import type { UnitFacts } from "./segment.ts";

/** Bytes of a unit that left the backend before its turn. */
export interface EarlyCopy {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly done: Promise<void>;
}

export interface Waiting {
  readonly unit: UnitFacts;
  readonly id: string;
  readonly number: number;
  readonly pool: BlockPool;
  readonly owners: Set<Owner>;
  /** It came from there, and goes to memory only. */
  readonly isOnDisk?: boolean;
  /** undefined: it still holds its room. */
  early?: EarlyCopy;
}

export interface CopyQueueParts {
  /** Begins to copy a unit as it is at the call. */
  copy(waiting: Waiting): EarlyCopy;
  /** Called with a unit that is given up. */
  onDrop(id: string): void;
}

const EARLY_BYTES: number = 64 * 2 ** 20;

export class CopyQueue {
  readonly #parts: CopyQueueParts;
  #waiting: Waiting[] = [];
  readonly #ids = new Map<string, Waiting>();
  #earlyBytes = 0;

  constructor(parts: CopyQueueParts) {
    this.#parts = parts;
  }

  has(id: string): boolean {
    return this.#ids.has(id);
  }

  /** Whether it waits: it has this owner as well then. */
  own(id: string, owner: Owner): boolean {
    return this.#ids.get(id)?.owners.add(owner) !== undefined;
  }

  push(waiting: Waiting): void {
    waiting.pool.share(waiting.number);
    this.#ids.set(waiting.id, waiting);
    this.#waiting.push(waiting);
  }

  get length(): number {
    return this.#waiting.length;
  }

  /**
   * The next units, one or several with at most `mostBytes` together; one that is on disk comes alone. The caller releases their
   * room, unless they have left it early.
   */
  take(mostBytes: number, bytesOf: (waiting: Waiting) => number): Waiting[] {
    let bytes = 0;
    let count = 0;
    for (const waiting of this.#waiting) {
      bytes += bytesOf(waiting);
      const isAlone = waiting.isOnDisk || this.#waiting[0]!.isOnDisk;
      if (count > 0 && (bytes > mostBytes || isAlone)) break;
      count++;
    }
    const taken = this.#waiting.splice(0, count);
    for (const { id, early } of taken) {
      this.#ids.delete(id);
      this.#earlyBytes -= early?.bytes.length ?? 0;
    }
    return taken;
  }

  /**
   * Takes a unit of this pool out of its room, one without another holder unless `isAny`; false: none waits there. Only units that
   * are on disk anyway, or beyond EARLY_BYTES, are lost.
   */
  free(pool: BlockPool, isAny: boolean): boolean {
    const at = this.#waiting.findIndex(
      (one) => one.pool === pool && !one.early && (isAny || !pool.isShared(one.number)),
    );
    const found = this.#waiting[at];
    if (!found) return false;
    const early = found.isOnDisk ? undefined : this.#copyEarly(found);
    if (!early) {
      this.#waiting.splice(at, 1);
      this.#ids.delete(found.id);
      if (!found.isOnDisk) this.#parts.onDrop(found.id);
    }
    pool.release(found.number);
    return true;
  }

  #copyEarly(waiting: Waiting): EarlyCopy | undefined {
    if (this.#earlyBytes > EARLY_BYTES) return undefined;
    const early = this.#parts.copy(waiting);
    early.done.catch(() => undefined); // said when its turn comes
    this.#earlyBytes += early.bytes.length;
    waiting.early = early;
    return early;
  }

  /** Drops the units that only these owners have. */
  forget(owners: readonly Owner[]): void {
    this.#waiting = this.#waiting.filter((one) => {
      for (const owner of owners) one.owners.delete(owner);
      if (one.owners.size > 0) return true;
      if (!one.early) one.pool.release(one.number);
      this.#earlyBytes -= one.early?.bytes.length ?? 0;
      this.#ids.delete(one.id);
      return false;
    });
  }

  /** Gives up all that wait. */
  clear(): void {
    for (const { id, number, pool, early } of this.#waiting) {
      if (!early) pool.release(number);
      this.#parts.onDrop(id);
    }
    this.#waiting = [];
    this.#ids.clear();
    this.#earlyBytes = 0;
  }
}

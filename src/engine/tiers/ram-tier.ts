// Units of stored state in the host's memory, up to a budget; the least recently used is dropped first.

import { isPrivate, NOBODY, type Owner } from "./owners.ts";

interface Held {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly owners: Set<Owner>;
}

/** Kept of each size. */
const MOST_SPARE_BYTES: number = 4 * 2 ** 20;

export class RamTier {
  readonly #budget: number;
  /** Least recently used first. */
  readonly #units = new Map<string, Held>();
  #bytes = 0;
  /** Memory of dropped units, by size: units of a model have few sizes. */
  readonly #spare = new Map<number, Uint8Array<ArrayBuffer>[]>();

  /** Called with every unit that is dropped because the budget is spent. */
  readonly #onDrop: ((id: string) => void) | undefined;

  constructor(budgetBytes: number, onDrop?: (id: string) => void) {
    this.#budget = budgetBytes;
    this.#onDrop = onDrop;
  }

  get held(): { bytes: number; budgetBytes: number } {
    return { bytes: this.#bytes, budgetBytes: this.#budget };
  }

  has(id: string): boolean {
    return this.#units.has(id);
  }

  /** Its bytes, not to be changed, until the next put(). */
  get(id: string): Uint8Array | undefined {
    const held = this.#units.get(id);
    if (!held) return undefined;
    this.#units.delete(id);
    this.#units.set(id, held);
    return held.bytes;
  }

  /** Memory for a unit, to be filled and given to put() or back(). */
  room(bytes: number): Uint8Array<ArrayBuffer> {
    return this.#spare.get(bytes)?.pop() ?? new Uint8Array(bytes);
  }

  /** A unit's memory that is not needed any more. */
  back(bytes: Uint8Array<ArrayBuffer>): void {
    const spare = this.#spare.get(bytes.length);
    // One that is filled while another is written, and some of a batch of a prompt.
    if (!spare) this.#spare.set(bytes.length, [bytes]);
    else if (spare.length < 2 || spare.length * bytes.length < MOST_SPARE_BYTES) spare.push(bytes);
  }

  /** Whether it is there, and no owner of it allows a copy on disk. */
  isPrivate(id: string): boolean {
    const held = this.#units.get(id);
    return held !== undefined && [...held.owners].every(isPrivate);
  }

  /** If it is there, it has this owner as well. */
  own(id: string, owner: Owner): void {
    this.#units.get(id)?.owners.add(owner);
  }

  /** Takes the bytes over; false: they stay the caller's, because it has no room for them or has them. */
  put(id: string, bytes: Uint8Array<ArrayBuffer>, owners: Iterable<Owner> = [NOBODY]): boolean {
    for (const owner of owners) this.own(id, owner);
    if (bytes.length > this.#budget || this.#units.has(id)) return false;
    for (const [oldest, { bytes: old }] of this.#units) {
      if (this.#bytes + bytes.length <= this.#budget) break;
      this.#units.delete(oldest);
      this.#bytes -= old.length;
      this.back(old);
      this.#onDrop?.(oldest);
    }
    this.#units.set(id, { bytes, owners: new Set(owners) });
    this.#bytes += bytes.length;
    return true;
  }

  /** Drops the units that only these owners have. */
  forget(owners: readonly Owner[]): void {
    for (const [id, held] of this.#units) {
      const had = held.owners.size;
      for (const owner of owners) held.owners.delete(owner);
      if (held.owners.size > 0 || had === 0) continue;
      this.#units.delete(id);
      this.#bytes -= held.bytes.length;
      this.back(held.bytes.fill(0));
    }
  }

  clear(): void {
    this.#units.clear();
    this.#spare.clear();
    this.#bytes = 0;
  }
}

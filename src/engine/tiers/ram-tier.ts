// Units of stored state in the host's memory, up to a budget; the least recently used is dropped first.

/** Kept of each size. */
const MOST_SPARE_BYTES: number = 4 * 2 ** 20;

export class RamTier {
  readonly #budget: number;
  /** Least recently used first. */
  readonly #units = new Map<string, Uint8Array<ArrayBuffer>>();
  #bytes = 0;
  /** Memory of dropped units, by size: units of a model have few sizes. */
  readonly #spare = new Map<number, Uint8Array<ArrayBuffer>[]>();

  /** Called with what is dropped because the budget is spent. */
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
    const bytes = this.#units.get(id);
    if (!bytes) return undefined;
    this.#units.delete(id);
    this.#units.set(id, bytes);
    return bytes;
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

  /** Takes the bytes over; false: it has no room for them, and they stay the caller's. */
  put(id: string, bytes: Uint8Array<ArrayBuffer>): boolean {
    if (bytes.length > this.#budget || this.#units.has(id)) return false;
    for (const [oldest, old] of this.#units) {
      if (this.#bytes + bytes.length <= this.#budget) break;
      this.#units.delete(oldest);
      this.#bytes -= old.length;
      this.back(old);
      this.#onDrop?.(oldest);
    }
    this.#units.set(id, bytes);
    this.#bytes += bytes.length;
    return true;
  }

  clear(): void {
    this.#units.clear();
    this.#spare.clear();
    this.#bytes = 0;
  }
}

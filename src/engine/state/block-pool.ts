// Reference counts for numbered units: the blocks of a KV cache, or the slots of recurrent state. The backend holds
// the data; sequences take, share and release the numbers here.
//
// A number is free exactly when its count is 0.

export class BlockPool {
  /** The largest size of the pool. */
  readonly most: number;
  readonly #counts: Int32Array;
  /** A stack: the block freed last is taken first, so that a small cache stays in a small part of memory. */
  readonly #free: Int32Array;
  #freeCount = 0;
  #size = 0;

  constructor(most: number, size: number = most) {
    this.most = most;
    this.#counts = new Int32Array(most);
    this.#free = new Int32Array(most);
    this.grow(size);
  }

  get size(): number {
    return this.#size;
  }

  /** Grows the pool to `size` blocks. */
  grow(size: number): void {
    const added = Math.min(size, this.most) - this.#size;
    if (added <= 0) return;
    // New blocks go under the ones used before, with the lowest number on top.
    this.#free.copyWithin(added, 0, this.#freeCount);
    for (let i = 0; i < added; i++) this.#free[i] = this.#size + added - 1 - i;
    this.#freeCount += added;
    this.#size += added;
  }

  get usedCount(): number {
    return this.#size - this.#freeCount;
  }

  get freeCount(): number {
    return this.#freeCount;
  }

  /** Takes a block, with count 1. One must be free: check SequenceState.needed() first. */
  take(): number {
    if (this.#freeCount === 0) throw new Error("the pool is empty: needed() was not asked");
    const block = this.#free[--this.#freeCount]!;
    this.#counts[block] = 1;
    return block;
  }

  share(block: number): void {
    if (this.#counts[block] === 0) throw new Error(`block ${block} was shared while it was free`);
    this.#counts[block]!++;
  }

  isShared(block: number): boolean {
    return this.#counts[block]! > 1;
  }

  release(block: number): void {
    const count = --this.#counts[block]!;
    if (count < 0) throw new Error(`block ${block} was released more often than taken`);
    if (count === 0) this.#free[this.#freeCount++] = block;
  }
}

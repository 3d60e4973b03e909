// Assigns a layer's experts to the GPU's slots: an LRU cache, of numbers only (host-experts.ts has the bytes). A batch names its
// experts; those without a slot get the least recently used ones. A batch that uses more experts than there are slots is computed
// in passes, each with as many experts as there are slots.
//
// Results do not depend on the earlier contents of a slot: an expert is always computed on the GPU, from the same bytes.
// Nothing is allocated after the constructor.

/** In `table`: not in this pass. */
const NO_EXPERT_SLOT = 0xffff_ffff;

export class ExpertSlots {
  readonly slots: number;
  /** For each expert, its slot in the current pass; no slot's number: it is not computed in this pass. */
  readonly table: Uint32Array<ArrayBuffer>;
  /** The number of batches that used each expert. */
  readonly uses: Uint32Array;
  /** Uses of experts that had a slot, and of those that had to be uploaded. */
  hits = 0;
  misses = 0;
  /** The expert in each slot; -1: none. */
  readonly #held: Int32Array;
  /** The slot of each expert; -1: none. */
  readonly #slotOf: Int32Array;
  /** When each slot was last used, by batches. */
  readonly #lastUse: Float64Array;
  /** Experts of the batch that are not computed yet, those with a slot first. */
  readonly #waiting: Int32Array;
  #first = 0;
  #count = 0;
  /** The batch that last used an expert: tells whether it is in #waiting. */
  readonly #batchOf: Float64Array;
  #batch = 0;

  constructor(experts: number, slots: number) {
    this.slots = Math.min(slots, experts);
    this.table = new Uint32Array(experts).fill(NO_EXPERT_SLOT);
    this.uses = new Uint32Array(experts);
    this.#held = new Int32Array(this.slots).fill(-1);
    this.#slotOf = new Int32Array(experts).fill(-1);
    this.#lastUse = new Float64Array(this.slots);
    this.#waiting = new Int32Array(experts);
    this.#batchOf = new Float64Array(experts);
  }

  /** Begins a batch, whose routes are rows of `cols`, the first `used` of each the ids of experts: [tokens, cols]. */
  begin(routes: Float32Array, tokens: number, used: number, cols: number): void {
    this.#batch++;
    this.#first = 0;
    this.#count = 0;
    for (const isHeld of [true, false]) {
      for (let t = 0; t < tokens; t++) {
        for (let s = 0; s < used; s++) this.#want(this.#idAt(routes, t * cols + s), isHeld);
      }
    }
  }

  /**
   * Begins the next pass, and calls `upload` for each expert that is to be written to a slot before it; false: the batch
   * is over.
   */
  next(upload: (expert: number, slot: number) => void): boolean {
    this.table.fill(NO_EXPERT_SLOT);
    const last = Math.min(this.#count, this.#first + this.slots);
    if (this.#first === last) return false;
    // Experts that have a slot keep it; the others may take any slot that this pass does not use.
    for (let i = this.#first; i < last; i++) {
      const expert = this.#waiting[i]!;
      const slot = this.#slotOf[expert]!;
      if (slot >= 0) this.#use(expert, slot);
    }
    for (let i = this.#first; i < last; i++) {
      const expert = this.#waiting[i]!;
      if (this.table[expert] !== NO_EXPERT_SLOT) continue;
      const slot = this.#oldest();
      const before = this.#held[slot]!;
      if (before >= 0) this.#slotOf[before] = -1;
      this.#held[slot] = expert;
      this.#slotOf[expert] = slot;
      this.#use(expert, slot);
      upload(expert, slot);
    }
    this.#first = last;
    return true;
  }

  /** A file is not trusted: an id that no expert has is the last one's, as in the kernels. */
  #idAt(routes: Float32Array, at: number): number {
    const id = routes[at]!;
    const last = this.table.length - 1;
    return id >= 0 && id <= last ? Math.floor(id) : id > last ? last : 0;
  }

  #want(expert: number, isHeld: boolean): void {
    if (this.#batchOf[expert] === this.#batch || this.#slotOf[expert]! >= 0 !== isHeld) return;
    this.#batchOf[expert] = this.#batch;
    this.#waiting[this.#count++] = expert;
    this.uses[expert]!++;
    if (isHeld) this.hits++;
    else this.misses++;
  }

  #use(expert: number, slot: number): void {
    this.table[expert] = slot;
    this.#lastUse[slot] = this.#batch;
  }

  /** The slot that was not used for longest, outside of this pass. */
  #oldest(): number {
    let best = -1;
    for (let slot = 0; slot < this.slots; slot++) {
      const expert = this.#held[slot]!;
      if (expert < 0) return slot;
      if (this.table[expert] !== NO_EXPERT_SLOT) continue;
      if (best < 0 || this.#lastUse[slot]! < this.#lastUse[best]!) best = slot;
    }
    return best;
  }
}

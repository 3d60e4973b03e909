// The merge loop of BPE and SentencePiece: join the adjacent pair of lowest rank, leftmost first, until no pair is
// left. The caller provides the ranks (merge list or token scores).
//
// Symbols form a linked list in typed arrays; candidates are in a binary heap of doubles (rank * 2^31 + position). So
// a word of n symbols takes n log n, even a megabyte without a space.

/** A pair that does not merge. */
const NO_MERGE = -1;
/** Merges between two checks whether to stop. */
const CHECK_TURNS = 65_536;

export interface Merge {
  /** A lower rank merges earlier. */
  rank: number;
  /** The symbol that the pair becomes. */
  symbol: number;
}

/** Positions in one text; longer texts would collide with the rank in the heap's keys. */
const POSITIONS = 2 ** 31;
/** Resolved pairs that the table keeps before it starts over. */
const MAX_PAIRS = 1 << 20;

/** Caches the merges of pairs of symbols. */
export class PairTable {
  readonly #resolve: (left: number, right: number) => Merge | undefined;
  #slots: Int32Array; // [capacity][left, right, rank, symbol]
  #mask: number;
  #count = 0;

  constructor(resolve: (left: number, right: number) => Merge | undefined) {
    this.#resolve = resolve;
    this.#slots = emptySlots(1 << 12);
    this.#mask = (1 << 12) - 1;
  }

  /** Index into `entries` of the pair's slot: entries[slot + 2] is the rank (or NO_MERGE), [slot + 3] the symbol. */
  find(left: number, right: number): number {
    const slots = this.#slots;
    let index = hashPair(left, right) & this.#mask;
    for (;;) {
      const slot = index << 2;
      if (slots[slot] === left && slots[slot + 1] === right) return slot;
      if (slots[slot] === -1) return this.#insert(left, right);
      index = (index + 1) & this.#mask;
    }
  }

  get entries(): Int32Array {
    return this.#slots;
  }

  #insert(left: number, right: number): number {
    if (this.#count >= MAX_PAIRS) this.#rehash(1 << 12, false);
    else if (this.#count * 2 > this.#mask) this.#rehash((this.#mask + 1) * 2, true);
    const merge = this.#resolve(left, right);
    const slot = this.#freeSlot(left, right);
    this.#slots[slot] = left;
    this.#slots[slot + 1] = right;
    this.#slots[slot + 2] = merge ? merge.rank : NO_MERGE;
    this.#slots[slot + 3] = merge ? merge.symbol : NO_MERGE;
    this.#count++;
    return slot;
  }

  #freeSlot(left: number, right: number): number {
    let index = hashPair(left, right) & this.#mask;
    while (this.#slots[index << 2] !== -1) index = (index + 1) & this.#mask;
    return index << 2;
  }

  #rehash(capacity: number, keep: boolean): void {
    const old = this.#slots;
    this.#slots = emptySlots(capacity);
    this.#mask = capacity - 1;
    if (!keep) this.#count = 0;
    for (let slot = 0; keep && slot < old.length; slot += 4) {
      if (old[slot] === -1) continue;
      this.#slots.set(old.subarray(slot, slot + 4), this.#freeSlot(old[slot]!, old[slot + 1]!));
    }
  }
}

function emptySlots(capacity: number): Int32Array {
  return new Int32Array(capacity * 4).fill(-1);
}

function hashPair(left: number, right: number): number {
  const mixed = Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca6b);
  return (mixed ^ (mixed >>> 15)) >>> 0;
}

/** Merges symbol sequences in place; keeps its work arrays between calls. */
export class Merger {
  readonly #pairs: PairTable;
  #next: Int32Array = new Int32Array(64);
  #previous: Int32Array = new Int32Array(64);
  #heap: Float64Array = new Float64Array(64);
  #heapSize = 0;

  constructor(pairs: PairTable) {
    this.#pairs = pairs;
  }

  /** Merges symbols[0..count) and returns the number that are left; they are at the front of `symbols`. */
  merge(symbols: Int32Array, count: number, check: () => void = () => {}): number {
    if (count < 2) return count;
    this.#start(count);
    const next = this.#next;
    const previous = this.#previous;
    for (let i = 0; i < count; i++) {
      next[i] = i + 1;
      previous[i] = i - 1;
    }
    for (let i = 0; i + 1 < count; i++) this.#consider(symbols, i, i + 1);
    for (let turn = 1; this.#heapSize > 0; turn++) {
      if (turn % CHECK_TURNS === 0) check();
      const key = this.#pop();
      const rank = Math.floor(key / POSITIONS);
      const left = key - rank * POSITIONS;
      if (symbols[left] === -1) continue; // merged into its left neighbour
      const right = next[left]!;
      if (right >= count) continue;
      const slot = this.#pairs.find(symbols[left]!, symbols[right]!);
      // A stale candidate: the pair here has changed. If the new pair has the same rank, this key is also the
      // right one for it.
      if (this.#pairs.entries[slot + 2] !== rank) continue;
      symbols[left] = this.#pairs.entries[slot + 3]!;
      symbols[right] = -1;
      const after = next[right]!;
      next[left] = after;
      if (after < count) {
        previous[after] = left;
        this.#consider(symbols, left, after);
      }
      if (previous[left]! >= 0) this.#consider(symbols, previous[left]!, left);
    }
    let kept = 0;
    for (let i = 0; i < count; i = next[i]!) symbols[kept++] = symbols[i]!;
    return kept;
  }

  #start(count: number): void {
    this.#heapSize = 0;
    if (this.#next.length >= count) return;
    const capacity = Math.max(count, this.#next.length * 2);
    this.#next = new Int32Array(capacity);
    this.#previous = new Int32Array(capacity);
  }

  #consider(symbols: Int32Array, left: number, right: number): void {
    const slot = this.#pairs.find(symbols[left]!, symbols[right]!);
    const rank = this.#pairs.entries[slot + 2]!;
    if (rank !== NO_MERGE) this.#push(rank * POSITIONS + left);
  }

  #push(key: number): void {
    if (this.#heapSize === this.#heap.length) {
      const grown = new Float64Array(this.#heap.length * 2);
      grown.set(this.#heap);
      this.#heap = grown;
    }
    const heap = this.#heap;
    let index = this.#heapSize++;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (heap[parent]! <= key) break;
      heap[index] = heap[parent]!;
      index = parent;
    }
    heap[index] = key;
  }

  #pop(): number {
    const heap = this.#heap;
    const top = heap[0]!;
    const size = --this.#heapSize;
    const last = heap[size]!;
    let index = 0;
    for (;;) {
      let child = index * 2 + 1;
      if (child >= size) break;
      if (child + 1 < size && heap[child + 1]! < heap[child]!) child++;
      if (heap[child]! >= last) break;
      heap[index] = heap[child]!;
      index = child;
    }
    heap[index] = last;
    return top;
  }
}

/** Texts that take part in merges but are not tokens: ids after the vocabulary's own. */
export class SymbolNames {
  readonly #texts: readonly string[];
  readonly #extraTexts: string[] = [];
  readonly #extraIds: Map<string, number> = new Map();
  readonly #idOf: (text: string) => number | undefined;

  constructor(texts: readonly string[], idOf: (text: string) => number | undefined) {
    this.#texts = texts;
    this.#idOf = idOf;
  }

  /** The token's id, or a number after the last token that stands for this text from now on. */
  symbol(text: string): number {
    const known = this.#idOf(text) ?? this.#extraIds.get(text);
    if (known !== undefined) return known;
    const id = this.#texts.length + this.#extraTexts.length;
    this.#extraTexts.push(text);
    this.#extraIds.set(text, id);
    return id;
  }

  text(symbol: number): string {
    const size = this.#texts.length;
    return symbol < size ? this.#texts[symbol]! : this.#extraTexts[symbol - size]!;
  }

  isToken(symbol: number): boolean {
    return symbol < this.#texts.length;
  }
}

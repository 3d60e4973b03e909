// Sets of bytes as 8 words of 32 bits, and the table that gives equal sets the same id.

export type ByteSet = Uint32Array; // [8]

export function hasByte(set: ByteSet, byte: number): boolean {
  return ((set[byte >> 5]! >>> (byte & 31)) & 1) === 1;
}

export function byteRange(from: number, to: number): ByteSet {
  const set = new Uint32Array(8);
  for (let byte = from; byte <= to; byte++) set[byte >> 5]! |= 1 << (byte & 31);
  return set;
}

/** Hash-consed byte sets: equal sets have equal ids. Id 0 is the empty set. */
export class ByteSets {
  readonly #sets: ByteSet[] = [];
  readonly #ids: Map<string, number> = new Map();
  /** Unions by both sets' ids; intersections at + 2^40. */
  readonly #joined: Map<number, number> = new Map();

  constructor() {
    this.add(new Uint32Array(8));
  }

  add(set: ByteSet): number {
    const key = set.join();
    let id = this.#ids.get(key);
    if (id === undefined) {
      id = this.#sets.push(set) - 1;
      this.#ids.set(key, id);
    }
    return id;
  }

  get(id: number): ByteSet {
    return this.#sets[id]!;
  }

  union(a: number, b: number): number {
    if (a === b || b === 0) return a;
    if (a === 0) return b;
    return this.#join(a, b, 0, (x, y) => x | y);
  }

  intersection(a: number, b: number): number {
    if (a === b) return a;
    return this.#join(a, b, 1_099_511_627_776, (x, y) => x & y);
  }

  #join(a: number, b: number, kind: number, join: (x: number, y: number) => number): number {
    const key = kind + a * 1_048_576 + b;
    let id = this.#joined.get(key);
    if (id === undefined) {
      const [x, y] = [this.get(a), this.get(b)];
      id = this.add(x.map((word, i) => join(word, y[i]!)));
      this.#joined.set(key, id);
    }
    return id;
  }
}

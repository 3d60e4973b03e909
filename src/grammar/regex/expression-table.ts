// The storage of expressions: equal nodes have equal numbers. A table of hashes instead of a map of texts, since every
// derivative asks it several times.

import { GrammarSizeError } from "../errors.ts";

/** Beyond this many nodes an expression counts as exploding. A node takes about 200 bytes. */
const MOST_NODES = 1_500_000;

export const KIND = {
  empty: 0,
  epsilon: 1,
  bytes: 2,
  concat: 3,
  or: 4,
  and: 5,
  not: 6,
  repeat: 7,
  multiple: 8,
} as const;

export interface ExpressionNode {
  readonly kind: number;
  readonly left: number;
  readonly right: number;
  readonly high: number;
  readonly parts: readonly number[];
}

export class ExpressionTable {
  readonly kind: number[] = [];
  readonly left: number[] = []; // byte set of bytes; first part of concat; operand of not and repeat
  readonly right: number[] = []; // rest of concat; lower bound of repeat
  readonly high: number[] = []; // upper bound of repeat
  readonly parts: (readonly number[] | undefined)[] = []; // of or, and: ascending
  readonly nullable: boolean[] = [];
  readonly boolean: boolean[] = []; // has an intersection or a complement, so it may match no text
  readonly #hashes: number[] = [];
  #slots = new Int32Array(1024); // a node's number + 1; 0: free

  /** The number of this node; -1 if it was not added yet. */
  find(
    kind: number,
    left: number,
    right: number,
    high: number,
    parts: readonly number[] | undefined,
  ): number {
    const hash = hashOf(kind, left, right, high, parts);
    const most = this.#slots.length - 1;
    for (let slot = hash & most; ; slot = (slot + 1) & most) {
      const id = this.#slots[slot]! - 1;
      if (id < 0) return -1;
      if (
        this.#hashes[id] === hash &&
        this.kind[id] === kind &&
        this.left[id] === left &&
        this.right[id] === right &&
        this.high[id] === high &&
        areEqual(this.parts[id], parts)
      ) {
        return id;
      }
    }
  }

  /** Adds a node that `find` did not find. */
  add(
    kind: number,
    left: number,
    right: number,
    high: number,
    parts: readonly number[] | undefined,
    nullable: boolean,
    boolean: boolean,
  ): number {
    const id = this.kind.length;
    if (id >= MOST_NODES) {
      throw new GrammarSizeError(
        `grammar: the regular expressions have more than ${MOST_NODES} states. Use shorter repetitions or simpler patterns`,
      );
    }
    this.kind.push(kind);
    this.left.push(left);
    this.right.push(right);
    this.high.push(high);
    this.parts.push(parts);
    this.nullable.push(nullable);
    this.boolean.push(boolean);
    this.#hashes.push(hashOf(kind, left, right, high, parts));
    if (2 * id >= this.#slots.length) this.#widen();
    else this.#place(id);
    return id;
  }

  #place(id: number): void {
    const most = this.#slots.length - 1;
    let slot = this.#hashes[id]! & most;
    while (this.#slots[slot] !== 0) slot = (slot + 1) & most;
    this.#slots[slot] = id + 1;
  }

  #widen(): void {
    this.#slots = new Int32Array(this.#slots.length * 4);
    for (let id = 0; id < this.kind.length; id++) this.#place(id);
  }
}

function hashOf(
  kind: number,
  left: number,
  right: number,
  high: number,
  parts: readonly number[] | undefined,
): number {
  let hash = Math.imul(kind + 1, 0x9e3779b1);
  hash = Math.imul(hash ^ left, 0x85ebca6b);
  hash = Math.imul((hash ^ (hash >>> 15)) + right, 0xc2b2ae35);
  // As an integer: Infinity, the upper bound of most repetitions, would make all of them 0.
  hash = Math.imul((hash ^ (hash >>> 13)) + (high | 0), 0x27d4eb2f);
  if (parts !== undefined) {
    for (let i = 0; i < parts.length; i++) {
      hash = Math.imul((hash ^ (hash >>> 15)) + parts[i]!, 0x85ebca6b);
    }
  }
  return hash ^ (hash >>> 16);
}

function areEqual(a: readonly number[] | undefined, b: readonly number[] | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

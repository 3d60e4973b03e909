// Sets of trie nodes: where a walk stands when a rule ends in the middle of tokens. Equal sets are the same object, so
// that results of walks can be kept by set.

import type { Meter } from "./meter.ts";
import type { TokenTrie } from "./trie.ts";

export interface Children {
  readonly byte: number;
  readonly nodes: Int32Array; // ascending
}

export class NodeSet {
  readonly id: number;
  readonly nodes: Int32Array; // ascending
  /** Bytes below the nodes, 255 for more. */
  readonly height: number;
  readonly #trie: TokenTrie;
  readonly #meter: Meter;
  #children: readonly Children[] | undefined;

  constructor(id: number, nodes: Int32Array, trie: TokenTrie, meter: Meter) {
    this.id = id;
    this.nodes = nodes;
    this.#trie = trie;
    this.#meter = meter;
    let height = 0;
    for (const node of nodes) height = Math.max(height, trie.height[node]!);
    this.height = height;
  }

  /** The children of all nodes, by byte; the children of one node in ascending order. */
  get children(): readonly Children[] {
    if (this.#children === undefined) {
      const { byte, end } = this.#trie;
      const lists = new Map<number, number[]>();
      let count = 0;
      for (const node of this.nodes) {
        for (let child = node + 1; child < end[node]!; child = end[child]!) {
          count++;
          const list = lists.get(byte[child]!);
          if (list) list.push(child);
          else lists.set(byte[child]!, [child]);
        }
      }
      this.#meter.note(count / 10);
      this.#meter.take(8 * count);
      this.#children = [...lists].map(([key, list]) => ({
        byte: key,
        nodes: Int32Array.from(list),
      }));
    }
    return this.#children;
  }
}

export class NodeSets {
  readonly root: NodeSet;
  readonly meter: Meter;
  readonly #trie: TokenTrie;
  readonly #byHash: Map<number, NodeSet[]> = new Map();
  #size = 0;
  #bytes = 0;
  #scratch = new Int32Array(1024);

  constructor(trie: TokenTrie, meter: Meter) {
    this.#trie = trie;
    this.meter = meter;
    this.root = this.of([0])!;
  }

  get size(): number {
    return this.#size;
  }

  /** Memory of the sets and of their children, about. */
  get bytes(): number {
    return this.#bytes;
  }

  /** The set of the nodes that have children; undefined if none has. */
  of(nodes: ArrayLike<number>): NodeSet | undefined {
    const { height } = this.#trie;
    this.meter.note(nodes.length / 20);
    if (nodes.length > this.#scratch.length) this.#scratch = new Int32Array(2 * nodes.length);
    const scratch = this.#scratch;
    let count = 0;
    let isAscending = true;
    for (let i = 0; i < nodes.length; i++) {
      const node = nodes[i]!;
      if (height[node] === 0) continue;
      if (count > 0 && scratch[count - 1]! >= node) {
        if (scratch[count - 1] === node) continue;
        isAscending = false;
      }
      scratch[count++] = node;
    }
    if (count === 0) return undefined;
    if (!isAscending) {
      scratch.subarray(0, count).sort();
      let unique = 1;
      for (let i = 1; i < count; i++) {
        if (scratch[i] !== scratch[i - 1]) scratch[unique++] = scratch[i]!;
      }
      count = unique;
    }
    return this.#kept(scratch, count);
  }

  #kept(nodes: Int32Array, count: number): NodeSet {
    let hash = count;
    for (let i = 0; i < count; i++)
      hash = Math.imul((hash ^ (hash >>> 15)) + nodes[i]!, 0x85ebca6b);
    const list = this.#byHash.get(hash);
    for (const set of list ?? []) if (isSame(set.nodes, nodes, count)) return set;
    this.#bytes += 256 + 12 * count;
    this.meter.take(256 + 4 * count);
    const set = new NodeSet(this.#size++, nodes.slice(0, count), this.#trie, this.meter);
    if (list) list.push(set);
    else this.#byHash.set(hash, [set]);
    return set;
  }
}

function isSame(a: Int32Array, b: Int32Array, count: number): boolean {
  if (a.length !== count) return false;
  for (let i = 0; i < count; i++) if (a[i] !== b[i]) return false;
  return true;
}

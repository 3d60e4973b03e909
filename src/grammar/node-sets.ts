// Sets of trie nodes: where a walk stands when a rule ends in the middle of tokens. Equal sets are the same object, so
// that results of walks can be kept by set.

import type { TokenTrie } from "./trie.ts";

export class NodeSet {
  readonly id: number;
  readonly nodes: Int32Array; // ascending
  /** Bytes below the nodes, 255 for more. */
  readonly height: number;
  readonly #trie: TokenTrie;
  #children: readonly (readonly [byte: number, nodes: Int32Array])[] | undefined;

  constructor(id: number, nodes: Int32Array, trie: TokenTrie) {
    this.id = id;
    this.nodes = nodes;
    this.#trie = trie;
    let height = 0;
    for (const node of nodes) height = Math.max(height, trie.height[node]!);
    this.height = height;
  }

  /** The children of all nodes, by byte. */
  get children(): readonly (readonly [byte: number, nodes: Int32Array])[] {
    if (this.#children === undefined) {
      const { byte, end } = this.#trie;
      const lists = new Map<number, number[]>();
      for (const node of this.nodes) {
        for (let child = node + 1; child < end[node]!; child = end[child]!) {
          const list = lists.get(byte[child]!);
          if (list) list.push(child);
          else lists.set(byte[child]!, [child]);
        }
      }
      this.#children = [...lists].map(([key, list]) => [key, Int32Array.from(list)] as const);
    }
    return this.#children;
  }
}

export class NodeSets {
  readonly root: NodeSet;
  readonly #trie: TokenTrie;
  readonly #sets: Map<string, NodeSet> = new Map();

  constructor(trie: TokenTrie) {
    this.#trie = trie;
    this.root = this.of([0])!;
  }

  get size(): number {
    return this.#sets.size;
  }

  /** The set of the nodes that have children; undefined if none has. */
  of(nodes: readonly number[]): NodeSet | undefined {
    const { height } = this.#trie;
    const inner = nodes.filter((node) => height[node]! > 0);
    if (inner.length === 0) return undefined;
    inner.sort((a, b) => a - b);
    const unique = inner.filter((node, i) => node !== inner[i - 1]);
    const key = unique.join();
    let set = this.#sets.get(key);
    if (set === undefined) {
      set = new NodeSet(this.#sets.size, Int32Array.from(unique), this.#trie);
      this.#sets.set(key, set);
    }
    return set;
  }
}

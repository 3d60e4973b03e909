// Walks of lexemes, kept for all grammars of a vocabulary, and the large ones as references for others.

import type { Lexemes } from "./lexemes.ts";
import type { NodeSet, NodeSets } from "./node-sets.ts";
import type { TokenTrie } from "./trie.ts";
import {
  type Reference,
  takeFound,
  type Walk,
  walkBeside,
  walkBytes,
  walkInside,
} from "./trie-walk.ts";

/** References that are kept besides the first; each has 4 bytes for each trie node. */
const MOST_REFERENCES = 12;
/** Walks that are kept; beyond it they are computed again. */
const MOST_BYTES = 64 << 20;

export class LexemeWalks {
  readonly #trie: TokenTrie;
  readonly #sets: NodeSets;
  readonly #lexemes: Lexemes;
  #kept: Map<number, Walk> = new Map();
  #bytes = 0;
  readonly #references: Reference[] = [];
  /** The states of a walk that did not become a reference, for the next one. */
  #spare: Int32Array | undefined;

  constructor(trie: TokenTrie, sets: NodeSets, lexemes: Lexemes) {
    this.#trie = trie;
    this.#sets = sets;
    this.#lexemes = lexemes;
  }

  get size(): number {
    return this.#kept.size;
  }

  /** Memory of the walks that are kept, with the references. */
  get bytes(): number {
    return this.#bytes + this.#references.length * 4 * this.#trie.nodes;
  }

  get hasReference(): boolean {
    return this.#references.length > 0;
  }

  /** Walks once from a state that many others come to: the inside of a JSON string. */
  setReference(state: number): void {
    this.#walkWhole(state);
  }

  walk(state: number, from: NodeSet): Walk {
    const { loose, bound } = this.#lexemes;
    const alike = bound[state]! >= from.height && from.height < 255 ? loose[state]! : state;
    const key = this.#key(alike, from);
    const known = this.#kept.get(key);
    if (known) return known;
    this.#sets.meter.spend(4);
    const walk = from === this.#sets.root ? this.#walkRoot(alike) : this.#walkFrom(alike, from);
    this.#keep(key, walk);
    return walk;
  }

  #keep(key: number, walk: Walk): void {
    if (this.#kept.has(key)) return;
    this.#bytes += walkBytes(walk);
    if (this.#bytes > MOST_BYTES) {
      this.#kept = new Map(); // computed again where they are needed
      this.#bytes = walkBytes(walk);
    }
    this.#kept.set(key, walk);
  }

  #key(state: number, from: NodeSet): number {
    return state * 2 ** 32 + from.id;
  }

  #walkFrom(state: number, from: NodeSet): Walk {
    const found = takeFound(this.#trie);
    walkInside(this.#lexemes, state, from, this.#trie, found);
    return found.end(this.#sets);
  }

  #walkRoot(state: number): Walk {
    const { reference, isClose } = this.#closest(state);
    if (reference === undefined || !isClose) return this.#walkWhole(state);
    const found = takeFound(this.#trie);
    walkBeside(this.#lexemes, state, this.#sets.root, this.#trie, reference, found);
    return found.end(this.#sets);
  }

  /** Walks the whole trie. A walk with many tokens becomes a reference. */
  #walkWhole(state: number): Walk {
    const states = this.#spare?.fill(0) ?? new Int32Array(this.#trie.nodes);
    this.#spare = states;
    const found = takeFound(this.#trie);
    walkInside(this.#lexemes, state, this.#sets.root, this.#trie, found, states);
    const exits = found.exits.slice(0, found.exitCount).sort();
    const walk = found.end(this.#sets);
    if (walk.mask) {
      this.#spare = undefined;
      if (this.#references.length > MOST_REFERENCES) this.#references.splice(1, 1);
      this.#references.push({ mask: walk.mask, exits, states });
    }
    this.#keep(this.#key(state, this.#sets.root), walk);
    return walk;
  }

  /** The reference that shares most subtrees below the root with this state, and whether those hold most tokens. */
  #closest(state: number): { reference: Reference | undefined; isClose: boolean } {
    const { end, firstToken, height, tokens } = this.#trie;
    const { loose, bound } = this.#lexemes;
    const references = this.#references;
    const { children } = this.#sets.root;
    const shared = new Float64Array(references.length);
    let reached = 0;
    for (let c = 0; c < children.length; c++) {
      const next = this.#lexemes.next(state, children[c]!.byte);
      if (next === 0) continue;
      const child = children[c]!.nodes[0]!;
      const count = firstToken[end[child]!]! - firstToken[child]!;
      reached += count;
      const isBounded = bound[next]! > 0;
      const looser = loose[next]!;
      const alike = bound[next]! >= height[child]! && height[child]! < 255 ? looser : next;
      for (let i = 0; i < references.length; i++) {
        const other = references[i]!.states[child]!;
        if (alike === other) shared[i]! += count;
        else if (isBounded && looser === other) shared[i]! += count / 2; // deeper subtrees will be the same
      }
    }
    let best = 0;
    for (let i = 1; i < shared.length; i++) if (shared[i]! > shared[best]!) best = i;
    // A walk that reaches little is quick, and is not worth a reference.
    const isSmall = reached < tokens.length / 16;
    return { reference: references[best], isClose: isSmall || shared[best]! > reached / 3 };
  }
}

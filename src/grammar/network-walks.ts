// Walks of one grammar's rules: inside a rule over bytes, and from rule to rule where others begin or end.

import { CALLS, FINAL } from "./automaton.ts";
import type { LexemeWalks } from "./lexeme-walks.ts";
import type { Network } from "./network.ts";
import type { NodeSet, NodeSets } from "./node-sets.ts";
import type { TokenTrie } from "./trie.ts";
import { type Found, takeFound, type Walk, walkBytes, walkInside } from "./trie-walk.ts";

/** What a grammar keeps of its walks; beyond it they are computed again. A mask of 128k tokens has 16 KB. */
const MOST_BYTES = 64 << 20;

export class NetworkWalks {
  readonly #trie: TokenTrie;
  readonly #sets: NodeSets;
  readonly #network: Network;
  readonly #lexemes: LexemeWalks;
  #kept: Map<number, Walk> = new Map();
  #bytes = 0;

  constructor(trie: TokenTrie, sets: NodeSets, network: Network, lexemes: LexemeWalks) {
    this.#trie = trie;
    this.#sets = sets;
    this.#network = network;
    this.#lexemes = lexemes;
  }

  /** Memory of the walks that are kept. */
  get bytes(): number {
    return this.#bytes;
  }

  walk(state: number, from: NodeSet): Walk {
    const key = state * 1_048_576 + from.id;
    let walk = this.#kept.get(key);
    if (walk === undefined) {
      walk = this.#compute(state, from);
      this.#bytes += walkBytes(walk);
      if (this.#bytes > MOST_BYTES) {
        this.#kept = new Map();
        this.#bytes = walkBytes(walk);
      }
      this.#kept.set(key, walk);
    }
    return walk;
  }

  #compute(state: number, from: NodeSet): Walk {
    const found = takeFound(this.#trie);
    walkInside(this.#network, state, from, this.#trie, found);
    if (this.#network.flags[state]! & CALLS) this.#call(state, from, found);
    if (from === this.#sets.root) this.#addTokenLiterals(state, found);
    for (const [at, nodes] of found.calls) {
      const set = this.#sets.of(nodes);
      if (set) this.#call(at, set, found);
    }
    return found.end(this.#sets);
  }

  #call(state: number, from: NodeSet, found: Found): void {
    for (const { isLexeme, start, resume } of this.#network.calls(state)) {
      const called = isLexeme ? this.#lexemes.walk(start, from) : this.walk(start, from);
      found.join(called);
      if (called.exits === undefined) continue;
      const after = this.walk(resume, called.exits);
      found.join(after);
      if (after.exits) found.addExits(after.exits.nodes);
      if (this.#network.flags[resume]! & FINAL) found.addExits(called.exits.nodes);
    }
  }

  /** A grammar can name a token itself, whatever its bytes are. "Any but" does not mean the end of the generation. */
  #addTokenLiterals(state: number, found: Found): void {
    for (const { ids, except } of this.#network.tokenCalls(state)) {
      if (!except) for (const id of ids) found.addToken(id);
      else {
        for (let id = 0; id < this.#trie.vocabSize; id++) {
          if (!ids.has(id) && !this.#trie.endTokens.includes(id)) found.addToken(id);
        }
      }
    }
  }
}

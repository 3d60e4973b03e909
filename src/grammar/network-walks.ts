// Walks of one grammar's rules: inside a rule over bytes, and from rule to rule where others begin or end.

import { CALLS, FINAL } from "./automaton.ts";
import type { LexemeWalks } from "./lexeme-walks.ts";
import type { Network } from "./network.ts";
import type { NodeSet, NodeSets } from "./node-sets.ts";
import type { TokenTrie } from "./trie.ts";
import { type Found, takeFound, type Walk, walkBytes, walkInside } from "./trie-walk.ts";

/** What a grammar keeps of its walks; beyond it they are computed again. A mask of 128k tokens has 16 KB. */
const MOST_BYTES = 64 << 20;
/** More than a pool has sets. */
const SETS = 2 ** 32;

/** A walk that another one needs. */
interface Needed {
  readonly state: number;
  readonly from: NodeSet;
}

type Work = Generator<Needed, Walk, Walk>;

/** What a walk takes of another one. */
interface Part {
  readonly walk: Walk;
  readonly exits: NodeSet | undefined;
}

function keyOf(state: number, from: NodeSet): number {
  return state * SETS + from.id;
}

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

  /** Walks need other walks: a stack of our own, since rules may call rules as deep as they like. */
  walk(state: number, from: NodeSet): Walk {
    const known = this.#known(state, from);
    if (known) return known;
    const open: { readonly key: number; readonly work: Work }[] = [];
    const begin = (of: Needed): void => {
      open.push({ key: keyOf(of.state, of.from), work: this.#compute(of.state, of.from) });
    };
    begin({ state, from });
    let found: Walk | undefined;
    for (;;) {
      const { key, work } = open[open.length - 1]!;
      const step = work.next(found!);
      found = undefined;
      if (!step.done) {
        begin(step.value);
        continue;
      }
      found = step.value;
      this.#keep(key, found);
      open.pop();
      if (open.length === 0) return found;
    }
  }

  #known(state: number, from: NodeSet): Walk | undefined {
    return this.#kept.get(keyOf(state, from));
  }

  #keep(key: number, walk: Walk): void {
    this.#bytes += walkBytes(walk);
    if (this.#bytes > MOST_BYTES) {
      this.#kept = new Map();
      this.#bytes = walkBytes(walk);
    }
    this.#kept.set(key, walk);
  }

  *#compute(state: number, from: NodeSet): Work {
    // What is called here comes first, so that a chain of calls holds no buffers.
    const parts: Part[] = [];
    if (this.#network.flags[state]! & CALLS) yield* this.#call(state, from, parts);
    const found = takeFound(this.#trie);
    walkInside(this.#network, state, from, this.#trie, found);
    if (from === this.#sets.root) this.#addTokenLiterals(state, found);
    for (const [at, nodes] of found.calls) {
      const set = this.#sets.of(nodes);
      if (set) yield* this.#call(at, set, parts);
    }
    for (const { walk, exits } of parts) {
      found.join(walk);
      if (exits) found.addExits(exits.nodes);
    }
    return found.end(this.#sets);
  }

  *#call(state: number, from: NodeSet, parts: Part[]): Generator<Needed, void, Walk> {
    for (const { isLexeme, start, resume } of this.#network.calls(state)) {
      this.#sets.meter.spend(1);
      const called = isLexeme
        ? this.#lexemes.walk(start, from)
        : (this.#known(start, from) ?? (yield { state: start, from }));
      const { exits } = called;
      const isFinal = (this.#network.flags[resume]! & FINAL) !== 0;
      parts.push({ walk: called, exits: isFinal ? exits : undefined });
      if (exits === undefined) continue;
      const after = this.#known(resume, exits) ?? (yield { state: resume, from: exits });
      parts.push({ walk: after, exits: after.exits });
    }
  }

  /** A grammar can name a token itself, whatever its bytes are. "Any but" does not mean the end of the generation. */
  #addTokenLiterals(state: number, found: Found): void {
    let forbidden: ReadonlySet<number> | undefined; // by all that allow any token but some
    for (const { ids, except } of this.#network.tokenCalls(state)) {
      this.#sets.meter.note(1 + ids.size / 20);
      if (!except) for (const id of ids) found.addToken(id);
      else forbidden = forbidden ? new Set([...forbidden].filter((id) => ids.has(id))) : ids;
    }
    if (forbidden === undefined) return;
    this.#sets.meter.note(this.#trie.vocabSize / 20);
    for (let id = 0; id < this.#trie.vocabSize; id++) {
      if (!forbidden.has(id) && !this.#trie.endTokens.includes(id)) found.addToken(id);
    }
  }
}

// Walks of one grammar's rules: inside a rule over bytes, and from rule to rule where others begin or end.

import { CALLS, FINAL } from "./automaton.ts";
import type { LexemeWalks } from "./lexeme-walks.ts";
import { PausedError } from "./meter.ts";
import type { Network } from "./network.ts";
import type { NodeSet, NodeSets } from "./node-sets.ts";
import type { TokenTrie } from "./trie.ts";
import { type Found, takeFound, type Walk, walkBytes, walkInside } from "./trie-walk.ts";

/** The bytes of walks that a grammar keeps; beyond them walks are computed again. A mask of 128k tokens has 16 KB. */
const MOST_BYTES = 64 << 20;
/** More than a pool has sets. */
const SETS = 2 ** 32;

/** A walk that another one needs. */
interface Needed {
  readonly state: number;
  readonly from: NodeSet;
}

/** undefined: the slice is used up. */
type Work = Generator<Needed | undefined, Walk, Walk>;

/** A walk that waits for the one that it needs. */
interface Open {
  readonly needed: Needed;
  readonly work: Work;
}

/** The steps for beginning and ending a walk, without its results: it asks for each byte that tokens begin with. */
const WALK_STEPS = 4;

/** The number of a grammar's texts that may have a paused walk. */
const MOST_PAUSED = 8;

/** The part of another walk that a walk takes. */
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
  /** Walks that were under way when a slice was used up, by the key of the first. Deep chains of rules have thousands. */
  readonly #paused: Map<number, Open[]> = new Map();

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
    const first = keyOf(state, from);
    const open = this.#paused.get(first) ?? [];
    this.#paused.delete(first);
    const begin = (needed: Needed): void => {
      open.push({ needed, work: this.#compute(needed.state, needed.from) });
    };
    if (open.length === 0) begin({ state, from });
    let walk: Walk | undefined;
    try {
      walk = this.#finish(open, begin);
    } catch (error) {
      // The innermost walk begins again, since it ended with the error; the outer ones still wait for it.
      if (error instanceof PausedError) {
        begin(open.pop()!.needed);
        this.#pause(first, open);
      }
      throw error;
    }
    if (walk) return walk;
    this.#pause(first, open);
    throw new PausedError(true);
  }

  /** undefined: it is paused. */
  #finish(open: Open[], begin: (needed: Needed) => void): Walk | undefined {
    let found: Walk | undefined;
    for (;;) {
      const { needed, work } = open[open.length - 1]!;
      const step = work.next(found!);
      found = undefined;
      if (!step.done) {
        if (step.value === undefined) return undefined;
        begin(step.value);
        this.#sets.meter.keep();
        continue;
      }
      found = step.value;
      this.#keep(keyOf(needed.state, needed.from), found);
      open.pop();
      if (open.length === 0) return found;
    }
  }

  #pause(first: number, open: Open[]): void {
    const [oldest] = this.#paused.keys();
    if (oldest !== undefined && this.#paused.size >= MOST_PAUSED) this.#paused.delete(oldest);
    this.#paused.set(first, open);
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
    this.#sets.meter.keep();
  }

  *#compute(state: number, from: NodeSet): Work {
    // Called rules come first, so that a chain of calls holds no buffers.
    const parts: Part[] = [];
    if (this.#network.flags[state]! & CALLS) yield* this.#call(state, from, parts);
    const { meter } = this.#sets;
    if (meter.isPaused) yield undefined;
    meter.note(WALK_STEPS);
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

  *#call(state: number, from: NodeSet, parts: Part[]): Generator<Needed | undefined, void, Walk> {
    for (const { isLexeme, start, resume } of this.#network.calls(state)) {
      if (this.#sets.meter.isPaused) yield undefined;
      this.#sets.meter.note(1);
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

  /** A grammar can name a token itself, with any bytes. "Any but" does not include the end of the generation. */
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

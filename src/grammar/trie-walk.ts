// Walks of the trie inside one automaton: which tokens can be taken from a state, and at which trie nodes a rule may end.
//
// Where the rule ends in the middle of tokens, the exits tell the caller where to go on. So a walk depends on a state and a
// set of trie nodes and on nothing around them, and its result is kept (lexeme-walks.ts, network-walks.ts).

import { type Automaton, CALLS, FINAL } from "./automaton.ts";
import type { Lexemes } from "./lexemes.ts";
import type { NodeSet } from "./node-sets.ts";
import type { TokenTrie } from "./trie.ts";

export interface Walk {
  /** Where there are many tokens; else undefined. */
  readonly mask: Uint32Array | undefined; // [maskWords]
  readonly tokens: Int32Array;
  /** Where the rule may end with bytes of tokens left. */
  readonly exits: NodeSet | undefined;
}

/** A walk of the whole trie whose every state is known, so that other walks can end where they meet it. */
export interface Reference {
  readonly mask: Uint32Array; // [maskWords]
  readonly exits: Int32Array; // ascending nodes
  readonly states: Int32Array; // [nodes]: 0 where the walk did not come
}

/** What a walk has found so far. */
export class Found {
  readonly #trie: TokenTrie;
  #tokens = new Int32Array(64);
  #count = 0;
  masks: Uint32Array[] = [];
  readonly exits: number[] = [];
  /** The nodes at which calls begin, by state. */
  readonly calls: Map<number, number[]> = new Map();

  constructor(trie: TokenTrie) {
    this.#trie = trie;
  }

  /** The tokens of `trie.tokens` from `first` to before `end`. */
  addRange(first: number, end: number): void {
    const { tokens } = this.#trie;
    this.#makeRoom(end - first);
    for (let i = first; i < end; i++) this.#tokens[this.#count++] = tokens[i]!;
  }

  addToken(token: number): void {
    this.#makeRoom(1);
    this.#tokens[this.#count++] = token;
  }

  #makeRoom(more: number): void {
    if (this.#count + more <= this.#tokens.length) return;
    const wider = new Int32Array(Math.max(this.#tokens.length * 4, this.#count + more));
    wider.set(this.#tokens.subarray(0, this.#count));
    this.#tokens = wider;
  }

  join(walk: Walk): void {
    if (walk.mask) this.masks.push(walk.mask);
    this.#makeRoom(walk.tokens.length);
    this.#tokens.set(walk.tokens, this.#count);
    this.#count += walk.tokens.length;
  }

  note(flags: number, state: number, node: number): void {
    if (flags & FINAL) this.exits.push(node);
    if (!(flags & CALLS)) return;
    const list = this.calls.get(state);
    if (list) list.push(node);
    else this.calls.set(state, [node]);
  }

  /** With many tokens a mask is smaller and quicker than a list. */
  result(exits: NodeSet | undefined): Walk {
    const { maskWords } = this.#trie;
    const tokens = this.#tokens.subarray(0, this.#count);
    if (this.masks.length === 0 && tokens.length <= maskWords / 4) {
      return { mask: undefined, tokens: tokens.slice(), exits };
    }
    const mask = this.masks[0]?.slice() ?? new Uint32Array(maskWords);
    for (let i = 1; i < this.masks.length; i++) joinMask(mask, this.masks[i]!);
    for (let i = 0; i < tokens.length; i++) mask[tokens[i]! >> 5]! |= 1 << (tokens[i]! & 31);
    return { mask, tokens: NO_TOKENS, exits };
  }
}

const NO_TOKENS = new Int32Array(0);

export function joinMask(into: Uint32Array, from: Uint32Array): void {
  for (let i = 0; i < from.length; i++) into[i]! |= from[i]!;
}

/** The longest token has 65,536 characters (tokenizers/vocabulary.ts) of up to three bytes. */
const pathEnds = new Int32Array(200_000);
const pathStates = new Int32Array(200_000);

/** Walks the subtrees of the children of `from`. `record` gets the state of every node that is reached. */
export function walkInside(
  automaton: Automaton,
  state: number,
  from: NodeSet,
  trie: TokenTrie,
  found: Found,
  record?: Int32Array,
): void {
  const { byte, end, firstToken } = trie;
  for (const [first, children] of from.children) {
    const start = automaton.next(state, first);
    if (start === 0) continue;
    for (const child of children) {
      let node = child;
      let at = start;
      let depth = 0;
      for (;;) {
        if (record) record[node] = at;
        const token = firstToken[node]!;
        if (token !== firstToken[node + 1]!) found.addRange(token, firstToken[node + 1]!);
        const after = end[node]!;
        if (node + 1 < after) {
          const flags = automaton.flags[at]!;
          if (flags !== 0) found.note(flags, at, node);
          pathEnds[depth] = after;
          pathStates[depth++] = at;
        }
        node++;
        for (;;) {
          while (depth > 0 && node >= pathEnds[depth - 1]!) depth--;
          if (depth === 0) break;
          const row = pathStates[depth - 1]!;
          at = automaton.table[(row << 8) | byte[node]!]!;
          if (at < 0) at = automaton.next(row, byte[node]!);
          if (at !== 0) break;
          node = end[node]!;
        }
        if (depth === 0) break;
      }
    }
  }
}

/**
 * The same for a lexeme, but a subtree that is entered in the reference's state is taken from the reference. Most of a string
 * with a length, or of a key that must differ from others, is a few such subtrees.
 */
export function walkBeside(
  lexemes: Lexemes,
  state: number,
  from: NodeSet,
  trie: TokenTrie,
  reference: Reference,
  found: Found,
): void {
  const { byte, end, height, firstToken } = trie;
  const { loose, bound } = lexemes;
  const { states, exits } = reference;
  const same: number[] = []; // pairs: where tokens begin and end, in the trie's order
  let count = 0;
  for (const [first, children] of from.children) {
    const start = lexemes.next(state, first);
    if (start === 0) continue;
    for (const child of children) {
      let node = child;
      let at = start;
      let depth = 0;
      for (;;) {
        const after = end[node]!;
        const isShort = bound[at]! >= height[node]! && height[node]! < 255;
        if ((isShort ? loose[at]! : at) === states[node]) {
          same.push(firstToken[node]!, firstToken[after]!);
          count += firstToken[after]! - firstToken[node]!;
          for (let i = lowerBound(exits, node); i < exits.length && exits[i]! < after; i++) {
            found.exits.push(exits[i]!);
          }
          node = after;
        } else {
          const token = firstToken[node]!;
          if (token !== firstToken[node + 1]!) found.addRange(token, firstToken[node + 1]!);
          if (node + 1 < after) {
            if (lexemes.flags[at]! & FINAL) found.exits.push(node);
            pathEnds[depth] = after;
            pathStates[depth++] = at;
          }
          node++;
        }
        for (;;) {
          while (depth > 0 && node >= pathEnds[depth - 1]!) depth--;
          if (depth === 0) break;
          const row = pathStates[depth - 1]!;
          at = lexemes.table[(row << 8) | byte[node]!]!;
          if (at < 0) at = lexemes.next(row, byte[node]!);
          if (at !== 0) break;
          node = end[node]!;
        }
        if (depth === 0) break;
      }
    }
  }
  if (count > 0) takeSame(found, same, count, reference.mask, trie);
}

/** Adds the reference's tokens in the ranges; from a copy of its mask where they are most of it. */
function takeSame(
  found: Found,
  same: readonly number[],
  count: number,
  mask: Uint32Array,
  trie: TokenTrie,
): void {
  const { tokens } = trie;
  if (count < tokens.length / 2) {
    for (let i = 0; i < same.length; i += 2) {
      for (let j = same[i]!; j < same[i + 1]!; j++) {
        const token = tokens[j]!;
        if ((mask[token >> 5]! >>> (token & 31)) & 1) found.addToken(token);
      }
    }
    return;
  }
  const copy = mask.slice();
  const ranges: [number, number][] = [];
  for (let i = 0; i < same.length; i += 2) ranges.push([same[i]!, same[i + 1]!]);
  ranges.sort((a, b) => a[0] - b[0]);
  ranges.push([tokens.length, tokens.length]);
  let at = 0;
  for (const [from, to] of ranges) {
    for (; at < from; at++) copy[tokens[at]! >> 5]! &= ~(1 << (tokens[at]! & 31));
    at = Math.max(at, to);
  }
  found.masks.push(copy);
}

function lowerBound(sorted: Int32Array, value: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle]! < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Walks of the trie inside one automaton: which tokens can be taken from a state, and at which trie nodes a rule may end.
//
// If the rule ends in the middle of tokens, the exits tell the caller where to continue. So a walk depends only on a state and a
// set of trie nodes, and its result is kept (lexeme-walks.ts, network-walks.ts).

import { type Automaton, CALLS, FINAL } from "./automaton.ts";
import type { Lexemes } from "./lexemes.ts";
import type { NodeSet, NodeSets } from "./node-sets.ts";
import { INNER, SHARED, type TokenTrie } from "./trie.ts";

export interface Walk {
  /** Set if there are many tokens; else undefined. */
  readonly mask: Uint32Array | undefined; // [maskWords]
  readonly tokens: Int32Array;
  /** The nodes at which the rule may end with bytes of tokens left. */
  readonly exits: NodeSet | undefined;
}

/** Memory of a walk that is kept, without its exits (node-sets.ts). */
export function walkBytes({ mask, tokens }: Walk): number {
  return 128 + (mask?.byteLength ?? 0) + tokens.byteLength;
}

/** A walk of the whole trie with all states known, so that other walks can end where they reach one of them. */
export interface Reference {
  readonly mask: Uint32Array; // [maskWords]
  readonly exits: Int32Array; // ascending nodes
  readonly states: Int32Array; // [nodes]: 0 where the walk did not come
}

/** Making a mask, in masks that are joined. */
const NEW_MASK = 4;

/** The results of a walk so far. Its buffers are used again: a walk gets it from `takeFound`, and gives it back with its result. */
export class Found {
  #trie: TokenTrie | undefined;
  tokens: Int32Array = new Int32Array(1024);
  tokenCount = 0;
  readonly masks: Uint32Array[] = [];
  exits: Int32Array = new Int32Array(1024);
  exitCount = 0;
  /** The nodes at which calls begin, by state. */
  readonly calls: Map<number, number[]> = new Map();

  begin(trie: TokenTrie): void {
    this.#trie = trie;
    this.tokenCount = 0;
    this.exitCount = 0;
    this.masks.length = 0;
    this.calls.clear();
  }

  addToken(token: number): void {
    this.makeRoom(1);
    this.tokens[this.tokenCount++] = token;
  }

  /** Before tokens are written to `tokens`. */
  makeRoom(more: number): void {
    if (this.tokenCount + more <= this.tokens.length) return;
    const wider = new Int32Array(Math.max(this.tokens.length * 2, this.tokenCount + more));
    wider.set(this.tokens.subarray(0, this.tokenCount));
    this.tokens = wider;
  }

  join(walk: Walk): void {
    if (walk.mask) this.masks.push(walk.mask);
    this.makeRoom(walk.tokens.length);
    this.tokens.set(walk.tokens, this.tokenCount);
    this.tokenCount += walk.tokens.length;
  }

  addExit(node: number): void {
    if (this.exitCount === this.exits.length) this.#widenExits(1);
    this.exits[this.exitCount++] = node;
  }

  addExits(nodes: Int32Array): void {
    if (this.exitCount + nodes.length > this.exits.length) this.#widenExits(nodes.length);
    this.exits.set(nodes, this.exitCount);
    this.exitCount += nodes.length;
  }

  #widenExits(more: number): void {
    const wider = new Int32Array(this.exits.length * 2 + more);
    wider.set(this.exits);
    this.exits = wider;
  }

  note(flags: number, state: number, node: number): void {
    if (flags & FINAL) this.addExit(node);
    if (!(flags & CALLS)) return;
    const list = this.calls.get(state);
    if (list) list.push(node);
    else this.calls.set(state, [node]);
  }

  /** The result of the walk. With many tokens a mask is smaller and quicker than a list. */
  end(sets: NodeSets): Walk {
    const { maskWords } = this.#trie!;
    const { tokens, tokenCount } = this;
    const isShort = this.masks.length === 0 && tokenCount <= maskWords / 4;
    // An own mask costs more than the masks joined into it: its memory is new.
    const masks = isShort ? 0 : this.masks.length + NEW_MASK;
    sets.meter.note((tokenCount + this.exitCount) / 20 + (masks * maskWords) / 1000);
    const exits = sets.of(this.exits.subarray(0, this.exitCount));
    let walk: Walk;
    if (isShort) {
      walk = { mask: undefined, tokens: tokens.slice(0, tokenCount), exits };
    } else {
      const mask = this.masks[0]?.slice() ?? new Uint32Array(maskWords);
      for (let i = 1; i < this.masks.length; i++) joinMask(mask, this.masks[i]!);
      for (let i = 0; i < tokenCount; i++) mask[tokens[i]! >> 5]! |= 1 << (tokens[i]! & 31);
      walk = { mask, tokens: NO_TOKENS, exits };
    }
    this.masks.length = 0;
    unused.push(this);
    return walk;
  }
}

const unused: Found[] = [];

export function takeFound(trie: TokenTrie): Found {
  const found = unused.pop() ?? new Found();
  found.begin(trie);
  return found;
}

const NO_TOKENS = new Int32Array(0);

export function joinMask(into: Uint32Array, from: Uint32Array): void {
  for (let i = 0; i < from.length; i++) into[i]! |= from[i]!;
}

/**
 * [depth]: the row of the automaton's table for the children of the node at that depth. The longest token has 65,536
 * characters (tokenizers/vocabulary.ts) of up to three bytes.
 */
const rows = new Int32Array(200_000);

/** Walks the subtrees of the children of `from`. `record` gets the state of every node that is reached. */
export function walkInside(
  automaton: Automaton,
  state: number,
  from: NodeSet,
  trie: TokenTrie,
  found: Found,
  record?: Int32Array,
): void {
  const { children } = from;
  for (let i = 0; i < children.length; i++) {
    const { byte, nodes } = children[i]!;
    const start = automaton.next(state, byte);
    if (start === 0) continue;
    for (let j = 0; j < nodes.length; j++) {
      walkSubtree(automaton, start, nodes[j]!, trie, found, record);
    }
  }
}

/** Walks `root` and the nodes below it; `start` is the state after the root's byte. */
function walkSubtree(
  automaton: Automaton,
  start: number,
  root: number,
  trie: TokenTrie,
  found: Found,
  record: Int32Array | undefined,
): void {
  const { info, end, token } = trie;
  let { table, flags } = automaton;
  const last = end[root]!;
  found.makeRoom(1 + trie.firstToken[last]! - trie.firstToken[root]!);
  const out = found.tokens;
  let count = found.tokenCount;
  let node = root;
  let at = start;
  for (;;) {
    const facts = info[node]!;
    if (record !== undefined) record[node] = at;
    // Written without asking, which is quicker than a branch that goes either way.
    const id = token[node]!;
    out[count] = id;
    count += (id >> 31) + 1;
    const flag = flags[at]!;
    if (flag !== 0 && (facts & INNER) !== 0) found.note(flag, at, node);
    if ((facts & SHARED) !== 0) count = addShared(trie, node, out, count);
    rows[((facts >> 8) & 0x3ffff) + 1] = at << 8;
    node++;
    for (;;) {
      if (node >= last) {
        found.tokenCount = count;
        return;
      }
      const next = info[node]!;
      const row = rows[(next >> 8) & 0x3ffff]!;
      at = table[row | (next & 255)]!;
      if (at < 0) {
        at = automaton.next(row >> 8, next & 255);
        ({ table, flags } = automaton);
      }
      if (at !== 0) break;
      node = end[node]!;
    }
  }
}

/** The tokens after the first that have the same bytes. */
function addShared(trie: TokenTrie, node: number, out: Int32Array, count: number): number {
  let at = count;
  for (let i = trie.firstToken[node]! + 1; i < trie.firstToken[node + 1]!; i++) {
    out[at++] = trie.tokens[i]!;
  }
  return at;
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
  same.length = 0;
  const { children } = from;
  for (let i = 0; i < children.length; i++) {
    const { byte, nodes } = children[i]!;
    const start = lexemes.next(state, byte);
    if (start === 0) continue;
    for (let j = 0; j < nodes.length; j++) {
      walkSubtreeBeside(lexemes, start, nodes[j]!, trie, reference, found);
    }
  }
  if (same.length > 0) takeSame(found, reference.mask, trie);
}

/** The tokens that walkBeside takes from the reference. Pairs: first and end, in the trie's order. */
const same: number[] = [];

function walkSubtreeBeside(
  lexemes: Lexemes,
  start: number,
  root: number,
  trie: TokenTrie,
  reference: Reference,
  found: Found,
): void {
  const { info, end, height, firstToken, token } = trie;
  const { loose, bound } = lexemes;
  const { states, exits } = reference;
  const last = end[root]!;
  found.makeRoom(1 + firstToken[last]! - firstToken[root]!);
  const out = found.tokens;
  let count = found.tokenCount;
  let node = root;
  let at = start;
  for (;;) {
    const isShort = bound[at]! >= height[node]! && height[node]! < 255;
    if ((isShort ? loose[at]! : at) === states[node]) {
      const after = end[node]!;
      same.push(firstToken[node]!, firstToken[after]!);
      for (let i = lowerBound(exits, node); i < exits.length && exits[i]! < after; i++) {
        found.addExit(exits[i]!);
      }
      node = after;
    } else {
      const facts = info[node]!;
      const id = token[node]!;
      out[count] = id;
      count += (id >> 31) + 1;
      if ((lexemes.flags[at]! & FINAL) !== 0 && (facts & INNER) !== 0) found.addExit(node);
      if ((facts & SHARED) !== 0) count = addShared(trie, node, out, count);
      rows[((facts >> 8) & 0x3ffff) + 1] = at << 8;
      node++;
    }
    for (;;) {
      if (node >= last) {
        found.tokenCount = count;
        return;
      }
      const next = info[node]!;
      const row = rows[(next >> 8) & 0x3ffff]!;
      at = lexemes.table[row | (next & 255)]!;
      if (at < 0) at = lexemes.next(row >> 8, next & 255);
      if (at !== 0) break;
      node = end[node]!;
    }
  }
}

/** Adds the reference's tokens in the ranges of `same`; from a copy of its mask if they are most of it. */
function takeSame(found: Found, mask: Uint32Array, trie: TokenTrie): void {
  const { tokens } = trie;
  let count = 0;
  for (let i = 0; i < same.length; i += 2) count += same[i + 1]! - same[i]!;
  if (count < tokens.length / 2) {
    found.makeRoom(count);
    for (let i = 0; i < same.length; i += 2) {
      for (let j = same[i]!; j < same[i + 1]!; j++) {
        const token = tokens[j]!;
        if ((mask[token >> 5]! >>> (token & 31)) & 1) found.addToken(token);
      }
    }
    return;
  }
  const copy = mask.slice();
  // The walk goes through the children in ascending order, and so through the ranges.
  let at = 0;
  for (let i = 0; i <= same.length; i += 2) {
    const from = i === same.length ? tokens.length : same[i]!;
    for (; at < from; at++) copy[tokens[at]! >> 5]! &= ~(1 << (tokens[at]! & 31));
    if (i < same.length) at = Math.max(at, same[i + 1]!);
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

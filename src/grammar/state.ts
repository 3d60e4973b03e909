// The state of one generation under a grammar: a set of stacks, kept as a tree of shared nodes.
//
// A stack node is an automaton's state and the node to which its rule returns. Node 0 is the bottom: the grammar has been
// matched. Taking a token moves every stack over the token's bytes; stacks that become equal are one.

import { ENDS, FINAL } from "./automaton.ts";
import { GrammarError, GrammarSizeError } from "./errors.ts";
import type { LexemeWalks } from "./lexeme-walks.ts";
import type { Lexemes } from "./lexemes.ts";
import type { Meter } from "./meter.ts";
import type { Call, Network } from "./network.ts";
import type { NetworkWalks } from "./network-walks.ts";
import type { NodeSet, NodeSets } from "./node-sets.ts";
import type { Expressions } from "./regex/expressions.ts";
import type { TokenTrie } from "./trie.ts";
import { joinMask, type Walk } from "./trie-walk.ts";

/** The parts that all states of a grammar share. */
export interface Machine {
  readonly of: Expressions;
  readonly trie: TokenTrie;
  readonly sets: NodeSets;
  readonly lexemes: Lexemes;
  readonly lexemeWalks: LexemeWalks;
  readonly network: Network;
  readonly walks: NetworkWalks;
}

const BOTTOM = 0;
/** More stacks than this at once come from a grammar that is ambiguous without end. */
const MOST_STACKS = 2000;
/** So many are looked through; more have a set. */
const FEW_STACKS = 32;
const MOST_STACK_NODES = 1_000_000;
const STACK_NODE_BYTES = 64;
const NO_CALLS: readonly Call[] = [];
/** For each of its nodes, a walk is looked up. */
const STACK_NODE_STEPS = 1 / 8;
/** Steps for one token of the text, taking it and the mask after it: less than a second. */
const MOST_STEPS = 500_000;
/** Memory that one text may add to the data that its grammar and the others of the vocabulary share. */
const MOST_BYTES = 128 << 20;

/** Stack nodes, shared by a state and its clones. */
class Stacks {
  #state = new Int32Array(256); // 2 * state, + 1 for a lexeme's
  #below = new Int32Array(256);
  #count = 1;
  readonly #ids: Map<number, number> = new Map();
  readonly #meter: Meter;

  constructor(meter: Meter) {
    this.#meter = meter;
  }

  node(state: number, isLexeme: boolean, below: number): number {
    const value = 2 * state + (isLexeme ? 1 : 0);
    const key = value * 33_554_432 + below;
    let node = this.#ids.get(key);
    if (node === undefined) {
      this.#meter.take(STACK_NODE_BYTES);
      node = this.#count++;
      if (node >= MOST_STACK_NODES)
        throw new GrammarSizeError("grammar: its stacks grew too large");
      if (node === this.#state.length) {
        this.#state = widened(this.#state);
        this.#below = widened(this.#below);
      }
      this.#state[node] = value;
      this.#below[node] = below;
      this.#ids.set(key, node);
    }
    return node;
  }

  state(node: number): number {
    return this.#state[node]! >> 1;
  }

  isLexeme(node: number): boolean {
    return (this.#state[node]! & 1) === 1;
  }

  below(node: number): number {
    return this.#below[node]!;
  }
}

function widened(array: Int32Array): Int32Array<ArrayBuffer> {
  const wide = new Int32Array(array.length * 2);
  wide.set(array);
  return wide;
}

/** The progress of writing a mask, before a pause. */
interface Writing {
  readonly into: Uint32Array; // [maskWords]
  /** Index of the stack. */
  top: number;
  /** The node in the trie, and the start of the walks below. */
  node: number;
  from: NodeSet | undefined;
}

/** The progress of taking bytes, before a pause. */
interface Advancing {
  readonly token: number | undefined;
  readonly from: readonly number[];
  readonly literal: number[];
  /** The index in the bytes. */
  at: number;
  /** The tops before that byte, and the tops that have not taken it yet. */
  tops: readonly number[];
  top: number;
  /** The called states of that top that have not taken the byte. */
  readonly open: Called[];
}

type Called = readonly [state: number, isLexeme: boolean, below: number];

export class GrammarState {
  readonly #machine: Machine;
  readonly #stacks: Stacks;
  #tops: readonly number[];
  /** The tops before each accepted token, for rollback. */
  #history: (readonly number[])[];
  #next: number[] = [];
  /** The states of #next, if there are many. */
  readonly #nextSet = new Set<number>();
  /** Steps for the next token so far, and memory since the start. */
  #steps = 0;
  #bytes = 0;
  #writing: Writing | undefined;
  #advancing: Advancing | undefined;

  constructor(machine: Machine, from?: GrammarState) {
    this.#machine = machine;
    this.#stacks = from ? from.#stacks : new Stacks(machine.of.meter);
    this.#bytes = from ? from.#bytes : 0;
    this.#history = from ? [...from.#history] : [];
    if (from) {
      this.#tops = from.#tops;
    } else {
      const { network } = machine;
      const flags = network.flags[network.start]!;
      const tops = flags & ENDS ? [] : [this.#stacks.node(network.start, false, BOTTOM)];
      if (flags & FINAL) tops.push(BOTTOM);
      this.#tops = tops;
    }
  }

  /** The text so far is whole: the generation may end here. */
  get isComplete(): boolean {
    return this.#tops.includes(BOTTOM);
  }

  /** The text is whole and cannot continue: the generation must end here. */
  get isFinished(): boolean {
    return this.#tops.length === 1 && this.#tops[0] === BOTTOM;
  }

  /** Tokens accepted since the start. */
  get length(): number {
    return this.#history.length;
  }

  clone(): GrammarState {
    return new GrammarState(this.#machine, this);
  }

  /** Takes back the last `tokens` tokens. */
  rollback(tokens: number): void {
    if (tokens > this.#history.length) {
      throw new GrammarError(
        `grammar: rollback of ${tokens} tokens, but only ${this.#history.length} were accepted`,
      );
    }
    for (let i = 0; i < tokens; i++) this.#tops = this.#history.pop()!;
    this.#writing = undefined;
    this.#advancing = undefined;
  }

  /**
   * Writes one bit for each token that may come next. End-of-generation tokens are allowed if the text is whole. With a `slice` (a
   * number of steps) it may throw a PausedError: called again, it continues.
   */
  mask(into: Uint32Array, slice?: number): void {
    this.#metered(MOST_STEPS - this.#steps, slice, () => this.#writeMask(into));
  }

  /** Steps of all work with this compiler so far: the unit of a slice. */
  get spent(): number {
    return this.#machine.of.meter.spent;
  }

  /** The steps of this work count for the next token, in one slice or several. */
  #metered<T>(steps: number, slice: number | undefined, work: () => T): T {
    const { of, network } = this.#machine;
    const { meter } = of;
    const before = { steps: meter.spent, bytes: meter.taken };
    meter.at = () => network.ruleName;
    meter.begin({ steps, bytes: MOST_BYTES - this.#bytes }, slice);
    try {
      return work();
    } finally {
      this.#steps += meter.spent - before.steps;
      this.#bytes += meter.taken - before.bytes;
    }
  }

  #writeMask(into: Uint32Array): void {
    const { trie, sets } = this.#machine;
    const tops = this.#tops;
    if (this.#writing?.into !== into) {
      this.#writing = { into, top: 0, node: tops[0]!, from: sets.root };
    }
    for (const writing = this.#writing; writing.top < tops.length; ) {
      if (tops[writing.top] === BOTTOM) {
        if (writing.top === 0) into.fill(0);
        for (const id of trie.endTokens) into[id >> 5]! |= 1 << (id & 31);
      } else this.#addTokens(writing);
      writing.node = tops[++writing.top]!;
      writing.from = sets.root;
    }
    this.#writing = undefined;
  }

  /** The tokens of one stack, from its top to its bottom. */
  #addTokens(writing: Writing): void {
    const { root } = this.#machine.sets;
    const { meter } = this.#machine.of;
    const { into } = writing;
    while (writing.node !== BOTTOM && writing.from) {
      const { node, from, top } = writing;
      const walk = this.#walk(node, from);
      meter.spend(STACK_NODE_STEPS + walk.tokens.length / 1000);
      if (top === 0 && node === this.#tops[0]) {
        // The first mask is copied, which is quicker than joining it with zeros.
        if (walk.mask) into.set(walk.mask);
        else into.fill(0);
      } else if (walk.mask) {
        meter.note(into.length / 1000);
        joinMask(into, walk.mask);
      }
      for (const token of walk.tokens) into[token >> 5]! |= 1 << (token & 31);
      writing.from = this.#exitsBelow(node, from, root, walk.exits);
      writing.node = this.#stacks.below(node);
      meter.keep();
    }
  }

  #walk(node: number, from: NodeSet): Walk {
    const { lexemeWalks, walks } = this.#machine;
    const state = this.#stacks.state(node);
    return this.#stacks.isLexeme(node) ? lexemeWalks.walk(state, from) : walks.walk(state, from);
  }

  /** The nodes at which the rule below continues: the walk's exits, and, if this rule can end at once, its start. */
  #exitsBelow(
    node: number,
    from: NodeSet,
    root: NodeSet,
    exits: NodeSet | undefined,
  ): NodeSet | undefined {
    if (from === root || this.#stacks.isLexeme(node)) return exits;
    const { network, sets } = this.#machine;
    if (!(network.flags[this.#stacks.state(node)]! & FINAL)) return exits;
    if (exits === undefined) return from;
    const both = new Int32Array(from.nodes.length + exits.nodes.length);
    both.set(from.nodes);
    both.set(exits.nodes, from.nodes.length);
    return sets.of(both);
  }

  /** Whether the token may come next; the state moves only then. With a `slice` as in `mask`. */
  accept(token: number, slice?: number): boolean {
    return this.#metered(MOST_STEPS - this.#steps, slice, () => this.#accept(token));
  }

  #accept(token: number): boolean {
    const { trie } = this.#machine;
    const before = this.#tops;
    const paused = this.#advancing;
    const isBegun = paused !== undefined && paused.token === token && paused.from === before;
    const advancing = isBegun ? paused : this.#begin(before, token);
    const { literal } = advancing;
    const bytes = trie.bytesOf(token);
    const tops = bytes ? this.#advanceOver(advancing, bytes) : [];
    this.#advancing = undefined;
    for (const top of tops) if (!literal.includes(top)) literal.push(top);
    if (trie.endTokens.includes(token) && this.isComplete && !literal.includes(BOTTOM)) {
      literal.push(BOTTOM);
    }
    if (literal.length === 0) return false;
    this.#history.push(before);
    this.#tops = literal;
    this.#steps = 0;
    this.#writing = undefined;
    return true;
  }

  /** Whether these bytes may come next; the state moves only then. For text that is no token. */
  acceptBytes(bytes: Uint8Array): boolean {
    const tops = this.#metered(MOST_STEPS, undefined, () => this.#advance(this.#tops, bytes));
    this.#steps = 0;
    if (tops.length === 0) return false;
    this.#history.push(this.#tops);
    this.#tops = tops;
    this.#writing = undefined;
    return true;
  }

  /** The bytes that must come next, since there is no choice; at most `most`. */
  forced(most = 256): Uint8Array {
    return this.#metered(MOST_STEPS, undefined, () => this.#findForced(most));
  }

  #findForced(most: number): Uint8Array {
    const bytes: number[] = [];
    let tops = this.#tops;
    while (bytes.length < most && !tops.includes(BOTTOM)) {
      const byte = this.#onlyByte(tops);
      if (byte < 0) break;
      bytes.push(byte);
      tops = this.#advance(tops, Uint8Array.of(byte));
    }
    return Uint8Array.from(bytes);
  }

  #onlyByte(tops: readonly number[]): number {
    let only = -1;
    for (let byte = 0; byte < 256; byte++) {
      if (this.#advance(tops, Uint8Array.of(byte)).length === 0) continue;
      if (only >= 0) return -1;
      only = byte;
    }
    return only;
  }

  #advance(from: readonly number[], bytes: Uint8Array): readonly number[] {
    return this.#advanceOver(this.#begin(from), bytes);
  }

  #begin(from: readonly number[], token?: number): Advancing {
    const literal = token === undefined ? [] : this.#acceptLiteral(token);
    this.#clearNext();
    const advancing = { token, from, literal, at: 0, tops: from, top: 0, open: [] };
    this.#advancing = advancing;
    return advancing;
  }

  /** The tops after the bytes. */
  #advanceOver(advancing: Advancing, bytes: Uint8Array): readonly number[] {
    while (advancing.at < bytes.length && advancing.tops.length > 0) {
      const { tops, open } = advancing;
      const byte = bytes[advancing.at]!;
      while (advancing.top < tops.length) {
        const top = tops[advancing.top]!;
        if (open.length === 0 && top !== BOTTOM) {
          open.push([this.#stacks.state(top), this.#stacks.isLexeme(top), this.#stacks.below(top)]);
        }
        this.#step(open, byte);
        advancing.top++;
      }
      advancing.tops = this.#next;
      advancing.at++;
      advancing.top = 0;
      this.#clearNext();
    }
    return advancing.tops;
  }

  /** Takes the byte from a state and from the states that it calls: a loop, since rules may call rules to any depth. */
  #step(open: Called[], byte: number): void {
    const { lexemes, network, of } = this.#machine;
    for (let steps = 0; open.length > 0; ) {
      const [state, isLexeme, below] = open.at(-1)!;
      const automaton = isLexeme ? lexemes : network;
      const next = automaton.next(state, byte);
      const calls = isLexeme ? NO_CALLS : network.calls(state);
      if ((++steps & 15) === 0) of.meter.spend(8);
      open.pop(); // no pause from here on
      if (next !== 0) {
        const flags = automaton.flags[next]!;
        if (!(flags & ENDS)) this.#add(this.#stacks.node(next, isLexeme, below));
        if (flags & FINAL) this.#return(below);
      }
      for (let i = calls.length - 1; i >= 0; i--) {
        const call = calls[i]!;
        open.push([call.start, call.isLexeme, this.#belowCall(call, below)]);
      }
      of.meter.keep();
    }
  }

  #belowCall(call: Call, below: number): number {
    return call.isLast ? below : this.#stacks.node(call.resume, false, below);
  }

  #clearNext(): void {
    this.#next = [];
    this.#nextSet.clear();
  }

  #add(node: number): void {
    const next = this.#next;
    if (next.length < FEW_STACKS) {
      if (!next.includes(node)) next.push(node);
      return;
    }
    if (this.#nextSet.size === 0) for (const one of next) this.#nextSet.add(one);
    if (this.#nextSet.has(node)) return;
    if (next.length >= MOST_STACKS) {
      throw new GrammarSizeError(
        `grammar: its rule ${this.#machine.network.ruleName} has more than ${MOST_STACKS} readings of the same text. Make the grammar less ambiguous`,
      );
    }
    this.#machine.of.meter.note(1);
    this.#nextSet.add(node);
    next.push(node);
  }

  /** A rule has ended: its caller continues, and if the caller may end as well, the caller's caller. */
  #return(to: number): void {
    let node = to;
    for (;;) {
      const flags = node === BOTTOM ? 0 : this.#machine.network.flags[this.#stacks.state(node)]!;
      if (!(flags & ENDS)) this.#add(node);
      if (!(flags & FINAL)) return;
      node = this.#stacks.below(node);
    }
  }

  #acceptLiteral(token: number): number[] {
    const { network } = this.#machine;
    this.#clearNext();
    if (!network.hasTokens) return this.#next;
    const isEnd = this.#machine.trie.endTokens.includes(token);
    const open: [state: number, below: number][] = [];
    for (const top of this.#tops) {
      if (top !== BOTTOM && !this.#stacks.isLexeme(top)) {
        open.push([this.#stacks.state(top), this.#stacks.below(top)]);
      }
    }
    for (let at = open.pop(); at !== undefined; at = open.pop()) {
      const [state, below] = at;
      this.#machine.of.meter.note(1 / 4);
      for (const { ids, except, resume } of network.tokenCalls(state)) {
        const isMeant = except ? !ids.has(token) && !isEnd : ids.has(token);
        if (isMeant) this.#return(this.#stacks.node(resume, false, below));
      }
      for (const call of network.calls(state)) {
        if (!call.isLexeme) open.push([call.start, this.#belowCall(call, below)]);
      }
    }
    return this.#next;
  }
}

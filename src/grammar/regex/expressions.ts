// Regular expressions over bytes as hash-consed nodes, and their derivatives.
//
// An expression is a number. Equal expressions have equal numbers, so a derivative that was seen before is the same state
// of the automaton. Intersection and complement are ordinary nodes: "a string that is none of these keys" needs no
// construction of its own. The smart constructors apply only laws that keep the language.

import { GrammarSizeError } from "../errors.ts";
import { Meter } from "../meter.ts";
import { type ByteSet, ByteSets, byteRange, hasByte } from "./byte-sets.ts";
import { joinedCounts } from "./counts.ts";
import { type ExpressionNode, ExpressionTable, KIND } from "./expression-table.ts";

/** Matches no text. */
export const EMPTY = 0;
/** Matches the empty text. */
export const EPSILON = 1;

/** No upper bound of a repetition. */
export const INFINITE: number = Number.POSITIVE_INFINITY;

/** Memory of an expression, and of a derivative that is kept, about. */
const NODE_BYTES = 200;
const DERIVATIVE_BYTES = 40;

/** States that the search for a match visits before it gives up. */
const MOST_SEARCHED = 20_000;

/** A search for a match: the predecessor of each state, and the states with unexplored successors. */
interface Search {
  readonly parents: Map<number, number>;
  readonly stack: number[];
}

export class Expressions {
  readonly byteSets: ByteSets = new ByteSets();
  readonly #table = new ExpressionTable();
  readonly #kind = this.#table.kind;
  readonly #left = this.#table.left;
  readonly #right = this.#table.right;
  readonly #high = this.#table.high;
  readonly #parts = this.#table.parts;
  readonly #nullable = this.#table.nullable;
  readonly #boolean = this.#table.boolean;
  readonly #derivatives: Map<number, number> = new Map();
  readonly #fronts: (readonly number[] | undefined)[] = [];
  readonly #shortestKept: (number | undefined)[] = [];
  readonly #firsts: (ByteSet | undefined)[] = [];
  readonly #alive: Map<number, boolean> = new Map();
  /** Searches for a match that were paused. */
  readonly #searches: Map<number, Search> = new Map();
  readonly #ranges: number[] = []; // by 256 * from + to
  readonly #loose: Map<number, { readonly expression: number; readonly bound: number }> = new Map();
  readonly meter: Meter;
  /** Matches every text. */
  readonly everything: number;
  readonly anyByte: number;

  constructor(meter: Meter = new Meter()) {
    this.meter = meter;
    this.#node(KIND.empty, 0, 0, 0, undefined, false, false);
    this.#node(KIND.epsilon, 0, 0, 0, undefined, true, false);
    this.anyByte = this.bytes(this.byteSets.add(byteRange(0, 255)));
    this.everything = this.not(EMPTY);
  }

  get size(): number {
    return this.#kind.length;
  }

  nullable(expression: number): boolean {
    return this.#nullable[expression]!;
  }

  // ---- constructors

  bytes(set: number): number {
    if (set === 0) return EMPTY;
    return this.#node(KIND.bytes, set, 0, 0, undefined, false, false);
  }

  range(from: number, to: number): number {
    const key = from * 256 + to;
    this.#ranges[key] ??= this.bytes(this.byteSets.add(byteRange(from, to)));
    return this.#ranges[key];
  }

  literal(bytes: Uint8Array): number {
    let result: number = EPSILON;
    for (let i = bytes.length - 1; i >= 0; i--) {
      result = this.concat(this.range(bytes[i]!, bytes[i]!), result);
    }
    return result;
  }

  sequence(...items: readonly number[]): number {
    return this.inOrder(items);
  }

  /** One after the other. */
  inOrder(items: readonly number[]): number {
    return items.reduceRight<number>((rest, item) => this.concat(item, rest), EPSILON);
  }

  concat(first: number, rest: number): number {
    if (first === EMPTY || rest === EMPTY) return EMPTY;
    if (first === EPSILON) return rest;
    if (rest === EPSILON) return first;
    let head = first;
    let tail = rest;
    if (this.#kind[head] === KIND.concat) {
      const items: number[] = [];
      for (; this.#kind[head] === KIND.concat; head = this.#right[head]!)
        items.push(this.#left[head]!);
      this.meter.spend(items.length / 4);
      for (let last = head, i = items.length; i >= 0; i--) {
        tail = this.#concatNode(last, tail);
        last = items[i - 1]!;
      }
      return tail;
    }
    return this.#concatNode(head, tail);
  }

  #concatNode(first: number, rest: number): number {
    return this.#node(
      KIND.concat,
      first,
      rest,
      0,
      undefined,
      this.#nullable[first]! && this.#nullable[rest]!,
      this.#boolean[first]! || this.#boolean[rest]!,
    );
  }

  or(...items: readonly number[]): number {
    return this.any(items);
  }

  /** One of the expressions. Common beginnings are factored out, so that a list of words becomes a trie. */
  any(items: readonly number[]): number {
    this.meter.spend(items.length / 4);
    const flat = new Set<number>();
    let set = 0;
    let nullable = false;
    const take = (item: number): void => {
      if (item === EMPTY) return;
      if (item === EPSILON) nullable = true;
      else if (this.#kind[item] === KIND.or) for (const part of this.#parts[item]!) take(part);
      else if (this.#kind[item] === KIND.bytes) set = this.byteSets.union(set, this.#left[item]!);
      else flat.add(item);
    };
    for (const item of items) take(item);
    if (set !== 0) flat.add(this.bytes(set));
    if (flat.has(this.everything)) return this.everything;
    if (flat.size > 1) {
      this.#absorb(flat);
      this.#factor(flat);
    }
    const sorted = [...flat].sort((a, b) => a - b);
    if (nullable && !sorted.some((item) => this.#nullable[item])) sorted.unshift(EPSILON);
    if (sorted.length === 0) return nullable ? EPSILON : EMPTY;
    if (sorted.length === 1) return sorted[0]!;
    return this.#node(
      KIND.or,
      0,
      0,
      0,
      sorted,
      sorted.some((item) => this.#nullable[item]),
      sorted.some((item) => this.#boolean[item]),
    );
  }

  /** x*|y -> x*, where y is plainly made of x alone. */
  #absorb(flat: Set<number>): void {
    for (const star of flat) {
      if (this.#kind[star] !== KIND.repeat || this.#high[star] !== INFINITE) continue;
      if (this.#right[star] !== 0) continue;
      this.meter.spend(flat.size / 16);
      for (const item of flat) if (item !== star && this.#within(item, star)) flat.delete(item);
    }
  }

  #within(item: number, star: number): boolean {
    this.meter.spend(1 / 16);
    const of = this.#left[star]!;
    if (item === star || item === of || item === EPSILON) return true;
    const left = this.#left[item]!;
    switch (this.#kind[item]) {
      case KIND.bytes: {
        const parts = this.#kind[of] === KIND.or ? this.#parts[of]! : [of];
        return parts.some(
          (part) =>
            this.#kind[part] === KIND.bytes &&
            this.byteSets.intersection(this.#left[part]!, left) === left,
        );
      }
      case KIND.concat: {
        if (this.#kind[of] === KIND.or && this.#parts[of]!.includes(item)) return true;
        let at = item;
        for (; this.#kind[at] === KIND.concat; at = this.#right[at]!) {
          if (!this.#within(this.#left[at]!, star)) return false;
        }
        return this.#within(at, star);
      }
      case KIND.or:
        return this.#parts[item]!.every((part) => this.#within(part, star));
      case KIND.and:
        return this.#parts[item]!.some((part) => this.#within(part, star));
      case KIND.repeat:
        return this.#within(left, star);
      default:
        return false;
    }
  }

  /** ax|ay -> a(x|y), then xa|ya -> (x|y)a where x and y are byte sets. */
  #factor(flat: Set<number>): void {
    const byHead = new Map<number, number[]>();
    for (const item of flat) {
      const isConcat = this.#kind[item] === KIND.concat;
      const head = isConcat ? this.#left[item]! : item;
      const list = byHead.get(head);
      if (list) list.push(item);
      else byHead.set(head, [item]);
    }
    for (const [head, group] of byHead) {
      if (group.length < 2) continue;
      const tails = group.map((item) => (item === head ? EPSILON : this.#right[item]!));
      for (const item of group) flat.delete(item);
      flat.add(this.concat(head, this.any(tails)));
    }
    const byTail = new Map<number, number[]>();
    for (const item of flat) {
      const isConcat = this.#kind[item] === KIND.concat;
      const head = isConcat ? this.#left[item]! : item;
      if (this.#kind[head] !== KIND.bytes) continue;
      const tail = isConcat ? this.#right[item]! : EPSILON;
      const list = byTail.get(tail);
      if (list) list.push(item);
      else byTail.set(tail, [item]);
    }
    for (const [tail, group] of byTail) {
      if (group.length < 2) continue;
      let set = 0;
      for (const item of group) {
        flat.delete(item);
        const head = this.#kind[item] === KIND.concat ? this.#left[item]! : item;
        set = this.byteSets.union(set, this.#left[head]!);
      }
      flat.add(this.concat(this.bytes(set), tail));
    }
  }

  and(...items: readonly number[]): number {
    return this.every(items);
  }

  /** The intersection of the expressions. */
  every(items: readonly number[]): number {
    this.meter.spend(items.length / 4);
    const flat = new Set<number>();
    const take = (item: number): void => {
      if (this.#kind[item] === KIND.and) for (const part of this.#parts[item]!) take(part);
      else if (item !== this.everything) flat.add(item);
    };
    for (const item of items) take(item);
    if (flat.has(EMPTY)) return EMPTY;
    if (flat.size === 0) return this.everything;
    if (flat.size > 1) this.#dropImplied(flat);
    const sorted = [...flat].sort((a, b) => a - b);
    if (sorted.length === 1) return sorted[0]!;
    if (flat.has(EPSILON)) return sorted.every((item) => this.#nullable[item]) ? EPSILON : EMPTY;
    if (sorted.some((item) => this.#kind[item] === KIND.not && flat.has(this.#left[item]!)))
      return EMPTY;
    const isNullable = sorted.every((item) => this.#nullable[item]);
    return this.#node(KIND.and, 0, 0, 0, sorted, isNullable, true);
  }

  /** x*&y -> y, where y is plainly made of x alone. */
  #dropImplied(flat: Set<number>): void {
    for (const star of flat) {
      if (this.#kind[star] !== KIND.repeat || this.#high[star] !== INFINITE) continue;
      if (this.#right[star] !== 0) continue;
      this.meter.spend(flat.size / 16);
      for (const item of flat) {
        if (item === star || !this.#within(item, star)) continue;
        flat.delete(star);
        break;
      }
    }
  }

  not(item: number): number {
    if (this.#kind[item] === KIND.not) return this.#left[item]!;
    return this.#node(KIND.not, item, 0, 0, undefined, !this.#nullable[item], item !== EMPTY);
  }

  repeat(given: number, lowest: number, highest: number): number {
    let [item, low, high] = [given, lowest, highest];
    while (this.#kind[item] === KIND.repeat) {
      const inner = { low: this.#right[item]!, high: this.#high[item]! };
      const counts = joinedCounts(inner, { low, high });
      if (counts === undefined) break;
      ({ low, high } = counts);
      item = this.#left[item]!;
    }
    if (high === 0 || item === EPSILON) return EPSILON;
    if (item === EMPTY) return low === 0 ? EPSILON : EMPTY;
    if (low === 1 && high === 1) return item;
    const least = this.#nullable[item] ? 0 : low;
    const isFree = least === 0;
    return this.#node(KIND.repeat, item, least, high, undefined, isFree, this.#boolean[item]!);
  }

  /**
   * Digits, with any points between them, that form a number which times `scale` is a multiple of `divisor`; `remainder` is the one
   * of the digits so far.
   */
  multiple(divisor: number, scale: number, remainder = 0): number {
    const isDone = (remainder * (scale % divisor)) % divisor === 0;
    return this.#node(KIND.multiple, divisor, scale, remainder, undefined, isDone, true);
  }

  star(item: number): number {
    return this.repeat(item, 0, INFINITE);
  }

  optional(item: number): number {
    return this.any([EPSILON, item]);
  }

  // ---- questions

  /** The texts that may follow `byte` at the start of this expression. */
  derivative(expression: number, byte: number): number {
    switch (this.#kind[expression]) {
      case KIND.empty:
      case KIND.epsilon:
        return EMPTY;
      case KIND.bytes:
        return hasByte(this.byteSets.get(this.#left[expression]!), byte) ? EPSILON : EMPTY;
      default:
    }
    if (!hasByte(this.#first(expression), byte)) return EMPTY;
    const key = expression * 256 + byte;
    const known = this.#derivatives.get(key);
    if (known !== undefined) return known;
    this.meter.spend(1 + (this.#parts[expression]?.length ?? 0));
    this.meter.take(DERIVATIVE_BYTES);
    const result = this.#derive(expression, byte);
    this.#derivatives.set(key, result);
    return result;
  }

  #derive(expression: number, byte: number): number {
    const left = this.#left[expression]!;
    const right = this.#right[expression]!;
    switch (this.#kind[expression]) {
      case KIND.concat:
        return this.#deriveConcat(expression, byte);
      case KIND.or:
        return this.#deriveAny(this.#parts[expression]!, byte);
      case KIND.and: {
        const parts: number[] = [];
        for (const part of this.#parts[expression]!) {
          const next = this.derivative(part, byte);
          if (next === EMPTY) return EMPTY;
          parts.push(next);
        }
        return this.every(parts);
      }
      case KIND.not:
        return this.not(this.derivative(left, byte));
      case KIND.multiple: {
        if (byte === 0x2e) return expression;
        if (byte < 0x30 || byte > 0x39) return EMPTY;
        const remainder = (this.#high[expression]! * 10 + byte - 0x30) % left;
        return this.multiple(left, right, remainder);
      }
      default: {
        const high = this.#high[expression]!;
        return this.concat(
          this.derivative(left, byte),
          this.repeat(left, Math.max(0, right - 1), high - 1),
        );
      }
    }
  }

  /** The first item may take the byte, and if it may be left out, the rest: a loop, since all of many may be left out. */
  #deriveConcat(expression: number, byte: number): number {
    const next: number[] = [];
    let at = expression;
    for (; this.#kind[at] === KIND.concat; at = this.#right[at]!) {
      const left = this.#left[at]!;
      this.meter.spend(1 / 4);
      next.push(this.concat(this.derivative(left, byte), this.#right[at]!));
      if (!this.#nullable[left]) return next.length === 1 ? next[0]! : this.any(next);
    }
    next.push(this.derivative(at, byte));
    return this.any(next);
  }

  /** Of many words only a few begin with the byte. */
  #deriveAny(parts: readonly number[], byte: number): number {
    const next: number[] = [];
    for (const part of parts) {
      const derived = this.derivative(part, byte);
      if (derived !== EMPTY) next.push(derived);
    }
    return next.length === 1 ? next[0]! : this.any(next);
  }

  /** All bytes that a match can begin with, and perhaps more. */
  #first(expression: number): ByteSet {
    let first = this.#firsts[expression];
    if (first === undefined) {
      first = this.#findFirst(expression);
      this.#firsts[expression] = first;
    }
    return first;
  }

  #findFirst(expression: number): ByteSet {
    const left = this.#left[expression]!;
    switch (this.#kind[expression]) {
      case KIND.empty:
      case KIND.epsilon:
        return this.byteSets.get(0);
      case KIND.bytes:
        return this.byteSets.get(left);
      case KIND.concat:
        return orSets(this.#leading(expression).map((part) => this.#first(part)));
      case KIND.repeat:
        return this.#first(left);
      case KIND.or:
        return orSets(this.#parts[expression]!.map((part) => this.#first(part)));
      case KIND.and:
        return this.#parts[expression]!.map((part) => this.#first(part)).reduce((a, b) =>
          a.map((word, i) => word & b[i]!),
        );
      default:
        return ALL_BYTES;
    }
  }

  /** The items of a concatenation with which a match can begin. */
  #leading(expression: number): number[] {
    const items: number[] = [];
    let at = expression;
    while (this.#kind[at] === KIND.concat) {
      const left = this.#left[at]!;
      items.push(left);
      if (!this.#nullable[left]) break;
      at = this.#right[at]!;
    }
    if (this.#kind[at] !== KIND.concat) items.push(at);
    this.meter.spend(items.length / 4);
    return items;
  }

  /** Byte sets such that bytes in the same ones of them have the same derivative. */
  fronts(expression: number): readonly number[] {
    let fronts = this.#fronts[expression];
    if (fronts === undefined) {
      const found = new Set<number>();
      const left = this.#left[expression]!;
      const take = (part: number): void => {
        for (const set of this.fronts(part)) found.add(set);
      };
      switch (this.#kind[expression]) {
        case KIND.empty:
        case KIND.epsilon:
          break;
        case KIND.bytes:
          found.add(left);
          break;
        case KIND.concat:
          for (const part of this.#leading(expression)) take(part);
          break;
        case KIND.not:
          take(left);
          found.add(this.#left[this.anyByte]!);
          break;
        case KIND.repeat:
          take(left);
          break;
        case KIND.multiple:
          for (const digit of ".0123456789") {
            take(this.range(digit.charCodeAt(0), digit.charCodeAt(0)));
          }
          break;
        default:
          for (const part of this.#parts[expression]!) take(part);
      }
      fronts = [...found];
      this.#fronts[expression] = fronts;
    }
    return fronts;
  }

  /** Whether any text matches. Only intersections and complements need a search. */
  alive(expression: number): boolean {
    if (!this.#boolean[expression]) return expression !== EMPTY;
    const known = this.#alive.get(expression);
    if (known !== undefined) return known;
    if (this.#isPlainlyAlive(expression)) {
      this.#alive.set(expression, true);
      return true;
    }
    const search = this.#searches.get(expression) ?? {
      parents: new Map<number, number>([[expression, -1]]),
      stack: [expression],
    };
    this.#searches.set(expression, search);
    const isAlive = this.#search(search);
    this.#searches.delete(expression);
    if (!isAlive) for (const state of search.parents.keys()) this.#alive.set(state, false);
    return isAlive;
  }

  #search({ parents, stack }: Search): boolean {
    for (let state = stack.pop(); state !== undefined; state = stack.pop()) {
      if (parents.size > MOST_SEARCHED) {
        throw new GrammarSizeError(
          `grammar: a regular expression with intersections has more than ${MOST_SEARCHED} states. Use shorter repetitions or fewer patterns`,
        );
      }
      try {
        for (const byte of this.#representatives(state)) {
          const next = this.derivative(state, byte);
          if (next === EMPTY || parents.has(next) || this.#alive.get(next) === false) continue;
          parents.set(next, state);
          if (this.#isPlainlyAlive(next)) {
            for (let at = next; at !== -1; at = parents.get(at)!) this.#alive.set(at, true);
            return true;
          }
          stack.push(next);
        }
      } catch (error) {
        stack.push(state); // it continues from here
        throw error;
      }
    }
    return false;
  }

  #isPlainlyAlive(state: number): boolean {
    if (this.#nullable[state] || !this.#boolean[state]) return state !== EMPTY;
    return this.#alive.get(state) === true;
  }

  /** One byte of each set of bytes that have the same derivative; bytes without any are left out. */
  *#representatives(expression: number): Iterable<number> {
    const sets = this.fronts(expression).map((set) => this.byteSets.get(set));
    const first = this.#first(expression);
    const seen = new Uint32Array(8);
    const alike = new Uint32Array(8);
    for (let byte = 0; byte < 256; byte++) {
      if (!hasByte(first, byte) || hasByte(seen, byte)) continue;
      alike.fill(0xffffffff);
      for (const set of sets) {
        const has = hasByte(set, byte);
        for (let i = 0; i < 8; i++) alike[i]! &= has ? set[i]! : ~set[i]!;
      }
      for (let i = 0; i < 8; i++) seen[i]! |= alike[i]!;
      this.meter.spend(1 + sets.length / 16);
      yield byte;
    }
  }

  /**
   * The expression with its leading upper bounds removed, and the smallest of these bounds: a text of at most `bound`
   * bytes leads through both alike, since a repetition takes at least one byte.
   */
  loosened(expression: number): { readonly expression: number; readonly bound: number } {
    let result = this.#loose.get(expression);
    if (result !== undefined) return result;
    // From the end: a concatenation may have very many items.
    const spine: number[] = [];
    let at = expression;
    while (this.#kind[at] === KIND.concat && !this.#loose.has(at)) {
      spine.push(at);
      at = this.#right[at]!;
    }
    this.meter.spend(spine.length / 4);
    result = this.#loose.get(at) ?? this.#loosen(at);
    this.#loose.set(at, result);
    for (const item of spine.reverse()) {
      const first = this.loosened(this.#left[item]!);
      result = {
        expression: this.concat(first.expression, result.expression),
        bound: Math.min(first.bound, result.bound),
      };
      this.#loose.set(item, result);
    }
    return result;
  }

  #loosen(expression: number): { readonly expression: number; readonly bound: number } {
    const left = this.#left[expression]!;
    const right = this.#right[expression]!;
    switch (this.#kind[expression]) {
      case KIND.repeat: {
        const bound = this.#high[expression]!;
        if (bound === INFINITE || this.#nullable[left]) break;
        return { expression: this.repeat(left, right, INFINITE), bound };
      }
      case KIND.or: {
        const parts = this.#parts[expression]!.map((part) => this.loosened(part));
        return {
          expression: this.any(parts.map((part) => part.expression)),
          bound: parts.reduce((least, part) => Math.min(least, part.bound), INFINITE),
        };
      }
      case KIND.and: {
        const [a, b, more] = this.#parts[expression]!;
        if (more !== undefined) break;
        return (
          this.#loosenBoth(a!, b!) ?? this.#loosenBoth(b!, a!) ?? { expression, bound: INFINITE }
        );
      }
      default:
    }
    return { expression, bound: INFINITE };
  }

  /**
   * A pattern and an upper bound of its length. At any point `#longestEnd` characters are enough to end the pattern, so with that
   * much room the bound has no effect.
   */
  #loosenBoth(length: number, pattern: number): { expression: number; bound: number } | undefined {
    const high = this.#high[length]!;
    if (this.#kind[length] !== KIND.repeat || high === INFINITE || this.#right[length] !== 0) {
      return undefined;
    }
    if (this.#boolean[pattern] || this.#nullable[this.#left[length]!]) return undefined;
    const bound = high - this.#longestEnd(pattern);
    if (bound <= 0) return undefined;
    const loose = this.loosened(pattern);
    return {
      expression: this.and(this.star(this.#left[length]!), loose.expression),
      bound: Math.min(bound, loose.bound),
    };
  }

  /** The bytes of the shortest match; for expressions without intersections and complements. */
  #shortest(expression: number): number {
    let result = this.#shortestKept[expression];
    if (result === undefined) {
      this.meter.spend(1 / 4);
      const left = this.#left[expression]!;
      const right = this.#right[expression]!;
      switch (this.#kind[expression]) {
        case KIND.bytes:
          result = 1;
          break;
        case KIND.concat:
          result = this.#sum(expression, (item) => this.#shortest(item));
          break;
        case KIND.or:
          result = INFINITE;
          for (const part of this.#parts[expression]!) {
            result = Math.min(result, this.#shortest(part));
          }
          break;
        case KIND.repeat:
          result = right * this.#shortest(left);
          break;
        default:
          result = 0;
      }
      this.#shortestKept[expression] = result;
    }
    return result;
  }

  /** At least as many bytes as the shortest match of any derivative, of any order, of the expression. */
  #longestEnd(expression: number): number {
    this.meter.spend(1 / 4);
    const left = this.#left[expression]!;
    const right = this.#right[expression]!;
    switch (this.#kind[expression]) {
      case KIND.bytes:
        return 1;
      case KIND.concat:
        return this.#sum(expression, (item) => this.#longestEnd(item));
      case KIND.or:
        return this.#parts[expression]!.reduce(
          (most, part) => Math.max(most, this.#longestEnd(part)),
          0,
        );
      case KIND.repeat:
        return this.#longestEnd(left) + right * this.#shortest(left);
      default:
        return 0;
    }
  }

  /** The sum over all items of a concatenation. */
  #sum(expression: number, of: (item: number) => number): number {
    let sum = 0;
    let at = expression;
    for (; this.#kind[at] === KIND.concat; at = this.#right[at]!) sum += of(this.#left[at]!);
    return sum + of(at);
  }

  // ---- as data (expression-list.ts)

  node(id: number): ExpressionNode {
    const parts = this.#parts[id] ?? [];
    const [left, right, high] = [this.#left[id]!, this.#right[id]!, this.#high[id]!];
    return { kind: this.#kind[id]!, left, right, high, parts };
  }

  /** The expression of a node; of an `or` or `and`, the parts may come in any order. */
  make({ kind, left, right, high, parts }: ExpressionNode): number {
    switch (kind) {
      case KIND.empty:
        return EMPTY;
      case KIND.epsilon:
        return EPSILON;
      case KIND.bytes:
        return this.bytes(left);
      case KIND.concat:
        return this.#concatNode(left, right);
      case KIND.or:
        return this.any(parts);
      case KIND.and:
        return this.every(parts);
      case KIND.not:
        return this.not(left);
      case KIND.repeat:
        return this.repeat(left, right, high);
      default:
        return this.multiple(left, right, high);
    }
  }

  // ---- storage

  #node(
    kind: number,
    left: number,
    right: number,
    high: number,
    parts: readonly number[] | undefined,
    nullable: boolean,
    boolean: boolean,
  ): number {
    const known = this.#table.find(kind, left, right, high, parts);
    if (known >= 0) return known;
    this.meter.spend(1);
    this.meter.take(NODE_BYTES + 8 * (parts?.length ?? 0));
    return this.#table.add(kind, left, right, high, parts, nullable, boolean);
  }
}

const ALL_BYTES: ByteSet = byteRange(0, 255);

function orSets(sets: readonly ByteSet[]): ByteSet {
  const all = new Uint32Array(8);
  for (const set of sets) for (let i = 0; i < 8; i++) all[i]! |= set[i]!;
  return all;
}

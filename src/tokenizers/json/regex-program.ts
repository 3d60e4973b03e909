// Compiles regular expressions of tokenizer.json into programs for the matcher in regex-match.ts. It parses regex.ts's
// translation (a subset of JavaScript's syntax: no captures, no back references) and makes states of it.
//
// A state knows its successor. Bounded repetitions are expanded ("x{2,3}" is x, x, optional x), so that the rest of a
// match depends only on a state and a position, with the one exception below.

/** The action at a state, and its number; `next` is its successor. */
export type State = { id: number } & Action;

type Action =
  | { op: "char"; set: CharSet; back: boolean; next: State }
  /** As many characters as possible or, if lazy, as few as possible. */
  | { op: "star"; set: CharSet; back: boolean; lazy: boolean; next: State }
  | { op: "split"; next: State; other: State }
  | { op: "start" | "end"; next: State }
  /** Whether `body` matches here: ahead, or behind (then its states go backwards). */
  | { op: "look"; body: State; negative: boolean; next: State }
  /** The first match of `body`, without backtracking into it later. */
  | { op: "atomic"; body: State; next: State }
  /**
   * For a repetition with a body that may match the empty text: an iteration must not. Bit `bit` says whether this one has matched
   * some text.
   */
  | { op: "mark" | "check"; bit: number; next: State }
  | { op: "accept" };

export interface Program {
  readonly start: State;
  /** The states by their numbers. */
  readonly states: readonly State[];
  /** The number of repetitions with a body that may match the empty text. */
  readonly bits: number;
}

/** Why a pattern cannot be compiled, for messages. */
export class PatternError extends Error {}

const MOST_STATES = 4096;
const MOST_BITS = 4;
const MOST_DEPTH = 64;

/** A set of characters; asks the platform's own classes, and caches the result for 256 characters at a time. */
class CharSet {
  readonly #regex: RegExp;
  readonly #pages: (Uint8Array | undefined)[] = [];

  /** `source`: one character, one escape or one class. */
  constructor(source: string) {
    this.#regex = new RegExp(`^${source}$`, "u");
  }

  has(code: number): boolean {
    const page = this.#pages[code >> 8] ?? this.#makePage(code >> 8);
    return page[code & 255] === 1;
  }

  #makePage(number: number): Uint8Array {
    const isIn = (_: unknown, i: number): number =>
      this.#regex.test(String.fromCodePoint(number * 256 + i)) ? 1 : 0;
    const page = Uint8Array.from({ length: 256 }, isIn);
    this.#pages[number] = page;
    return page;
  }
}

type Tree =
  | { kind: "char"; set: CharSet }
  | { kind: "list"; parts: Tree[] }
  | { kind: "either"; options: Tree[] }
  | { kind: "repeat"; body: Tree; min: number; max: number; lazy: boolean; bit: number }
  | { kind: "edge"; op: "start" | "end" }
  | { kind: "look"; body: Tree; behind: boolean; negative: boolean }
  | { kind: "atomic"; body: Tree };

const SET = /^(?:\[(?:\\.|[^\]\\])*\]|\\[pP]\{[^}]*\}|\\u\{[^}]*\}|\\.|[^\\])/su;
const REPEAT = /^(?:[*+?]|\{(\d+)(,(\d*))?\})/;
const LOOK = /^\(\?(<?)([=!])/;
/** The form in which regex.ts writes an atomic group. */
const ATOMIC = /^\(\?:\(\?=\(\?<(kept\d+)>/;

class Parser {
  readonly #source: string;
  #at = 0;
  #depth = 0;
  bits = 0;

  constructor(source: string) {
    this.#source = source;
  }

  get #rest(): string {
    return this.#source.slice(this.#at);
  }

  parse(): Tree {
    const tree = this.#either();
    if (this.#at < this.#source.length) throw new PatternError("an unmatched )");
    return tree;
  }

  #either(): Tree {
    if (++this.#depth > MOST_DEPTH) throw new PatternError("groups nested too deeply");
    const options = [this.#list()];
    while (this.#take("|")) options.push(this.#list());
    this.#depth--;
    return options.length === 1 ? options[0]! : { kind: "either", options };
  }

  #list(): Tree {
    const parts: Tree[] = [];
    while (this.#at < this.#source.length && !"|)".includes(this.#source[this.#at]!)) {
      parts.push(this.#repeated(this.#atom()));
    }
    return parts.length === 1 ? parts[0]! : { kind: "list", parts };
  }

  #atom(): Tree {
    const rest = this.#rest;
    const atomic = ATOMIC.exec(rest);
    if (atomic) {
      this.#at += atomic[0].length;
      const body = this.#either();
      this.#expect(`))\\k<${atomic[1]!}>)`);
      return { kind: "atomic", body };
    }
    const look = LOOK.exec(rest);
    if (look || rest.startsWith("(?:")) {
      this.#at += look?.[0].length ?? 3;
      const body = this.#either();
      this.#expect(")");
      if (!look) return body;
      return { kind: "look", body, behind: look[1] === "<", negative: look[2] === "!" };
    }
    if (this.#take("^")) return { kind: "edge", op: "start" };
    if (this.#take("$")) return { kind: "edge", op: "end" };
    const set = SET.exec(rest)![0];
    if (set === "(") throw new PatternError(rest.slice(0, 4));
    this.#at += set.length;
    return { kind: "char", set: new CharSet(set) };
  }

  #repeated(body: Tree): Tree {
    const found = REPEAT.exec(this.#rest);
    if (!found) return body;
    const [text, from, comma, to] = found;
    this.#at += text.length;
    const lazy = this.#take("?");
    const least = from === undefined ? (text === "+" ? 1 : 0) : Number(from);
    const most =
      from === undefined ? (text === "?" ? 1 : undefined) : comma ? to || undefined : from;
    const max = most === undefined ? Number.POSITIVE_INFINITY : Number(most);
    const bit = canBeEmpty(body) ? this.bits++ : -1;
    return { kind: "repeat", body, min: least, max, lazy, bit };
  }

  #take(sign: string): boolean {
    const isThere = this.#source.startsWith(sign, this.#at);
    if (isThere) this.#at += sign.length;
    return isThere;
  }

  #expect(sign: string): void {
    if (!this.#take(sign)) throw new PatternError(this.#rest.slice(0, 4) || "an open group");
  }
}

function canBeEmpty(tree: Tree): boolean {
  switch (tree.kind) {
    case "char":
      return false;
    case "list":
      return tree.parts.every(canBeEmpty);
    case "either":
      return tree.options.some(canBeEmpty);
    case "repeat":
      return tree.min === 0 || canBeEmpty(tree.body);
    case "atomic":
      return canBeEmpty(tree.body);
    case "edge":
    case "look":
      return true;
  }
}

class Compiler {
  readonly states: State[] = [];

  add(action: Action): State {
    if (this.states.length >= MOST_STATES) throw new PatternError("too many repetitions");
    const state = { id: this.states.length, ...action };
    this.states.push(state);
    return state;
  }

  /** The first state of a tree that is followed by `next`; `back`: towards the start of the text. */
  compile(tree: Tree, next: State, back: boolean): State {
    switch (tree.kind) {
      case "char":
        return this.add({ op: "char", set: tree.set, back, next });
      case "list": {
        const inOrder = back ? tree.parts : tree.parts.toReversed();
        return inOrder.reduce((after, part) => this.compile(part, after, back), next);
      }
      case "either":
        return tree.options
          .map((option) => this.compile(option, next, back))
          .reduceRight((other, first) => this.add({ op: "split", next: first, other }));
      case "repeat":
        return this.#repeat(tree, next, back);
      case "edge":
        return this.add({ op: tree.op, next });
      case "look": {
        const { negative, behind } = tree;
        const body = this.compile(tree.body, this.add({ op: "accept" }), behind);
        return this.add({ op: "look", body, negative, next });
      }
      case "atomic": {
        const body = this.compile(tree.body, this.add({ op: "accept" }), back);
        return this.add({ op: "atomic", body, next });
      }
    }
  }

  #repeat(tree: Extract<Tree, { kind: "repeat" }>, next: State, back: boolean): State {
    const { body, min, max, lazy } = tree;
    if (max < min) throw new PatternError(`{${min},${max}}`);
    let state: State;
    if (max === Number.POSITIVE_INFINITY) state = this.#loop(tree, next, back);
    else {
      state = next;
      for (let i = min; i < max; i++) {
        const round = this.#round(tree, state, back);
        state = this.add(split(round, next, lazy));
      }
    }
    for (let i = 0; i < min; i++) state = this.compile(body, state, back);
    return state;
  }

  #loop(tree: Extract<Tree, { kind: "repeat" }>, next: State, back: boolean): State {
    const { body, lazy } = tree;
    if (body.kind === "char") return this.add({ op: "star", set: body.set, back, lazy, next });
    const loop = this.add(split(next, next, lazy)) as Extract<State, { op: "split" }>;
    const round = this.#round(tree, loop, back);
    if (lazy) loop.other = round;
    else loop.next = round;
    return loop;
  }

  /** One iteration of the body; if the body may match the empty text, this iteration must not. */
  #round({ body, bit }: Extract<Tree, { kind: "repeat" }>, after: State, back: boolean): State {
    if (bit < 0) return this.compile(body, after, back);
    const check = this.add({ op: "check", bit, next: after });
    return this.add({ op: "mark", bit, next: this.compile(body, check, back) });
  }
}

function split(round: State, next: State, lazy: boolean): Action {
  return lazy ? { op: "split", next, other: round } : { op: "split", next: round, other: next };
}

/** `source`: regex.ts's translation. Throws a PatternError that names the unsupported feature. */
export function compilePattern(source: string): Program {
  const parser = new Parser(source);
  const tree = parser.parse();
  if (parser.bits > MOST_BITS) throw new PatternError("too many repetitions of what may be empty");
  const compiler = new Compiler();
  const start = compiler.compile(tree, compiler.add({ op: "accept" }), false);
  return { start, states: compiler.states, bits: parser.bits };
}

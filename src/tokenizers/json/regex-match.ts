// The matcher for patterns that come from a file. With the platform's RegExp some of them would take exponential time
// ("(a+)+$" on forty letters), on a thread that others wait for, and it cannot be stopped.
//
// It tries the same alternatives in the same order as RegExp, so it finds the same matches; but a state that was already tried at a
// position is not tried again, because it would fail again: without captures and back references, nothing else influences the
// result. The time is therefore linear: states times characters. (It starts to record states when a match has taken a while; most
// never do.) A lookahead or lookbehind is a separate match, so a pattern that looks far ahead from every character is not linear. A
// limit on steps, with an error beyond it, covers that.

import type { Check } from "../../base/check.ts";
import { ModelError } from "../../base/errors.ts";
import type { Program, State } from "./regex-program.ts";

/** Steps of a match before it starts to record states. */
const FORGETFUL_STEPS = 256;
/** Real patterns take about ten steps per character. */
const STEPS = 1_000_000;
const STEPS_PER_CHARACTER = 200;
const MOST_STEPS = 1_000_000_000;
/** Steps between two checks whether to stop. */
const CHECK_STEPS = 65_536;
/** Limit on alternatives that are not tried yet: three numbers each. */
const MOST_WAYS: number = 3 << 25;
/** Room for alternatives that is kept for the next text. */
const KEPT_WAYS: number = 3 << 12;
const PAGE_BITS = 32_768;

/** The states that a match has visited: bits by position and state, in pages allocated when needed. */
class Seen {
  readonly #pages = new Map<number, Uint32Array>();

  /** Whether it was visited before; marks it as visited. */
  visit(key: number): boolean {
    const number = Math.floor(key / PAGE_BITS);
    let page = this.#pages.get(number);
    if (!page) {
      page = new Uint32Array(PAGE_BITS / 32);
      this.#pages.set(number, page);
    }
    const bit = key - number * PAGE_BITS;
    const word = page[bit >> 5]!;
    page[bit >> 5] = word | (1 << (bit & 31));
    return (word & (1 << (bit & 31))) !== 0;
  }
}

/** Matches that are tried together: the ones from all start positions, or the ones of one lookahead. */
interface Attempt {
  steps: number;
  seen: Seen | undefined;
}

export class Matcher {
  readonly #program: Program;
  readonly #source: string;
  /** All bits set: something was matched since every mark. */
  readonly #allBits: number;
  #text = "";
  #check: Check = () => {};
  #steps = 0;
  #limit = 0;
  /** Alternatives that are not tried yet: state, position and bits each. */
  #ways = new Int32Array(KEPT_WAYS);
  #top = 0;
  /** The end of the last match of a body, and its bits. */
  #end = 0;

  /** `source`: the pattern in the file, for messages. */
  constructor(program: Program, source: string) {
    this.#program = program;
    this.#source = source;
    this.#allBits = (1 << program.bits) - 1;
  }

  /** The start and end of all matches, as String.matchAll finds them. */
  matches(text: string, check: Check = () => {}): number[] {
    this.#text = text;
    this.#check = check;
    this.#steps = 0;
    this.#top = 0;
    this.#limit = Math.min(MOST_STEPS, STEPS + STEPS_PER_CHARACTER * text.length);
    const found: number[] = [];
    let attempt = fresh();
    for (let from = 0; from <= text.length; ) {
      if (!this.#run(this.#program.start, from, attempt)) {
        from = this.#after(from);
        continue;
      }
      found.push(from, this.#end);
      from = this.#end > from ? this.#end : this.#after(from);
      attempt = fresh();
    }
    if (this.#ways.length > KEPT_WAYS) this.#ways = new Int32Array(KEPT_WAYS);
    return found;
  }

  /** Whether the text matches from `position` on; #end is the end of the match. */
  #run(start: State, position: number, attempt: Attempt): boolean {
    const base = this.#top;
    let state: State | undefined = start;
    let at = position;
    let bits = this.#allBits;
    for (;;) {
      if (!state) {
        if (this.#top === base) return false;
        this.#top -= 3;
        state = this.#program.states[this.#ways[this.#top]!]!;
        at = this.#ways[this.#top + 1]!;
        bits = this.#ways[this.#top + 2]!;
      }
      if (this.#wasHere(state, at, bits, attempt)) {
        state = undefined;
        continue;
      }
      switch (state.op) {
        case "char": {
          const to: number = this.#step(state, at);
          at = to;
          bits = this.#allBits;
          state = to < 0 ? undefined : state.next;
          break;
        }
        case "star": {
          const to: number = this.#step(state, at);
          if (to < 0) state = state.next;
          else if (state.lazy) {
            this.#later(state, to, this.#allBits); // take one more if the rest does not match
            state = state.next;
          } else {
            this.#later(state.next, at, bits);
            at = to;
            bits = this.#allBits;
          }
          break;
        }
        case "split":
          this.#later(state.other, at, bits);
          state = state.next;
          break;
        case "start":
          state = at === 0 ? state.next : undefined;
          break;
        case "end":
          state = at === this.#text.length ? state.next : undefined;
          break;
        case "mark":
          bits &= ~(1 << state.bit);
          state = state.next;
          break;
        case "check":
          state = (bits & (1 << state.bit)) === 0 ? undefined : state.next;
          break;
        case "look":
          state = this.#run(state.body, at, fresh()) === state.negative ? undefined : state.next;
          break;
        case "atomic": {
          if (!this.#run(state.body, at, fresh())) state = undefined;
          else {
            if (this.#end !== at) bits = this.#allBits;
            at = this.#end;
            state = state.next;
          }
          break;
        }
        case "accept":
          this.#top = base;
          this.#end = at;
          return true;
      }
    }
  }

  /** Counts a step; true if this state already failed at this position. */
  #wasHere(state: State, at: number, bits: number, attempt: Attempt): boolean {
    if (++this.#steps > this.#limit) throw this.#tooLong();
    if (this.#steps % CHECK_STEPS === 0) this.#check();
    if (++attempt.steps < FORGETFUL_STEPS) return false;
    attempt.seen ??= new Seen();
    const place = at * this.#program.states.length + state.id;
    return attempt.seen.visit(place * (this.#allBits + 1) + bits);
  }

  /** The end of the character after (or before) `at`, if it is in the set; -1 if it is not, or if there is none. */
  #step({ set, back }: Extract<State, { set: unknown }>, at: number): number {
    if (back) {
      if (at === 0) return -1;
      const low = this.#text.charCodeAt(at - 1);
      const isPair = low >= 0xdc00 && low <= 0xdfff && at > 1;
      const code = isPair ? this.#text.codePointAt(at - 2)! : low;
      const from = code > 0xffff ? at - 2 : at - 1;
      return set.has(code > 0xffff ? code : low) ? from : -1;
    }
    if (at >= this.#text.length) return -1;
    const code = this.#text.codePointAt(at)!;
    if (!set.has(code)) return -1;
    return code > 0xffff ? at + 2 : at + 1;
  }

  #after(at: number): number {
    return at + ((this.#text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1);
  }

  /** Records an alternative, to be tried when this one fails. */
  #later(state: State, at: number, bits: number): void {
    if (this.#top === this.#ways.length) {
      if (this.#top >= MOST_WAYS) throw this.#tooLong();
      const grown = new Int32Array(2 * this.#top);
      grown.set(this.#ways);
      this.#ways = grown;
    }
    this.#ways[this.#top] = state.id;
    this.#ways[this.#top + 1] = at;
    this.#ways[this.#top + 2] = bits;
    this.#top += 3;
  }

  #tooLong(): ModelError {
    return new ModelError(
      `tokenizer.json: the pattern ${JSON.stringify(this.#source.slice(0, 200))} takes more than ${this.#limit} steps on a text of ${this.#text.length} characters. The tokenizer is broken or hostile. Use another file of the model`,
    );
  }
}

function fresh(): Attempt {
  return { steps: 0, seen: undefined };
}

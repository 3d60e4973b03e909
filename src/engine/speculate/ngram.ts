// Drafts without a model: if the last tokens have occurred before, in the prompt or in the output, the tokens that followed them
// may follow again. Answers that quote, edit or continue their prompt repeat long pieces of it.
//
// A match is a position in the text that follows the same tokens as the end of the text. While the text continues as it did there,
// the match grows by a token at a time. Otherwise the last 8, 4, 2 or 1 tokens are looked up in a table of the last position of
// each such n-gram: the longest counts, of equal ones the newest. A token takes O(1): four hashes, four lookups, nothing allocated.
// A single token seldom repeats what followed it, but if more tokens cost nothing (a GPU), trying it gives 6 % more of them.
//
// The probability that a match is right depends on its length. It is measured whether or not tokens were drafted: the match's
// proposal is compared with each new token. So it costs nothing to find out that drafts have begun to pay. A new text starts from
// the acceptance measured in the engine's earlier ones.

import { Acceptance } from "./acceptance.ts";
import type { Drafter, DrafterKind } from "./drafter.ts";

/** Lengths of n-grams with a table, longest first. */
const GRAMS = [8, 4, 2, 1] as const;
/** Matches are not compared further back. */
const LONGEST = 64;
/** Slots of a table: at most these; where two n-grams share one, the newer has it. */
const FEWEST_SLOTS = 1 << 10;
const MOST_SLOTS = 1 << 16;

/** The shortest match of each class. */
const CLASSES = [1, 2, 3, 4, 6, 9, 17, 33] as const;
/** The probability that a token is followed as it was before, until it is measured. */
const FIRST_CHANCE = 0.1;
/** Observations that count, in one text and in all. */
const TEXT_MEMORY = 32;
const ENGINE_MEMORY = 512;

/** The class of each length. */
const classOf: Uint8Array = Uint8Array.from({ length: LONGEST + 1 }, (_, length) =>
  Math.max(
    0,
    CLASSES.findLastIndex((from) => from <= length),
  ),
);

/** The n-gram drafters of one engine. */
export class NgramKind implements DrafterKind {
  readonly name = "ngram";
  /** The acceptance in all texts. */
  readonly #chances = new Acceptance({
    classes: CLASSES.length,
    first: FIRST_CHANCE,
    memory: ENGINE_MEMORY,
  });

  start(prompt: readonly number[], mostTokens: number): Drafter {
    return new NgramDrafter(prompt, mostTokens, this.#chances);
  }
}

class NgramDrafter implements Drafter {
  readonly name = "ngram";
  /** The text so far. */
  readonly #tokens: Int32Array;
  #length = 0;
  /** For each length of GRAMS: the last end position of the n-gram with this hash; 0: none. */
  readonly #tables: readonly Int32Array[]; // [slots]
  readonly #mask: number;
  /** The position of the token that should come next; 0: no match. */
  #match = 0;
  #matched = 0;
  readonly #chances: Acceptance;
  readonly #allChances: Acceptance;

  constructor(prompt: readonly number[], mostTokens: number, before: Acceptance) {
    const size = { classes: CLASSES.length, first: FIRST_CHANCE };
    this.#chances = new Acceptance({ ...size, memory: TEXT_MEMORY, before });
    this.#allChances = before;
    this.#tokens = new Int32Array(Math.max(mostTokens, prompt.length));
    let slots = FEWEST_SLOTS;
    while (slots < 2 * mostTokens && slots < MOST_SLOTS) slots *= 2;
    this.#mask = slots - 1;
    this.#tables = GRAMS.map(() => new Int32Array(slots));
    for (const token of prompt) this.#push(token);
  }

  accept(token: number): void {
    if (this.#match > 0) {
      const isRight = this.#tokens[this.#match] === token;
      this.#chances.note(classOf[this.#matched]!, isRight);
      this.#allChances.note(classOf[this.#matched]!, isRight);
    }
    this.#push(token);
  }

  chance(index: number): number {
    if (this.#match === 0) return 0;
    return this.#chances.of(classOf[Math.min(LONGEST, this.#matched + index)]!);
  }

  draftMs(): number {
    return 0;
  }

  draft(limit: number, out: Int32Array): number {
    if (this.#match === 0) return 0;
    for (let i = 0; i < limit; i++) {
      const from = this.#match + i;
      // A text that repeats itself continues with the tokens drafted just before.
      out[i] = from < this.#length ? this.#tokens[from]! : out[from - this.#length]!;
    }
    return limit;
  }

  verified(): void {
    // accept() has measured it.
  }

  dispose(): void {
    this.#match = 0;
  }

  #push(token: number): void {
    if (this.#length >= this.#tokens.length) {
      this.#match = 0;
      return;
    }
    const goesOn = this.#match > 0 && this.#tokens[this.#match] === token;
    this.#tokens[this.#length++] = token;
    this.#match = goesOn ? this.#match + 1 : 0;
    this.#matched = goesOn ? Math.min(LONGEST, this.#matched + 1) : 0;
    for (let gram = 0; gram < GRAMS.length; gram++) {
      const size = GRAMS[gram]!;
      if (this.#length < size) continue;
      const slot = this.#hash(size);
      const table = this.#tables[gram]!;
      const before = table[slot]!;
      table[slot] = this.#length;
      if (this.#matched >= size || before === 0) continue;
      const matched = this.#common(before);
      if (matched < size) continue; // another n-gram with the same hash
      this.#match = before;
      this.#matched = matched;
    }
  }

  /** The hash of the last `size` tokens. */
  #hash(size: number): number {
    let hash = size;
    for (let i = this.#length - size; i < this.#length; i++) {
      hash = Math.imul(hash ^ this.#tokens[i]!, 0x9e3779b1);
      hash ^= hash >>> 15;
    }
    return hash & this.#mask;
  }

  /** The number of tokens before `place` that equal the end of the text. */
  #common(place: number): number {
    let same = 0;
    const most = Math.min(LONGEST, place);
    while (same < most && this.#tokens[place - 1 - same] === this.#tokens[this.#length - 1 - same])
      same++;
    return same;
  }
}

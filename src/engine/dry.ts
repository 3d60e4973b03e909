// DRY ("don't repeat yourself"): a penalty for tokens that would extend a sequence that already occurred in the text.
// It grows with the length of that sequence. As in llama.cpp, which took it from koboldcpp (by pi6am).
//
// With the text "a b c x a b": after an earlier "a b" there was a "c", so "c" is penalised by multiplier * base^(2 -
// allowed). Breakers (a line break, a quote) end a sequence: nothing before them counts.

import type { AdjustedList } from "../graph/adjusted-list.ts";
import type { SamplerSettings } from "./sampling.ts";

export type DrySettings = Pick<
  SamplerSettings,
  "dryMultiplier" | "dryBase" | "dryAllowedLength" | "dryPenaltyLastN"
>;

/** A sequence of tokens that breaks repetitions: its first token, and the tokens after it (usually none). */
export interface DryBreaker {
  head: number;
  tail: readonly number[];
}

/** Keeps base^n below the largest float32. */
const FLOAT_MAX_LOG = 88.7228391;
const FIRST_WINDOW = 1024;

/** undefined if the settings change no logit. */
export function createDry(
  settings: DrySettings,
  vocabSize: number,
  breakers: readonly DryBreaker[],
): Dry | undefined {
  const { dryMultiplier, dryBase, dryPenaltyLastN } = settings;
  if (dryMultiplier === 0 || dryBase < 1 || dryPenaltyLastN === 0) return undefined;
  return new Dry(settings, vocabSize, breakers);
}

export class Dry {
  readonly #settings: DrySettings;
  readonly #maxExponent: number;
  /** Breakers by their first token. */
  readonly #tails = new Map<number, (readonly number[])[]>();
  // The text so far, oldest first; only its last dryPenaltyLastN tokens count. Moved to the front when the array is
  // full.
  #text: Int32Array;
  #length = 0;
  /** #repeats[i]: the number of last tokens that also end i positions before the last one. */
  #repeats: Int32Array;
  readonly #longest: Int32Array; // [vocab] 1 + the longest repetition that this token would extend; 0: none
  readonly #found: Int32Array; // [vocab] tokens with one: the first #foundSize entries
  #foundSize = 0;

  constructor(settings: DrySettings, vocabSize: number, breakers: readonly DryBreaker[]) {
    this.#settings = settings;
    const { dryBase } = settings;
    this.#maxExponent = dryBase > 1.000001 ? Math.floor(FLOAT_MAX_LOG / Math.log(dryBase)) : 0;
    for (const { head, tail } of breakers) {
      const known = this.#tails.get(head);
      if (known) known.push(tail);
      else this.#tails.set(head, [tail]);
    }
    this.#text = new Int32Array(FIRST_WINDOW);
    this.#repeats = new Int32Array(FIRST_WINDOW);
    this.#longest = new Int32Array(vocabSize);
    this.#found = new Int32Array(vocabSize);
  }

  accept(id: number): void {
    if (this.#length === this.#text.length) this.#makeRoom();
    this.#text[this.#length++] = id;
  }

  apply(logits: Float32Array): void {
    const { dryMultiplier, dryBase, dryAllowedLength } = this.#settings;
    this.#find();
    for (let i = 0; i < this.#foundSize; i++) {
      const id = this.#found[i]!;
      let exponent = this.#longest[id]! - 1 - dryAllowedLength;
      this.#longest[id] = 0;
      if (this.#isBreaker(id)) continue;
      if (this.#maxExponent > 0) exponent = Math.min(exponent, this.#maxExponent);
      logits[id]! -= dryMultiplier * dryBase ** exponent;
    }
  }

  /** Lists the tokens whose logits apply() changes, except tokens that are listed already; false: there is no room. */
  list(target: AdjustedList): boolean {
    this.#find();
    let fits = true;
    for (let i = 0; i < this.#foundSize; i++) {
      const id = this.#found[i]!;
      this.#longest[id] = 0;
      fits &&= target.has(id) || target.add(id, 0, 0);
    }
    return fits;
  }

  /** Finds the tokens that would extend a repetition; the caller sets #longest of each to 0 again. */
  #find(): void {
    const { dryAllowedLength } = this.#settings;
    this.#foundSize = 0;
    const count = this.#window();
    if (count <= dryAllowedLength) return;
    const limit = this.#limit(count);
    if (limit < dryAllowedLength) return;
    this.#countRepeats(count, limit);
    this.#findLongest(count);
  }

  /** Number of tokens that count. */
  #window(): number {
    const { dryPenaltyLastN } = this.#settings;
    return dryPenaltyLastN < 0 ? this.#length : Math.min(this.#length, dryPenaltyLastN);
  }

  /** The token that is `places` positions before the last one. */
  #back(places: number): number {
    return this.#text[this.#length - 1 - places]!;
  }

  /** The length that a repetition can have before it reaches a breaker. */
  #limit(count: number): number {
    if (this.#tails.size === 0) return count;
    for (let i = 0; i < count; i++) {
      const tails = this.#tails.get(this.#back(i));
      if (tails === undefined) continue;
      let longest = -1;
      for (const tail of tails) {
        if (tail.length > longest && tail.length <= i && this.#follows(tail, i))
          longest = tail.length;
      }
      if (longest >= 0) return i - longest;
    }
    return count;
  }

  /** Whether the token `places` positions back is followed by these. */
  #follows(tail: readonly number[], places: number): boolean {
    for (let offset = 0; offset < tail.length; offset++) {
      if (tail[offset] !== this.#back(places - offset - 1)) return false;
    }
    return true;
  }

  /** The Z-algorithm, from the end of the text backwards: linear for any text. */
  #countRepeats(count: number, limit: number): void {
    if (this.#repeats.length < count) this.#repeats = new Int32Array(this.#text.length);
    const repeats = this.#repeats;
    let left = 0;
    let right = 0;
    repeats[0] = 0;
    for (let k = 1; k < count; k++) {
      const known = k > right ? 0 : repeats[k - left]!;
      const rest = right - k + 1;
      if (k <= right && known < rest) {
        repeats[k] = Math.min(known, limit);
        continue;
      }
      let end = k > right ? k : right + 1;
      while (end < count && this.#back(end) === this.#back(end - k)) end++;
      repeats[k] = Math.min(end - k, limit);
      if (end > k) {
        left = k;
        right = end - 1;
      }
    }
  }

  /** For every token that followed a repeated sequence: the length of the longest such sequence. */
  #findLongest(count: number): void {
    const { dryAllowedLength } = this.#settings;
    for (let k = 1; k < count; k++) {
      const repeat = this.#repeats[k]!;
      if (repeat < dryAllowedLength) continue;
      const id = this.#back(k - 1);
      if (this.#longest[id] === 0) this.#found[this.#foundSize++] = id;
      this.#longest[id] = Math.max(this.#longest[id]!, repeat + 1);
    }
  }

  #isBreaker(id: number): boolean {
    return this.#tails.get(id)?.some((tail) => tail.length === 0) ?? false;
  }

  #makeRoom(): void {
    const { dryPenaltyLastN } = this.#settings;
    const needed = dryPenaltyLastN < 0 ? this.#length : Math.min(this.#length, dryPenaltyLastN);
    const from = this.#length - needed;
    // At least half of the array is freed, so this happens rarely.
    const grown = from < needed ? new Int32Array(this.#text.length * 2) : this.#text;
    grown.set(this.#text.subarray(from, this.#length));
    this.#text = grown;
    this.#length = needed;
  }
}

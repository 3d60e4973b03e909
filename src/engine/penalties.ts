// Repetition, frequency and presence penalties over the last tokens of the text.
//
// The logit of a token that occurs c > 0 times in the window changes as in llama.cpp:
//   divided by repeatPenalty if positive, multiplied by it if not; then
//   lowered by c * frequencyPenalty + presencePenalty.
// Counts are updated token by token, with a list of the tokens with a nonzero count, so that applying the penalties touches only
// these.

import type { AdjustedList } from "../graph/adjusted-list.ts";
import type { SamplerSettings } from "./sampling.ts";

type PenaltySettings = Pick<
  SamplerSettings,
  "repeatPenalty" | "repeatLastN" | "frequencyPenalty" | "presencePenalty"
>;

const firstWindow = 1024;

/** undefined if the settings change no logit. */
export function createPenalties(
  settings: PenaltySettings,
  vocabSize: number,
): Penalties | undefined {
  const neutral =
    settings.repeatPenalty === 1 &&
    settings.frequencyPenalty === 0 &&
    settings.presencePenalty === 0;
  return neutral || settings.repeatLastN === 0 ? undefined : new Penalties(settings, vocabSize);
}

export class Penalties {
  readonly #settings: PenaltySettings;
  readonly #counts: Uint32Array; // [vocab] occurrences in the window
  readonly #places: Int32Array; // [vocab] index in #seen, if the count is not zero
  readonly #seen: Int32Array; // [vocab] tokens with a count: the first #seenSize entries
  #seenSize = 0;
  // The tokens of the window, oldest at #accepted % repeatLastN once full. It grows as tokens come, because
  // repeatLastN may be far more than any text. Unused if the window is the whole text.
  #window: Int32Array;
  #accepted = 0;

  constructor(settings: PenaltySettings, vocabSize: number) {
    this.#settings = settings;
    this.#counts = new Uint32Array(vocabSize);
    this.#places = new Int32Array(vocabSize);
    this.#seen = new Int32Array(vocabSize);
    this.#window = new Int32Array(Math.max(0, Math.min(settings.repeatLastN, firstWindow)));
  }

  accept(id: number): void {
    const lastN = this.#settings.repeatLastN;
    if (lastN !== -1) {
      const slot = this.#accepted % lastN;
      if (this.#accepted >= lastN) this.#remove(this.#window[slot]!);
      else if (slot === this.#window.length) this.#growWindow(lastN);
      this.#window[slot] = id;
      this.#accepted++;
    }
    this.#add(id);
  }

  apply(logits: Float32Array): void {
    const { repeatPenalty, frequencyPenalty, presencePenalty } = this.#settings;
    for (let i = 0; i < this.#seenSize; i++) {
      const id = this.#seen[i]!;
      const logit = logits[id]!;
      const repeated = logit > 0 ? logit / repeatPenalty : logit * repeatPenalty;
      logits[id] = repeated - this.#counts[id]! * frequencyPenalty - presencePenalty;
    }
  }

  /** Tokens that they look back; Infinity: all. */
  get window(): number {
    const { repeatLastN } = this.#settings;
    return repeatLastN === -1 ? Infinity : repeatLastN;
  }

  /** The occurrences of a token in the window after this many further tokens, which do not count. */
  occurrences(id: number, after: number): number {
    const lastN = this.#settings.repeatLastN;
    let count = this.#counts[id]!;
    if (lastN === -1 || count === 0) return count;
    for (let i = 0; i < Math.min(after, lastN); i++) {
      const leaves = this.#accepted + i; // the position of the oldest in a full window
      if (leaves >= lastN && this.#window[leaves % lastN] === id) count--;
    }
    return count;
  }

  /**
   * Lists the tokens of the window after this many further ones, except tokens that are listed already; false: there is no room.
   */
  list(target: AdjustedList, after: number, listed: ReadonlyMap<number, unknown>): boolean {
    for (let i = 0; i < this.#seenSize; i++) {
      const id = this.#seen[i]!;
      if (listed.has(id)) continue;
      const occurrences = this.occurrences(id, after);
      if (occurrences > 0 && !target.add(id, occurrences, 0)) return false;
    }
    return true;
  }

  #add(id: number): void {
    if (this.#counts[id] === 0) {
      this.#places[id] = this.#seenSize;
      this.#seen[this.#seenSize++] = id;
    }
    this.#counts[id]!++;
  }

  #remove(id: number): void {
    this.#counts[id]!--;
    if (this.#counts[id] !== 0) return;
    const last = this.#seen[--this.#seenSize]!;
    this.#seen[this.#places[id]!] = last;
    this.#places[last] = this.#places[id]!;
  }

  #growWindow(lastN: number): void {
    const grown = new Int32Array(Math.min(lastN, this.#window.length * 2));
    grown.set(this.#window);
    this.#window = grown;
  }
}

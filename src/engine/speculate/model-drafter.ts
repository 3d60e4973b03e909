// The drafts of one generation from a draft model (draft-model.ts).
//
// The generation has a sequence in the draft's cache. It holds the text so far and the last draft; before the next draft it goes
// back to the position where text and draft differ, and computes the tokens in between. The prompt is computed when the first draft
// is asked for, after the first token of the answer, which therefore comes as early as without. Until then, and while drafts do not
// pay, a token costs nothing here. If the cache has no room for the sequence, or the text outgrows the draft's context, there are
// no drafts.
//
// A draft is greedy, and ends where it would cost more than it is worth: where the probability that all of it is right, by the
// draft model's own estimate, times the time of a token without drafts is less than the time of another drafted token.

import { AbortedError, KvRangeError, messageOf } from "../../base/errors.ts";
import type { AdvanceOptions, Engine, RunningSequence } from "../engine.ts";
import { NOBODY, type Owner } from "../tiers/owners.ts";
import type { BatchCosts } from "./costs.ts";
import type { DraftedFor, Drafter } from "./drafter.ts";
import type { VocabMap } from "./vocab-map.ts";

/** More tokens than this wait only before the first draft, or after a long time without: they are paid for by many drafts. */
const MUCH = 32;
const AMORTISED = 32;
/** The number of pieces of a token is an average over about this many. */
const PIECES_KEPT = 32;
/** Tokens of the draft model in one draft. */
const MOST_DRAFTED = 64;
/** Logits further than this below the largest are too small to matter. */
const FAR = 14;

/** The part of its draft model that a drafter uses: see DraftModel. */
export interface DraftSide {
  readonly target: Engine;
  readonly engine: Engine;
  readonly map: VocabMap;
  readonly costs: BatchCosts;
  readonly endsEarly: boolean;
  readonly chance: number;
  verified(drafted: number, accepted: number): void;
  count(change: 1 | -1): void;
  turn(isMore: boolean): void;
}

export class ModelDrafter implements Drafter {
  readonly name = "draft-model";
  readonly endsItself = true;
  readonly #model: DraftSide;
  /** A draft ends before a token to which the draft model gives less. */
  readonly #minChance: number;
  readonly #owner: Owner;
  /** The text in the target's tokens: [#length], of which [#read] are in #text. */
  readonly #tokens: Int32Array;
  #length = 0;
  #read = 0;
  /** Its text begins with this. */
  readonly #bos: number | undefined;
  /** The text in the draft's tokens: [#count]. */
  readonly #text: Int32Array;
  #count = 0;
  /** So many tokens of the text are known to be in the sequence as well. */
  #same = 0;
  #running: RunningSequence | undefined;
  /** One token, to be computed. */
  readonly #next = new Int32Array(1);
  readonly #logits: Float32Array;
  /** The draft in the draft model's tokens, and in the target's. */
  readonly #drafted = new Int32Array(MOST_DRAFTED);
  readonly #translated = new Int32Array(MOST_DRAFTED);
  /** Tokens of the draft model for each of the target's, on average. */
  #pieces = 1;
  /** Whether it can draft: the text fits, and there was room. */
  #isAble = true;
  #isDisposed = false;
  readonly #prompt: AdvanceOptions;
  readonly #step: AdvanceOptions;
  /** The index of the last token that is computed at once. */
  #last = 0;

  constructor(
    model: DraftSide,
    mostTokens: number,
    { minChance = 0, stop = () => false, owner = NOBODY }: DraftedFor,
  ) {
    this.#model = model;
    this.#minChance = minChance;
    this.#owner = owner;
    const { engine } = model;
    const { bos, addBos } = engine.tokenizer.special;
    this.#bos = addBos ? bos : undefined;
    this.#tokens = new Int32Array(mostTokens + 1);
    // A token more than the target's: its begin of text may be missing there.
    this.#text = new Int32Array(Math.min(mostTokens + 1, engine.info.contextSize));
    if (this.#bos !== undefined) this.#push(this.#bos);
    this.#logits = new Float32Array(engine.vocabSize);
    const read: Pick<AdvanceOptions, "onOutput" | "stop"> = {
      onOutput: (_, read) => read("logits", this.#logits),
      stop: () => this.#isDisposed || stop(),
    };
    this.#prompt = { ...read, wants: (index) => index === this.#last };
    this.#step = { ...this.#prompt, phase: "generation" };
    model.count(1);
  }

  accept(token: number): void {
    if (this.#length < this.#tokens.length) this.#tokens[this.#length++] = token;
    else this.#isAble = false;
  }

  /** Translates the tokens accepted since the last draft. */
  #readOn(): void {
    const { map } = this.#model;
    for (; this.#read < this.#length; this.#read++) {
      const token = this.#tokens[this.#read]!;
      const id = map.toDraft(token);
      if (id === this.#bos && this.#count === 1 && this.#read === 0) continue; // it is there already
      const pieces = id < 0 ? map.spelled(token) : undefined;
      if (pieces) for (const piece of pieces) this.#push(piece);
      else this.#push(id);
      this.#pieces += ((pieces?.length ?? 1) - this.#pieces) / PIECES_KEPT;
    }
  }

  #push(id: number): void {
    if (this.#count < this.#text.length) this.#text[this.#count++] = id;
    else this.#isAble = false;
  }

  chance(_index: number): number {
    return this.#isAble ? this.#model.chance : 0;
  }

  draftMs(count: number): number {
    const { costs, map } = this.#model;
    if (!costs.isKnown(1)) return 0; // the first draft tells
    // In another vocabulary a token more is drafted: see #translate().
    const computed = count === 0 || map.isSame ? count : count + 1;
    const waiting = this.#count - this.#same + (this.#length - this.#read) * this.#pieces - 1;
    const catchUp = waiting > 0 ? costs.msOf(1 + Math.ceil(waiting)) - costs.msOf(1) : 0;
    return (
      computed * this.#pieces * costs.msOf(1) + (waiting > MUCH ? catchUp / AMORTISED : catchUp)
    );
  }

  async draft(limit: number, out: Int32Array): Promise<number> {
    if (limit < 1) return 0;
    this.#readOn();
    if (!this.#isAble || this.#count === 0) return 0;
    try {
      this.#running ??= await this.#open();
      const running = this.#running;
      if (!running) return 0;
      await this.#catchUp(running, limit > 1);
      return await this.#propose(running, limit, out);
    } catch (error) {
      if (error instanceof AbortedError) return 0; // the generation ends
      // Both models are opened again with a cache of F32 and continue.
      if (error instanceof KvRangeError) throw new KvRangeError(`draft model: ${error.message}`);
      throw new Error(`the draft model failed: ${messageOf(error)}`, { cause: error });
    }
  }

  /** undefined: there is no room for it. The generation does not wait for room: it continues without drafts. */
  async #open(): Promise<RunningSequence | undefined> {
    const { engine } = this.#model;
    let isLate = false;
    const opening = engine.open({
      tokens: [...this.#text.subarray(0, this.#count)],
      mayAdd: this.#text.length - this.#count,
      owner: this.#owner,
      isAborted: () => isLate,
    });
    isLate = true;
    engine.checkWaiting();
    try {
      return await opening;
    } catch (error) {
      if (!(error instanceof AbortedError)) throw error;
      this.#isAble = false;
      return undefined;
    }
  }

  /**
   * Goes back to the position where text and sequence differ, and computes the rest of the text; the logits are those of its last
   * token.
   */
  async #catchUp(running: RunningSequence, isMore: boolean): Promise<void> {
    const { engine, costs } = this.#model;
    const { sequence } = running;
    const most = Math.min(sequence.length, this.#count);
    let same = this.#same;
    while (same < most && sequence.token(same) === this.#text[same]) same++;
    // The last token is always computed, for its logits.
    sequence.restore(sequence.restorable(Math.min(same, this.#count - 1)));
    const text = this.#text.subarray(0, this.#count);
    this.#last = this.#count - 1;
    while (sequence.length < this.#count) {
      const [from, since] = [sequence.length, performance.now()];
      const isShort = this.#count - from <= 2;
      this.#model.turn(isMore || !isShort);
      await engine.advance(running, text, from, isShort ? this.#step : this.#prompt);
      costs.note(sequence.length - from, performance.now() - since);
    }
    this.#same = this.#count;
  }

  async #propose(running: RunningSequence, limit: number, out: Int32Array): Promise<number> {
    const { engine, map, costs } = this.#model;
    const { sequence } = running;
    const ids = this.#drafted;
    let chance = 1;
    this.#last = 0;
    for (let count = 0; ; ) {
      const best = largest(this.#logits, engine.tokenizer.vocabSize);
      const own = this.#probability(best);
      if (own < this.#minChance) return map.translate(ids, count, out.subarray(0, limit));
      ids[count++] = best;
      chance *= own;
      const isLast =
        count === ids.length ||
        sequence.length === sequence.capacity ||
        engine.tokenizer.isEndOfGeneration(best) ||
        !this.#pays(count, chance);
      const found = isLast || count >= limit ? this.#translate(count, limit, isLast, out) : -1;
      if (found >= 0) return found;
      this.#next[0] = best;
      this.#model.turn(count + 1 < limit || !map.isSame);
      const since = performance.now();
      await engine.advance(running, this.#next, 0, this.#step);
      costs.note(1, performance.now() - since);
    }
  }

  /** Whether another token is worth it, if all drafted ones are right with this probability. */
  #pays(count: number, chance: number): boolean {
    const { target, costs, endsEarly, map } = this.#model;
    if (!endsEarly || !map.isSame) return true;
    const more = target.costs.msOf(count + 2) - target.costs.msOf(count + 1);
    return chance * target.costs.msOf(1) > costs.msOf(1) + more;
  }

  /** The draft in the target's tokens; -1: more must be drafted to know the last of them. */
  #translate(count: number, limit: number, isLast: boolean, out: Int32Array): number {
    const { map } = this.#model;
    // In another vocabulary a token more than wanted must be there: the draft may still continue its last.
    const most = map.isSame ? limit : limit + 1;
    const found = map.translate(this.#drafted, count, this.#translated.subarray(0, most));
    if (!isLast && found < most) return -1;
    const usable = Math.min(found, limit);
    for (let i = 0; i < usable; i++) out[i] = this.#translated[i]!;
    return usable;
  }

  /** The probability of the token with the largest logit; 1 if it is not used. */
  #probability(best: number): number {
    const { endsEarly, map } = this.#model;
    if (this.#minChance === 0 && !(endsEarly && map.isSame)) return 1;
    const logits = this.#logits;
    const top = logits[best]!;
    let sum = 0;
    for (let id = 0; id < logits.length; id++) {
      const below = logits[id]! - top;
      if (below > -FAR) sum += Math.exp(below);
    }
    return 1 / sum;
  }

  verified(drafted: number, accepted: number): void {
    this.#model.verified(drafted, accepted);
  }

  dispose(): void {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    this.#model.count(-1);
    if (this.#running) this.#model.engine.close(this.#running);
    this.#running = undefined;
  }
}

function largest(logits: Float32Array, count: number): number {
  let best = 0;
  for (let id = 1; id < count; id++) if (logits[id]! > logits[best]!) best = id;
  return best;
}

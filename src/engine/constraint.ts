// The grammar of one generation: which tokens may come next, and which must.
//
// The mask of a position depends only on the tokens before it. So prepare() runs as soon as a token is accepted, while the model
// computes that token (AdvanceOptions.meanwhile), and the mask is there when the logits are. If it allows a single token, that
// token is known before its logits: prepare() looks ahead to the next mask with a choice, and the generator computes such a run of
// tokens in one batch.
//
// A mask that takes long is computed in slices (grammar-turns.ts): accept() and ready() say whether they have to be waited for, and
// other generations continue meanwhile.

import type { GrammarTrigger } from "../api/api.ts";
import { GrammarError } from "../grammar/errors.ts";
import type { Grammar } from "../grammar/grammar.ts";
import { PausedError } from "../grammar/meter.ts";
import type { GrammarState } from "../grammar/state.ts";
import type { Tokenizer } from "../tokenizers/tokenizer.ts";
import { GrammarTriggers } from "./grammar-triggers.ts";
import { GrammarTurns, type SlicedWork, type TurnControl } from "./grammar-turns.ts";
import { forbidTokens } from "./sampler-logits.ts";

export interface ConstraintOptions {
  /** The grammar begins to apply where one of them appears; none: at once. */
  readonly triggers: readonly GrammarTrigger[];
  /** Whether tokens without an alternative are known before their logits. */
  readonly forces: boolean;
  /** No end token is chosen: the text ends where the grammar allows only its end. */
  readonly ignoreEos: boolean;
  /** Shared by the generations of an engine. Default: masks are computed at once. */
  readonly turns?: GrammarTurns | undefined;
  readonly control?: TurnControl | undefined;
}

const ALONE: TurnControl = { aborted: false, yieldThread: () => Promise.resolve() };

/** The most tokens of a run without a choice. */
const MOST_FORCED = 32;
/** Steps for each token of a draft. */
const DRAFT_SLICE = 500;

export class Constraint {
  readonly #state: GrammarState;
  readonly #tokenizer: Tokenizer;
  readonly #options: ConstraintOptions;
  readonly #triggers: GrammarTriggers | undefined;
  readonly #mask: Uint32Array; // one bit for each token
  readonly #ends: readonly number[];
  /** Tokens that the state has accepted and the text does not have yet. */
  readonly #forced: number[] = [];
  #isReady = false;
  #endsHere = false;
  #failure: unknown;
  readonly #turns: GrammarTurns;
  readonly #control: TurnControl;
  /** The last mask took more than one slice: the next will as well, and is not begun during a batch. */
  #isSlow = false;

  constructor(grammar: Grammar, tokenizer: Tokenizer, options: ConstraintOptions) {
    this.#state = grammar.start();
    this.#tokenizer = tokenizer;
    this.#options = options;
    this.#turns = options.turns ?? new GrammarTurns();
    this.#control = options.control ?? ALONE;
    this.#mask = new Uint32Array(grammar.maskWords);
    this.#ends = grammar.endTokens;
    if (options.triggers.length > 0) {
      this.#triggers = new GrammarTriggers(options.triggers, tokenizer, (pattern) =>
        grammar.trigger(pattern),
      );
    }
  }

  /** Whether the grammar applies yet. */
  get #isActive(): boolean {
    return this.#triggers === undefined || this.#triggers.isFound;
  }

  get isIdle(): boolean {
    return !this.#isActive;
  }

  /** Whether the next token is known, so that its logits are not needed. */
  get isNextKnown(): boolean {
    return this.#forced.length > 0;
  }

  /** Whether the text is whole and cannot continue. Does not wait for the mask. */
  get isFinished(): boolean {
    return this.#isActive && this.#forced.length === 0 && this.#state.isFinished;
  }

  /** The same, and also true if the grammar could continue but no token of the vocabulary can. */
  endsHere(): boolean {
    if (!this.#isActive || this.#forced.length > 0) return false;
    this.#check();
    return this.#endsHere;
  }

  /** Computes the next mask, unless it is there. An error is thrown when the mask is needed. */
  readonly prepare = (): void => {
    if (this.#isReady || this.#isSlow || this.#failure !== undefined || !this.#isActive) return;
    try {
      this.#isSlow = !this.#turns.atOnce(this.#work);
    } catch (error) {
      this.#failure = error;
    }
  };

  readonly #work: SlicedWork = (slice) => {
    if (this.#isReady) return;
    this.#compute(slice);
    this.#isReady = true;
  };

  /** Before the next token is chosen: waits for its mask; undefined: it is there, or none is needed. */
  ready(): Promise<void> | undefined {
    if (!this.#isActive || this.#forced.length > 0) return undefined;
    this.prepare();
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#isReady) {
      this.#isSlow = false;
      return undefined;
    }
    this.#isSlow = false; // unless it is again
    return this.#turns.finish(this.#work, this.#control);
  }

  /** A mask that is used must be there: ready() comes before. */
  #check(): void {
    if (this.#failure !== undefined) throw this.#failure;
    if (!this.#isReady) this.#work(Number.POSITIVE_INFINITY);
  }

  /** Forbids all tokens that cannot come next, at any value of their logits. */
  forbid(
    logits: Float32Array, // [vocab]
  ): void {
    if (!this.#isActive) return;
    const known = this.#forced[0];
    if (known !== undefined) {
      logits.fill(Number.NEGATIVE_INFINITY);
      logits[known] = 0;
      return;
    }
    this.#check();
    forbidTokens(logits, this.#mask);
  }

  /** A token is now part of the text. To be waited for, unless it is undefined. */
  accept(id: number): Promise<void> | undefined {
    if (!this.#isActive) {
      const rest = this.#triggers!.push(id);
      if (rest !== undefined && rest.length > 0 && !this.#state.acceptBytes(rest)) {
        throw new GrammarError(
          `grammar: its trigger was found, but the text from there, ${shown(rest)}, does not fit the grammar. Begin the grammar with the trigger`,
        );
      }
      return undefined;
    }
    if (this.#forced.length > 0) {
      this.#forced.shift();
      return undefined;
    }
    this.#isReady = false;
    const take: SlicedWork = (slice) => {
      if (this.#state.accept(id, slice)) return;
      throw new Error(`grammar: token ${id} was chosen, but the grammar does not allow it`);
    };
    return this.#turns.atOnce(take) ? undefined : this.#turns.finish(take, this.#control);
  }

  /**
   * The number of the first `count` tokens that may come next, one after the other: no other draft is worth computing. Tokens that
   * would end the generation are not counted, since nothing is computed after them.
   */
  allowed(tokens: Int32Array, count: number): number {
    if (!this.#isActive || this.#failure !== undefined) return count;
    const state = this.#state;
    // Forced tokens are part of the state, but not yet of the text.
    const known = Math.min(count, this.#forced.length);
    for (let i = 0; i < known; i++) if (tokens[i] !== this.#forced[i]) return i;
    const before = state.length;
    let right = known;
    try {
      while (right < count && !this.#ends.includes(tokens[right]!)) {
        if (!state.accept(tokens[right]!, DRAFT_SLICE)) break;
        right++;
      }
    } catch {
      // It takes long, or the grammar is too large: the mask of that position says so, if the text gets there.
    }
    state.rollback(state.length - before);
    return right;
  }

  /** All tokens of a run without a choice share the slice; the known part of the run is kept when the slice is used up. */
  #compute(slice: number): void {
    this.#endsHere = false;
    const end = this.#state.spent + slice;
    for (let left = slice; ; left = end - this.#state.spent) {
      if (left < slice / 2) throw new PausedError(true);
      const only = this.#nextMask(left);
      if (only < 0 || !this.#options.forces || this.#forced.length >= MOST_FORCED) return;
      this.#state.accept(only, slice);
      this.#forced.push(only);
      if (this.#state.isFinished) return;
    }
  }

  /** Writes the mask; returns its token if it has only one, which does not end the text, and -1 otherwise. */
  #nextMask(slice: number): number {
    const mask = this.#mask;
    this.#state.mask(mask, slice);
    const { isComplete } = this.#state;
    // A grammar may name an end token itself, in the middle of a text.
    if (isComplete || this.#options.ignoreEos) {
      for (const id of this.#ends) mask[id >> 5]! &= ~(1 << (id & 31));
    }
    const other = singleToken(mask);
    if (!isComplete) {
      if (other === NO_TOKEN) throw this.#stuck();
      return other;
    }
    this.#endsHere = other === NO_TOKEN;
    if (this.#endsHere) return SEVERAL;
    if (this.#options.ignoreEos) return other;
    for (const id of this.#ends) mask[id >> 5]! |= 1 << (id & 31);
    return SEVERAL;
  }

  #stuck(): GrammarError {
    const { vocabSize } = this.#tokenizer;
    const why = this.#options.ignoreEos ? " (ignoreEos allows none that ends it)" : "";
    return new GrammarError(
      `grammar: after ${this.#state.length} tokens no token of the ${vocabSize} in the vocabulary can continue the text, which is not whole yet${why}. Allow other texts there`,
    );
  }
}

/** The mask has no token at all, or more than one. */
const NO_TOKEN = -2;
const SEVERAL = -1;

/** The only token of a mask, or NO_TOKEN, or SEVERAL. */
function singleToken(mask: Uint32Array): number {
  let at = -1;
  for (let i = 0; i < mask.length; i++) {
    if (mask[i] === 0) continue;
    if (at >= 0) return SEVERAL;
    at = i;
  }
  if (at < 0) return NO_TOKEN;
  const word = mask[at]!;
  return (word & (word - 1)) === 0 ? at * 32 + 31 - Math.clz32(word) : SEVERAL;
}

function shown(bytes: Uint8Array): string {
  return JSON.stringify(new TextDecoder().decode(bytes.subarray(0, 60)));
}

// The types that the sampler (sampler.ts) and the engine share: sampling options after defaults and checks, and a
// sampled token. sampling-options.ts makes the settings from a user's options.

import type { BestLogits } from "../backends/backend.ts";
import type { AdjustedList } from "../graph/adjusted-list.ts";
import type { NextDraw } from "../graph/batch.ts";
import type { SamplingNumber } from "../options/sampling.ts";
import type { SamplerName } from "./sampler-names.ts";

/** Numbers are those of the rows of src/options/sampling.ts. */
export interface SamplerSettings extends Record<SamplingNumber, number> {
  drySequenceBreakers: readonly string[];
  /** The steps, in order. */
  samplers: readonly SamplerName[];
  logitBias: ReadonlyMap<number, number>;
}

export interface SampledToken {
  id: number;
  /**
   * Natural log of the token's probability under the model (softmax of the raw logits); NaN unless
   * log-probabilities were asked for.
   */
  logprob: number;
  /** The best alternatives by raw logit, best first; empty unless requested. */
  top: { id: number; logprob: number }[];
}

/** Which tokens may come next (constraint.ts). */
export interface TokenMask {
  /** Whether it forbids no token, as long as no other is accepted. */
  readonly isIdle: boolean;
  /** Writes -Infinity to the logits of all others. */
  forbid(logits: Float32Array): void;
}

export interface Sampler {
  /**
   * Chooses a token from the logits of the next position; `logits` may be overwritten. `mask` forbids tokens before any step.
   */
  sample(logits: Float32Array, mask?: TokenMask): SampledToken;
  /**
   * The number of best logits that are enough to choose a token, beside those of adjusted tokens; 0: all are needed, and sampleBest()
   * must not be called. It depends on the options alone, so it is the same for every token.
   */
  readonly best: number;
  /** Whether it adjusts logits of some tokens (penalties, DRY, biases), which sampleBest() needs then. */
  readonly adjusts: boolean;
  /**
   * Lists the tokens that it may adjust when it chooses the next one, or one after these drafted tokens. False: that cannot be said, or
   * they are too many; all logits are needed then, this time.
   */
  listAdjusted(target: AdjustedList, draft: Int32Array, drafted: number): boolean;
  /** Chooses the same token as sample() would, without a mask. `logits` ([vocab]) is overwritten at the best and adjusted tokens. */
  sampleBest(best: BestLogits, logits: Float32Array): SampledToken;
  /** The way it will choose the next tokens, if that has a simple form: see NextDraw. */
  readonly draw?: NextDraw | undefined;
  /** Tells the sampler about a token that is now part of the text (prompt tokens too), for the penalties. */
  accept(id: number): void;
  /**
   * Continues as if it had chosen this many tokens; accept() tells it which. False, and nothing has changed: its next choice depends on
   * the logits of those tokens, so they must be chosen again.
   */
  skip(count: number): boolean;
  /** The seed in use: with the same options and logits, it gives the same tokens again. */
  readonly seed: number;
}

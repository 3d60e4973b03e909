// The types that the sampler (sampler.ts) and the engine share: sampling options after defaults and checks, and a
// sampled token. sampling-options.ts makes the settings from a user's options.

import type { BestLogits } from "../backends/backend.ts";
import type { AdjustedList } from "../graph/adjusted-list.ts";
import type { NextDraw } from "../graph/batch.ts";
import type { SamplerName } from "./sampler-names.ts";

export interface SamplerSettings {
  temperature: number;
  topK: number;
  topP: number;
  minP: number;
  typicalP: number;
  topNSigma: number;
  xtcProbability: number;
  xtcThreshold: number;
  dynatempRange: number;
  dynatempExponent: number;
  mirostat: number;
  mirostatTau: number;
  mirostatEta: number;
  repeatPenalty: number;
  repeatLastN: number;
  frequencyPenalty: number;
  presencePenalty: number;
  dryMultiplier: number;
  dryBase: number;
  dryAllowedLength: number;
  dryPenaltyLastN: number;
  drySequenceBreakers: readonly string[];
  /** The steps, in order. */
  samplers: readonly SamplerName[];
  logitBias: ReadonlyMap<number, number>;
  seed: number;
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
   * How many of the best logits are enough to choose a token, beside those of adjusted tokens; 0: all are needed, and sampleBest() must
   * not be called. It depends on the options alone, so it is the same for every token.
   */
  readonly best: number;
  /** Whether it adjusts logits of some tokens (penalties, DRY, biases), which sampleBest() needs then. */
  readonly adjusts: boolean;
  /**
   * Lists the tokens that it may adjust when it chooses the next one, or one after these drafted tokens. False: that cannot be said, or
   * they are too many; all logits are needed then, this time.
   */
  listAdjusted(target: AdjustedList, draft: Int32Array, drafted: number): boolean;
  /** The same token as sample() would choose, without a mask. `logits` ([vocab]) is overwritten where the best and adjusted ones are. */
  sampleBest(best: BestLogits, logits: Float32Array): SampledToken;
  /** How it will choose the next tokens, where that is easily said: see NextDraw. */
  readonly draw?: NextDraw | undefined;
  /** Tells the sampler about a token that is now part of the text (prompt tokens too), for the penalties. */
  accept(id: number): void;
  /**
   * Goes on as if it had chosen this many tokens; accept() tells it which. False, and nothing has changed: what it does next depends
   * on the logits of those tokens, so they must be chosen again.
   */
  skip(count: number): boolean;
  /** The seed in use: with the same options and logits, it gives the same tokens again. */
  readonly seed: number;
}

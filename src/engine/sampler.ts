// The sampler: from the logits of a position to one token.
//
// The chain, in this order and no other:
//   1. penalties      repetition, frequency, presence (penalties.ts)
//   2. logit bias     added to the logits of given tokens
//   3. top-k  4. typical  5. top-p  6. min-p     each drops tokens (sampler-filters.ts)
//   7. temperature, and a draw by the seeded generator (rng.ts)
// Temperature 0 is greedy: the largest logit after steps 1 and 2; of equal ones, the lowest id.
// Log-probabilities are the model's own: the softmax of the raw logits, before step 1.
// All scratch memory is made once; a call allocates nothing but its small result.

import { UsageError } from "../base/errors.ts";
import { NonsenseError } from "./nonsense.ts";
import { createPenalties, type Penalties } from "./penalties.ts";
import { createRng, type Rng } from "./rng.ts";
import {
  bestCandidate,
  type Candidates,
  createCandidates,
  drawCandidate,
  keepMinP,
  keepTopK,
  keepTopP,
  keepTypical,
  resetCandidates,
} from "./sampler-filters.ts";
import type { SampledToken, Sampler, SamplerSettings } from "./sampling.ts";
import { bestOfAll, selectBestOfAll } from "./select-best.ts";

export { resolveSampling } from "./sampling-options.ts";

export interface SamplerReport {
  /**
   * Log-probabilities of the chosen token and of this many best ones (0 = only the chosen);
   * undefined = none, which saves a pass over the vocabulary.
   */
  logprobs?: number | undefined;
}

export function createSampler(
  settings: SamplerSettings,
  vocabSize: number,
  report: SamplerReport = {},
): Sampler {
  const { logprobs } = report;
  if (logprobs !== undefined && !(Number.isSafeInteger(logprobs) && logprobs >= 0)) {
    throw new UsageError(
      `sampler: option "logprobs": got ${String(logprobs)}, expected a whole number, 0 or more`,
    );
  }
  for (const id of settings.logitBias.keys()) {
    if (id >= vocabSize) {
      throw new UsageError(
        `sampler: option "logitBias": got token id ${id}, expected one below ${vocabSize}, ` +
          "the size of the model's vocabulary",
      );
    }
  }
  return new ChainSampler(settings, vocabSize, logprobs);
}

class ChainSampler implements Sampler {
  readonly seed: number;
  readonly #settings: SamplerSettings;
  readonly #vocabSize: number;
  readonly #rng: Rng;
  readonly #penalties: Penalties | undefined;
  readonly #biasIds: Int32Array;
  readonly #biases: Float64Array;
  readonly #candidates: Candidates;
  readonly #logprobs: RawLogprobs | undefined;

  constructor(settings: SamplerSettings, vocabSize: number, logprobs: number | undefined) {
    this.seed = settings.seed;
    this.#settings = settings;
    this.#vocabSize = vocabSize;
    this.#rng = createRng(settings.seed);
    this.#penalties = createPenalties(settings, vocabSize);
    this.#biasIds = Int32Array.from(settings.logitBias.keys());
    this.#biases = Float64Array.from(settings.logitBias.values());
    this.#candidates = createCandidates(vocabSize);
    if (logprobs !== undefined) this.#logprobs = new RawLogprobs(vocabSize, logprobs);
  }

  sample(logits: Float32Array): SampledToken {
    if (logits.length !== this.#vocabSize) {
      throw new UsageError(
        `sampler: got ${logits.length} logits, expected ${this.#vocabSize}, the vocabulary size`,
      );
    }
    this.#logprobs?.keep(logits);
    this.#penalties?.apply(logits);
    for (let i = 0; i < this.#biasIds.length; i++) logits[this.#biasIds[i]!]! += this.#biases[i]!;

    const id =
      this.#settings.temperature === 0
        ? checkedBest(logits, bestOfAll(logits))
        : this.#draw(logits);
    return this.#logprobs?.report(id) ?? { id, logprob: Number.NaN, top: [] };
  }

  accept(id: number): void {
    if (!(Number.isSafeInteger(id) && id >= 0 && id < this.#vocabSize)) {
      throw new UsageError(
        `sampler: got token id ${id}, expected a whole number from 0 to ${this.#vocabSize - 1}`,
      );
    }
    this.#penalties?.accept(id);
  }

  #draw(logits: Float32Array): number {
    const { topK, typicalP, topP, minP, temperature } = this.#settings;
    const candidates = this.#candidates;
    resetCandidates(candidates);
    keepTopK(candidates, logits, topK);
    checkedBest(logits, bestCandidate(candidates, logits));
    keepTypical(candidates, logits, typicalP);
    keepTopP(candidates, logits, topP);
    keepMinP(candidates, logits, minP);
    return drawCandidate(candidates, logits, temperature, this.#rng.uniform());
  }
}

/** Log-probabilities of the raw logits, which the chain then changes in place: hence the copy. */
class RawLogprobs {
  readonly #raw: Float32Array; // [vocab]
  readonly #best: Int32Array; // [alternatives]

  constructor(vocabSize: number, alternatives: number) {
    this.#raw = new Float32Array(vocabSize);
    this.#best = new Int32Array(Math.min(alternatives, vocabSize));
  }

  keep(logits: Float32Array): void {
    this.#raw.set(logits);
  }

  report(id: number): SampledToken {
    const raw = this.#raw;
    const max = raw[bestOfAll(raw)]!;
    let total = 0;
    for (let i = 0; i < raw.length; i++) total += Math.exp(raw[i]! - max);
    const logTotal = Math.log(total);

    const found = selectBestOfAll(raw, this.#best.length, this.#best);
    const top: SampledToken["top"] = [];
    for (let i = 0; i < found; i++) {
      const best = this.#best[i]!;
      top.push({ id: best, logprob: raw[best]! - max - logTotal });
    }
    return { id, logprob: raw[id]! - max - logTotal, top };
  }
}

/** The id of the best logit (or of one that is NaN, as select-best.ts finds it), if a token can be chosen from them. */
function checkedBest(logits: Float32Array, best: number): number {
  const logit = logits[best]!;
  if (Number.isFinite(logit)) return best;
  if (logit !== Number.NEGATIVE_INFINITY) throw badLogit(best, logit);
  throw new UsageError(
    "sampler: every token is forbidden: all logits are -Infinity. Loosen logitBias.",
  );
}

function badLogit(id: number, logit: number): NonsenseError {
  return new NonsenseError(
    `sampler: the logit of token ${id} is ${logit}, expected a number: the model computed nonsense ` +
      "(damaged weights or an overflow), or a penalty is extreme",
  );
}

// The sampler: chooses one token from the logits of a position, as llama.cpp does.
//
// First the mask of a grammar, if there is one (constraint.ts), then the logit bias; then the steps of `samplers` in order, by default:
//   penalties      repetition, frequency, presence (penalties.ts)
//   dry            repetitions of whole sequences (dry.ts)
//   top_n_sigma    forbids by the spread of the logits (sampler-logits.ts)
//   top_k, typ_p, top_p, min_p, xtc     each drops tokens (sampler-filters.ts)
//   temperature    fixed or by entropy (sampler-logits.ts)
// and last a draw with the seeded generator (rng.ts). Mirostat (mirostat.ts) replaces all steps but the temperature.
// Temperature 0 is greedy: the largest logit; of equal ones, the lowest id.
//
// Log-probabilities are the model's own: the softmax of the raw logits, before any step. All scratch memory is
// allocated once; a call allocates only its small result.

import type { BestLogits } from "../backends/backend.ts";
import { UsageError } from "../base/errors.ts";
import { bestOf, bestOfAll, selectBestOfAll } from "../base/select-best.ts";
import { show } from "../base/show.ts";
import type { AdjustedList } from "../graph/adjusted-list.ts";
import type { NextAdjustment, NextDraw } from "../graph/batch.ts";
import { certainly, drawnProbabilities } from "./drawn-probabilities.ts";
import { createDry, type Dry, type DryBreaker } from "./dry.ts";
import { Mirostat } from "./mirostat.ts";
import { NonFiniteError } from "./non-finite.ts";
import { createPenalties, type Penalties } from "./penalties.ts";
import { createRng, type ForeseenRng } from "./rng.ts";
import {
  bestCandidate,
  type Candidates,
  createCandidates,
  drawCandidate,
  dropTopChoices,
  forgetOrder,
  keepMinP,
  keepTopK,
  keepTopP,
  keepTypical,
  resetCandidates,
  takeBest,
} from "./sampler-filters.ts";
import { dynamicTemperature, forbidFarBelow, scaleLogits } from "./sampler-logits.ts";
import type { SamplerName } from "./sampler-names.ts";
import type { SampledToken, Sampler, SamplerSettings, TokenMask } from "./sampling.ts";

export { resolveSampling } from "./sampling-options.ts";

export interface SamplerReport {
  /** The tokens that break repetitions, for DRY, as found by dry-breakers.ts. */
  breakers?: readonly DryBreaker[] | undefined;
  /**
   * Log-probabilities of the chosen token and of this many best ones (0 = only the chosen);
   * undefined = none, which saves a pass over the vocabulary.
   */
  logprobs?: number | undefined;
  /** Whether log-probabilities are the draw's instead of the model's own. */
  drawn?: boolean | undefined;
}

export function createSampler(
  settings: SamplerSettings,
  vocabSize: number,
  report: SamplerReport = {},
): Sampler {
  const { logprobs } = report;
  if (logprobs !== undefined && !(Number.isSafeInteger(logprobs) && logprobs >= 0)) {
    throw new UsageError(
      `sampler: option "logprobs": got ${show(logprobs)}, expected a whole number of at least 0`,
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
  return new ChainSampler(settings, vocabSize, report);
}

/** The steps that a device can take before the host does. */
const foreseen: readonly SamplerName[] = ["penalties", "top_k", "top_p", "min_p"];

type Batch = (candidates: Candidates, logits: Float32Array) => void;

class ChainSampler implements Sampler {
  readonly seed: number;
  readonly best: number;
  readonly adjusts: boolean;
  readonly draw: NextDraw | undefined;
  readonly #settings: SamplerSettings;
  readonly #vocabSize: number;
  readonly #rng: ForeseenRng;
  readonly #penalties: Penalties | undefined;
  readonly #biasIds: Int32Array;
  readonly #biases: Float64Array;
  readonly #candidates: Candidates;
  readonly #logprobs: RawLogprobs | undefined;
  /** The number of alternatives of the draw to report; undefined: none. */
  readonly #drawn: number | undefined;
  readonly #dry: Dry | undefined;
  readonly #mirostat: Mirostat | undefined;
  readonly #steps: readonly SamplerName[];
  /** The temperature of the draw: if it is the last step, logits need not be changed. */
  readonly #lastTemperature: number;
  /** Whether the best logit is always chosen, with any filters. */
  readonly #isGreedy: boolean;

  constructor(
    settings: SamplerSettings,
    vocabSize: number,
    { logprobs, breakers = [], drawn = false }: SamplerReport,
  ) {
    this.seed = settings.seed;
    this.#settings = settings;
    this.#vocabSize = vocabSize;
    this.#rng = createRng(settings.seed);
    const usesSteps = settings.mirostat === 0;
    if (!usesSteps) this.#mirostat = new Mirostat(settings, vocabSize);
    const wanted: readonly SamplerName[] = usesSteps ? settings.samplers : ["temperature"];
    const endsFixed = wanted.at(-1) === "temperature" && isFixed(settings) && usesSteps;
    this.#lastTemperature = endsFixed ? settings.temperature : 1;
    this.#isGreedy = usesSteps && isGreedy(settings);
    if (wanted.includes("penalties")) this.#penalties = createPenalties(settings, vocabSize);
    if (wanted.includes("dry")) this.#dry = createDry(settings, vocabSize, breakers);
    const steps = endsFixed && !this.#isGreedy ? wanted.slice(0, -1) : wanted;
    this.#steps = steps.filter((step) => this.#isActive(step));
    this.#biasIds = Int32Array.from(settings.logitBias.keys());
    this.#biases = Float64Array.from(settings.logitBias.values());
    this.#candidates = createCandidates(vocabSize);
    this.adjusts = this.#biasIds.length > 0 || !!this.#penalties || !!this.#dry;
    this.best = logprobs === undefined && usesSteps ? this.#bestNeeded() : 0;
    this.draw = this.best > 0 ? this.#nextDraw() : undefined;
    if (drawn) this.#drawn = logprobs;
    else if (logprobs !== undefined) this.#logprobs = new RawLogprobs(vocabSize, logprobs);
  }

  sampleBest(best: BestLogits, logits: Float32Array): SampledToken {
    const id = this.adjusts ? this.#fromAdjusted(best, logits) : this.#fromBest(best, logits);
    return { id, logprob: Number.NaN, top: [] };
  }

  #fromBest({ ids, logits: values }: BestLogits, logits: Float32Array): number {
    const count = this.best;
    for (let i = 0; i < count; i++) logits[ids[i]!] = values[i]!;
    const best = checkedBest(logits, ids[0]!);
    if (this.#isGreedy) return best;
    // The candidates left after top-k, the first step.
    takeBest(this.#candidates, ids, count);
    return this.#drawFrom(logits, 1, true);
  }

  /** Takes the best of the unadjusted tokens and all adjusted ones: no other token can be among the best afterwards. */
  #fromAdjusted({ ids, logits: values, adjusted }: BestLogits, logits: Float32Array): number {
    let count = 0;
    for (; count < this.best && ids[count]! >= 0; count++) logits[ids[count]!] = values[count]!;
    const candidates = this.#candidates;
    takeBest(candidates, ids, count);
    for (let i = 0; i < adjusted!.count; i++) {
      const id = adjusted!.ids[i]!;
      logits[id] = adjusted!.logits[i]!;
      candidates.ids[candidates.count++] = id;
    }
    if (adjusted!.count > 0) forgetOrder(candidates);
    this.#addBiases(logits);
    const at = this.#adjust(logits);
    const best = checkedBest(logits, bestOf(logits, candidates.ids, candidates.count));
    return this.#isGreedy ? best : this.#drawFrom(logits, at, true);
  }

  listAdjusted(target: AdjustedList, draft: Int32Array, drafted: number): boolean {
    target.count = 0;
    if (!this.#listKnown(target, 0)) return false;
    if (this.#dry && (drafted > 0 || !this.#dry.list(target))) return false;
    if (!this.#penalties) return true;
    for (let i = 0; i < drafted; i++) {
      if (!target.has(draft[i]!) && !target.add(draft[i]!, 0, 0)) return false;
    }
    return true;
  }

  /** Lists tokens with a bias, and tokens that penalties change after this many further, unknown ones; false: there is no room. */
  #listKnown(target: AdjustedList, after: number): boolean {
    const { logitBias } = this.#settings;
    for (let i = 0; i < this.#biasIds.length; i++) {
      const id = this.#biasIds[i]!;
      const occurrences = this.#penalties?.occurrences(id, after) ?? 0;
      if (!target.add(id, occurrences, this.#biases[i]!)) return false;
    }
    return this.#penalties?.list(target, after, logitBias) ?? true;
  }

  sample(logits: Float32Array, mask?: TokenMask): SampledToken {
    if (logits.length !== this.#vocabSize) {
      throw new UsageError(
        `sampler: got ${logits.length} logits, expected ${this.#vocabSize}, the vocabulary size`,
      );
    }
    this.#logprobs?.keep(logits);
    mask?.forbid(logits);
    this.#addBiases(logits);
    const id = this.#isGreedy ? this.#best(logits) : this.#draw(logits);
    if (this.#drawn !== undefined) {
      if (this.#isGreedy) return certainly(id, this.#drawn);
      return drawnProbabilities(this.#candidates, id, this.#drawn);
    }
    return this.#logprobs?.report(id) ?? { id, logprob: Number.NaN, top: [] };
  }

  accept(id: number): void {
    if (!(Number.isSafeInteger(id) && id >= 0 && id < this.#vocabSize)) {
      throw new UsageError(
        `sampler: got token id ${id}, expected a whole number from 0 to ${this.#vocabSize - 1}`,
      );
    }
    this.#penalties?.accept(id);
    this.#dry?.accept(id);
  }

  skip(count: number): boolean {
    // Mirostat learns from each draw, and XTC draws only where there is a choice.
    if (this.#mirostat || this.#steps.includes("xtc")) return false;
    if (!this.#isGreedy) for (let i = 0; i < count; i++) this.#rng.uniform();
    return true;
  }

  #addBiases(logits: Float32Array): void {
    for (let i = 0; i < this.#biasIds.length; i++) logits[this.#biasIds[i]!]! += this.#biases[i]!;
  }

  /** No filter drops the best candidate, so only steps that change logits matter. */
  #best(logits: Float32Array): number {
    this.#adjust(logits);
    return checkedBest(logits, bestOfAll(logits));
  }

  /** Penalties and DRY before all steps that drop tokens (where the best is chosen, before the temperature). Returns the step after them. */
  #adjust(logits: Float32Array): number {
    let at = 0;
    for (; at < this.#steps.length; at++) {
      const step = this.#steps[at]!;
      if (step === "penalties") this.#penalties!.apply(logits);
      else if (step === "dry") this.#dry!.apply(logits);
      else if (!this.#isGreedy || step === "temperature") break;
    }
    return at;
  }

  #draw(logits: Float32Array): number {
    resetCandidates(this.#candidates);
    return this.#drawFrom(logits, 0, false);
  }

  /** Draws from the candidates, after the steps from this one on. */
  #drawFrom(logits: Float32Array, firstStep: number, isBestChecked: boolean): number {
    const candidates = this.#candidates;
    let isChecked = isBestChecked;
    for (let at = firstStep; at < this.#steps.length; at++) {
      const step = this.#steps[at]!;
      // After penalties and bias, and before any step that compares logits; top-k handles a NaN by itself.
      if (!isChecked && step !== "penalties" && step !== "dry" && step !== "top_k") {
        checkedBest(logits, bestCandidate(candidates, logits));
        isChecked = true;
      }
      this.#apply[step](candidates, logits);
    }
    if (!isChecked) checkedBest(logits, bestCandidate(candidates, logits));
    const uniform = this.#rng.uniform();
    if (this.#mirostat) return this.#mirostat.draw(candidates, logits, uniform);
    return drawCandidate(candidates, logits, this.#lastTemperature, uniform);
  }

  readonly #apply: Readonly<Record<SamplerName, Batch>> = {
    penalties: (candidates, logits) => {
      this.#penalties!.apply(logits);
      forgetOrder(candidates);
    },
    dry: (candidates, logits) => {
      this.#dry!.apply(logits);
      forgetOrder(candidates);
    },
    top_n_sigma: (candidates, logits) =>
      forbidFarBelow(candidates, logits, this.#settings.topNSigma),
    top_k: (candidates, logits) => keepTopK(candidates, logits, this.#settings.topK),
    typ_p: (candidates, logits) => keepTypical(candidates, logits, this.#settings.typicalP),
    top_p: (candidates, logits) => keepTopP(candidates, logits, this.#settings.topP),
    min_p: (candidates, logits) => keepMinP(candidates, logits, this.#settings.minP),
    xtc: (candidates, logits) => this.#excludeTop(candidates, logits),
    temperature: (candidates, logits) =>
      scaleLogits(candidates, logits, this.#temperature(candidates, logits)),
  };

  /** See Sampler.best: no filter may compare logits before top-k has kept some. */
  #bestNeeded(): number {
    if (this.#isGreedy) return 1;
    const { topK } = this.#settings;
    const first = this.#steps.find((step) => step !== "penalties" && step !== "dry");
    return first === "top_k" && topK < this.#vocabSize ? topK : 0;
  }

  /** See Sampler.draw: DRY, XTC and typical-p have no part in it, nor has a temperature that changes. */
  #nextDraw(): NextDraw | undefined {
    if (this.#dry) return undefined;
    const { temperature, topK, topP, minP } = this.#settings;
    const uniform = (after: number) => this.#rng.foresee(after);
    const adjustment = this.adjusts ? this.#nextAdjustment() : undefined;
    if (this.#isGreedy) return { temperature: 0, topK: 1, topP: 1, minP: 0, uniform, adjustment };
    const isUsual = this.#steps.every((step) => foreseen.includes(step));
    if (!isUsual || this.#lastTemperature !== temperature) return undefined;
    return { temperature, topK, topP, minP, uniform, adjustment };
  }

  #nextAdjustment(): NextAdjustment {
    const { repeatPenalty, frequencyPenalty, presencePenalty } = this.#settings;
    return {
      repeat: repeatPenalty,
      frequency: frequencyPenalty,
      presence: presencePenalty,
      window: this.#penalties?.window ?? 0,
      list: (after, target) => {
        target.count = 0;
        this.#listKnown(target, after);
      },
    };
  }

  /** Whether a step has an effect with these settings. */
  #isActive(step: SamplerName): boolean {
    const { topNSigma, topK, typicalP, topP, minP, xtcProbability, xtcThreshold } = this.#settings;
    const active: Readonly<Record<SamplerName, boolean>> = {
      penalties: this.#penalties !== undefined,
      dry: this.#dry !== undefined,
      top_n_sigma: topNSigma > 0,
      top_k: topK > 0,
      typ_p: typicalP < 1,
      top_p: topP < 1,
      min_p: minP > 0,
      xtc: xtcProbability > 0 && xtcThreshold <= 0.5,
      temperature: true,
    };
    return active[step];
  }

  #excludeTop(candidates: Candidates, logits: Float32Array): void {
    const { xtcProbability, xtcThreshold } = this.#settings;
    if (candidates.count < 2) return;
    if (this.#rng.uniform() > xtcProbability) return;
    dropTopChoices(candidates, logits, xtcThreshold);
  }

  #temperature(candidates: Candidates, logits: Float32Array): number {
    const { temperature, dynatempRange, dynatempExponent } = this.#settings;
    if (dynatempRange === 0 || this.#mirostat) return temperature;
    return dynamicTemperature(candidates, logits, temperature, dynatempRange, dynatempExponent);
  }
}

/** Whether the temperature is the same for every token. */
function isFixed({ temperature, dynatempRange }: SamplerSettings): boolean {
  return dynatempRange === 0 && temperature > 0;
}

/** Temperature 0, and no step before it that may drop the best candidate. */
function isGreedy(settings: SamplerSettings): boolean {
  const { temperature, dynatempRange, xtcProbability, typicalP, samplers } = settings;
  if (temperature !== 0 || dynatempRange !== 0 || !samplers.includes("temperature")) return false;
  const dropsBest =
    (xtcProbability > 0 && samplers.includes("xtc")) ||
    (typicalP < 1 && samplers.includes("typ_p"));
  return !dropsBest;
}

/** Log-probabilities of the raw logits. It keeps a copy, because the sampler changes logits in place. */
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

/** The id of the best logit (or of a NaN, as select-best.ts finds it); throws if no token can be chosen. */
function checkedBest(logits: Float32Array, best: number): number {
  const logit = logits[best]!;
  if (Number.isFinite(logit)) return best;
  if (logit !== Number.NEGATIVE_INFINITY) throw badLogit(best, logit);
  throw new UsageError(
    "sampler: no token is allowed, because all logits are -Infinity, expected one that is finite. " +
      "Allow some in logitBias, also of those that a grammar allows; without either, the model's weights are damaged: download it again",
  );
}

function badLogit(id: number, logit: number): NonFiniteError {
  return new NonFiniteError(
    `sampler: the logit of token ${id} is ${logit}, expected a number: the model computed nonsense ` +
      "(damaged weights or an overflow), or a penalty is extreme",
  );
}

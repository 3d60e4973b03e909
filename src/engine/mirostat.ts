// Mirostat (Basu et al. 2020): keeps the surprise of the text near a target, tau, by adjusting after each token how
// unlikely the next one may be. Version 1 estimates how steeply probabilities fall and derives k of a top-k; version 2
// drops every token whose surprise is above a bound. As in llama.cpp; surprises are in bits.

import { selectBest } from "../base/select-best.ts";
import {
  bestCandidate,
  type Candidates,
  drawCandidate,
  keepBest,
  keepTopK,
  keepWhere,
  sumOfWeights,
} from "./sampler-filters.ts";
import type { SamplerSettings } from "./sampling.ts";

/** Number of tokens from which version 1 estimates the slope. */
const SLOPE_TOKENS = 100;

export class Mirostat {
  readonly #settings: SamplerSettings;
  readonly #vocabSize: number;
  readonly #best: Int32Array = new Int32Array(SLOPE_TOKENS);
  #mu: number;

  constructor(settings: SamplerSettings, vocabSize: number) {
    this.#settings = settings;
    this.#vocabSize = vocabSize;
    this.#mu = 2 * settings.mirostatTau;
  }

  /** The current bound on surprise. */
  get bound(): number {
    return this.#mu;
  }

  draw(candidates: Candidates, logits: Float32Array, uniform: number): number {
    this.cut(candidates, logits);
    const id = drawCandidate(candidates, logits, 1, uniform);
    this.observe(candidates.drawnProbability);
    return id;
  }

  /** Call when a token of this probability was chosen. */
  observe(probability: number): void {
    const { mirostatTau, mirostatEta } = this.#settings;
    this.#mu -= mirostatEta * (-Math.log2(probability) - mirostatTau);
  }

  /** Drops tokens that are too surprising. */
  cut(candidates: Candidates, logits: Float32Array): void {
    if (this.#settings.mirostat === 1) {
      keepTopK(candidates, logits, this.#estimatedK(candidates, logits));
      return;
    }
    const best = logits[bestCandidate(candidates, logits)]!;
    // -log2(p) <= mu, in logits; the best one always stays.
    const logTotal = Math.log(sumOfWeights(candidates, logits));
    const lowest = best + logTotal - this.#mu * Math.LN2;
    if (lowest > best) keepBest(candidates, logits);
    else keepWhere(candidates, logits, lowest);
  }

  #estimatedK(candidates: Candidates, logits: Float32Array): number {
    const { ids, count } = candidates;
    const found = selectBest(logits, ids, count, SLOPE_TOKENS, this.#best);
    let products = 0;
    let squares = 0;
    for (let i = 0; i + 1 < found; i++) {
      const t = Math.log((i + 2) / (i + 1));
      const b = logits[this.#best[i]!]! - logits[this.#best[i + 1]!]!;
      if (!Number.isFinite(b)) break; // the rest is forbidden
      products += t * b;
      squares += t * t;
    }
    const slope = products / squares;
    const epsilon = slope - 1;
    const k = ((epsilon * 2 ** this.#mu) / (1 - this.#vocabSize ** -epsilon)) ** (1 / slope);
    if (Number.isNaN(k)) return 1;
    return Math.max(1, Math.floor(Math.min(k, count)));
  }
}

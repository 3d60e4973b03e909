// How often a drafter was right lately, for each class of its proposals: a moving average that starts from a prior.

/** Each observation counts so much less than the one after it: about the last 30 count. */
const DECAY = 31 / 32;
/** The prior counts as so many observations. */
const PRIOR_WEIGHT = 2;

export class Acceptance {
  readonly #priors: readonly number[]; // [classes]
  readonly #right: Float64Array; // [classes]
  readonly #all: Float64Array; // [classes]

  /** The probability to begin with, for each class. */
  constructor(priors: readonly number[]) {
    this.#priors = priors;
    this.#right = new Float64Array(priors.length);
    this.#all = new Float64Array(priors.length);
  }

  note(which: number, isRight: boolean): void {
    this.#right[which] = this.#right[which]! * DECAY + (isRight ? 1 : 0);
    this.#all[which] = this.#all[which]! * DECAY + 1;
  }

  /** The probability that a proposal of this class is right. */
  of(which: number): number {
    const prior = this.#priors[which]! * PRIOR_WEIGHT;
    return (this.#right[which]! + prior) / (this.#all[which]! + PRIOR_WEIGHT);
  }
}

// A drafter's recent acceptance by class of its proposals: a moving average for each class, from the least promising to the most. A
// class with few observations counts as somewhat better than the one below; so evidence about short matches also lowers the
// expectation of long ones.

export interface AcceptanceOptions {
  readonly classes: number;
  /** Expected of the least promising class before anything was seen. */
  readonly first: number;
  /** The approximate number of latest observations that count. */
  readonly memory: number;
  /** Observations in other texts: the expectation before this text has any. */
  readonly before?: Acceptance;
}

/** The weight of the expectation, in observations. */
const EXPECTED_WEIGHT = 4;
/** The share of the class below's errors that the next class is expected to make. */
const STILL_WRONG = 0.7;

export class Acceptance {
  readonly #options: AcceptanceOptions;
  readonly #right: Float64Array; // [classes]
  readonly #all: Float64Array; // [classes]
  /** The present estimates: computed when something was noted. */
  readonly #chances: Float64Array; // [classes]

  constructor(options: AcceptanceOptions) {
    this.#options = options;
    this.#right = new Float64Array(options.classes);
    this.#all = new Float64Array(options.classes);
    this.#chances = new Float64Array(options.classes);
    this.#estimate(0);
  }

  note(which: number, isRight: boolean): void {
    const kept = 1 - 1 / this.#options.memory;
    this.#right[which] = this.#right[which]! * kept + (isRight ? 1 : 0);
    this.#all[which] = this.#all[which]! * kept + 1;
    this.#estimate(which);
  }

  /** The probability that a proposal of this class is right. */
  of(which: number): number {
    return this.#chances[which]!;
  }

  /** Lower classes do not change. */
  #estimate(from: number): void {
    const { first, before } = this.#options;
    for (let which = from; which < this.#chances.length; which++) {
      const below = which === 0 ? first : 1 - STILL_WRONG * (1 - this.#chances[which - 1]!);
      const expected = before?.of(which) ?? below;
      const right = this.#right[which]! + EXPECTED_WEIGHT * expected;
      this.#chances[which] = right / (this.#all[which]! + EXPECTED_WEIGHT);
    }
  }
}

// Decides whether experts of the next layer are read ahead: the routes of a layer are guessed from the input of the router of the
// layer before (ops/disk-ahead.ts), and guessed experts that are not in memory are read while this layer is computed. A wrong guess
// reads for nothing and drops an expert, so it is tried: tokens alternate between both ways; then the faster one is used for a while,
// and the trial repeats. Texts are the same for any order of reads.
//
// Called by one thread at a time, for batches of one token; the state is in shared memory, since the thread may be another each time.

import { type AheadMode, DEMAND_NUMBER } from "./demand.ts";

/** Tokens of a turn, turns of a trial (with and without alternate), and tokens until the next trial. */
const TURN = 8;
const TURNS = 6;
const KEEP = 512;
/** It has to save this part of the time. */
const LEAST_GAIN = 0.02;

export class ReadAhead {
  readonly #mode: AheadMode;
  readonly #numbers: Float64Array;
  readonly #now: () => number;

  constructor(mode: AheadMode, numbers: Float64Array, now: () => number = () => performance.now()) {
    this.#mode = mode;
    this.#numbers = numbers;
    this.#now = now;
  }

  /** Whether this batch guesses. */
  get isOn(): boolean {
    return this.#numbers[DEMAND_NUMBER.isAhead] === 1;
  }

  /** At the first layer of a batch with experts; `rows`: its tokens. */
  begin(rows: number): void {
    const numbers = this.#numbers;
    const token = numbers[DEMAND_NUMBER.token]!;
    const isTrial = token < TURN * TURNS;
    const wins = numbers[DEMAND_NUMBER.aheadWins] === 1;
    const isOn = isTrial ? Math.floor(token / TURN) % 2 === 1 : wins;
    const measured = this.#mode === "measured" ? isOn : this.#mode === "always";
    numbers[DEMAND_NUMBER.isAhead] = measured && rows === 1 ? 1 : 0;
    numbers[DEMAND_NUMBER.since] = this.#now();
  }

  /** At the last layer of a batch. */
  end(rows: number): void {
    if (rows !== 1 || this.#mode !== "measured") return;
    const numbers = this.#numbers;
    const token = numbers[DEMAND_NUMBER.token]!;
    // The first token of a trial finds the slots as the trial before has left them.
    if (token < TURN * TURNS && token % TURN > 0) {
      const sum = this.isOn ? DEMAND_NUMBER.withMs : DEMAND_NUMBER.withoutMs;
      numbers[sum]! += this.#now() - numbers[DEMAND_NUMBER.since]!;
    }
    numbers[DEMAND_NUMBER.token] = token + 1;
    if (token + 1 === TURN * TURNS) {
      const limit = numbers[DEMAND_NUMBER.withoutMs]! * (1 - LEAST_GAIN);
      numbers[DEMAND_NUMBER.aheadWins] = numbers[DEMAND_NUMBER.withMs]! < limit ? 1 : 0;
    }
    if (token + 1 < KEEP) return;
    for (const each of [DEMAND_NUMBER.token, DEMAND_NUMBER.withMs, DEMAND_NUMBER.withoutMs]) {
      numbers[each] = 0;
    }
  }
}

// The queue of token masks: which mask is computed next, and for how long. The engine's thread computes the batches of all generations,
// so no mask may occupy it for long.
//
// Most masks are there in a fraction of a millisecond: they are computed in a slice while the model computes the last token. An
// unfinished mask then waits in the queue, apart from the batches of others: one slice in each turn of the event loop, fewest slices
// first.

import { PausedError } from "../grammar/meter.ts";

/** Steps, each about a microsecond. */
const SLICE = 2000;
/** A mask that makes no progress in a slice needs a longer one. */
const LONGEST_SLICE = 32_000;
/** All slices while one batch is computed. */
const BATCH = 6000;

/** Throws a PausedError if the slice was too short; called again, it continues. */
export type SlicedWork = (slice: number) => void;

/** The calls that a waiting generation makes on its thread. */
export interface TurnControl {
  readonly aborted: boolean;
  yieldThread(): Promise<void>;
}

interface Waiting {
  slices: number;
  readonly resume: () => void;
}

export class GrammarTurns {
  #left = BATCH;
  readonly #waiting: Waiting[] = [];
  #isServing = false;

  /** A batch was computed: work during the next one is counted from zero. */
  readonly afterBatch = (): void => {
    this.#left = BATCH;
  };

  /** Does the work if a slice is enough for it, and there is one. */
  atOnce(work: SlicedWork): boolean {
    if (this.#left <= 0) return false;
    this.#left -= SLICE;
    if (tried(work, SLICE)) return false;
    this.#left += SLICE; // hardly any of it was needed
    return true;
  }

  /** Does the work in as many slices as it needs; gives it up where the generation is aborted. */
  async finish(work: SlicedWork, control: TurnControl): Promise<void> {
    let slice = SLICE;
    for (let slices = 0; !control.aborted; slices++) {
      await this.#turn(slices, control);
      const paused = tried(work, slice);
      if (!paused) return;
      slice = paused.gotFurther ? SLICE : Math.min(2 * slice, LONGEST_SLICE);
    }
  }

  async #turn(slices: number, control: TurnControl): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push({ slices, resume: resolve });
    if (!this.#isServing) void this.#serve(control);
    await promise;
  }

  /** One slice after the other, each in its own turn of the event loop. */
  async #serve({ yieldThread }: TurnControl): Promise<void> {
    this.#isServing = true;
    while (this.#waiting.length > 0) {
      await yieldThread();
      let next = 0;
      for (const [i, { slices }] of this.#waiting.entries()) {
        if (slices < this.#waiting[next]!.slices) next = i;
      }
      this.#waiting.splice(next, 1)[0]!.resume();
    }
    this.#isServing = false;
  }
}

/** undefined: it is done. */
function tried(work: SlicedWork, slice: number): PausedError | undefined {
  try {
    work(slice);
    return undefined;
  } catch (error) {
    if (error instanceof PausedError) return error;
    throw error;
  }
}

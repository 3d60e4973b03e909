// Whose mask is worked on, and for how long: the engine's thread computes everybody's batches, so that no mask may keep it for long.
//
// Most masks are there in a fraction of a millisecond: they are computed in a slice while the model computes the last token. What is not
// done then waits in line, apart from the batches of others: one slice in each turn of the event loop, for those first who have had the
// fewest.

import { PausedError } from "../grammar/meter.ts";

/** Steps, each about a microsecond. */
const SLICE = 2000;
/** What has to be begun again in every slice needs a longer one. */
const LONGEST_SLICE = 32_000;
/** All slices while one batch is computed. */
const BATCH = 6000;

/** Throws a PausedError where the slice was too short; called again, it goes on. */
export type SlicedWork = (slice: number) => void;

/** What a generation that waits needs of its thread. */
export interface TurnControl {
  readonly aborted: boolean;
  breathe(): Promise<void>;
}

interface Waiting {
  slices: number;
  readonly resume: () => void;
}

export class GrammarTurns {
  #left = BATCH;
  readonly #waiting: Waiting[] = [];
  #isServing = false;

  /** A batch was computed: what is done during the next one counts anew. */
  readonly afterBatch = (): void => {
    this.#left = BATCH;
  };

  /** Does the work if a slice is enough for it, and there is one. */
  atOnce(work: SlicedWork): boolean {
    if (this.#left <= 0) return false;
    this.#left -= SLICE;
    if (!isDone(work, SLICE)) return false;
    this.#left += SLICE; // hardly any of it was needed
    return true;
  }

  /** Does the work in as many slices as it needs; gives it up where the generation is aborted. */
  async finish(work: SlicedWork, control: TurnControl): Promise<void> {
    for (let slices = 0; !control.aborted; slices++) {
      await this.#turn(slices, control);
      if (isDone(work, Math.min(SLICE << Math.min(slices, 10), LONGEST_SLICE))) return;
    }
  }

  async #turn(slices: number, control: TurnControl): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push({ slices, resume: resolve });
    if (!this.#isServing) void this.#serve(control);
    await promise;
  }

  /** One after the other, each in a turn of the event loop of its own. */
  async #serve({ breathe }: TurnControl): Promise<void> {
    this.#isServing = true;
    while (this.#waiting.length > 0) {
      await breathe();
      let next = 0;
      for (const [i, { slices }] of this.#waiting.entries()) {
        if (slices < this.#waiting[next]!.slices) next = i;
      }
      this.#waiting.splice(next, 1)[0]!.resume();
    }
    this.#isServing = false;
  }
}

function isDone(work: SlicedWork, slice: number): boolean {
  try {
    work(slice);
    return true;
  } catch (error) {
    if (error instanceof PausedError) return false;
    throw error;
  }
}

// How much of JavaScript's heap the engine's thread takes per step: what the decode loop allocates besides tensors, of
// which it allocates none. The heap is looked at once a step. A step in which it shrank, because garbage was collected,
// says nothing and does not count.

import type { StepPhase } from "../backends/backend.ts";

export class HeapWatch {
  readonly #used: () => number | undefined;
  /** What a look itself takes: the object that it is told in. */
  readonly #ownBytes: number;
  readonly #totals: Readonly<Record<StepPhase, { bytes: number; steps: number }>> = {
    prompt: { bytes: 0, steps: 0 },
    generation: { bytes: 0, steps: 0 },
  };
  #last: number | undefined;

  /** `used` is undefined where the platform does not say. */
  constructor(used: () => number | undefined) {
    this.#used = used;
    const looks = Array.from({ length: 8 }, () => used() ?? 0);
    const grown = looks.slice(1).map((bytes, i) => bytes - looks[i]!);
    this.#ownBytes = grown.filter((bytes) => bytes >= 0).sort((a, b) => a - b)[0] ?? 0;
  }

  /** A step is over: what was allocated since the last one, whatever for, is its. */
  step(phase: StepPhase): void {
    const used = this.#used();
    const total = this.#totals[phase];
    if (used !== undefined && this.#last !== undefined && used >= this.#last) {
      total.bytes += Math.max(0, used - this.#last - this.#ownBytes);
      total.steps++;
    }
    this.#last = used;
  }

  /** What comes now belongs to no step: others may have allocated since the last one. */
  pause(): void {
    this.#last = undefined;
  }

  reset(): void {
    for (const total of Object.values(this.#totals)) Object.assign(total, { bytes: 0, steps: 0 });
    this.pause();
  }

  /** undefined: not known. */
  bytesPerStep(phase: StepPhase): number | undefined {
    const { bytes, steps } = this.#totals[phase];
    return steps === 0 ? undefined : bytes / steps;
  }
}

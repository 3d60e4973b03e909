// How much of JavaScript's heap the engine's thread takes per batch: what the decode loop allocates besides tensors, of
// which it allocates none. The heap is looked at once a batch. A batch in which it shrank, because garbage was collected,
// says nothing and does not count.

import type { BatchPhase } from "../backends/backend.ts";

export class HeapWatch {
  readonly #used: () => number | undefined;
  /** What a look itself takes: the object that it is told in. */
  readonly #ownBytes: number;
  readonly #totals: Readonly<Record<BatchPhase, { bytes: number; batches: number }>> = {
    prompt: { bytes: 0, batches: 0 },
    generation: { bytes: 0, batches: 0 },
  };
  #last: number | undefined;

  /** `used` is undefined where the platform does not say. */
  constructor(used: () => number | undefined) {
    this.#used = used;
    const looks = Array.from({ length: 8 }, () => used() ?? 0);
    const grown = looks.slice(1).map((bytes, i) => bytes - looks[i]!);
    this.#ownBytes = grown.filter((bytes) => bytes >= 0).sort((a, b) => a - b)[0] ?? 0;
  }

  /** A batch is over: what was allocated since the last one, whatever for, is its. */
  batch(phase: BatchPhase): void {
    const used = this.#used();
    const total = this.#totals[phase];
    if (used !== undefined && this.#last !== undefined && used >= this.#last) {
      total.bytes += Math.max(0, used - this.#last - this.#ownBytes);
      total.batches++;
    }
    this.#last = used;
  }

  /** What comes now belongs to no batch: others may have allocated since the last one. */
  pause(): void {
    this.#last = undefined;
  }

  reset(): void {
    for (const total of Object.values(this.#totals)) Object.assign(total, { bytes: 0, batches: 0 });
    this.pause();
  }

  /** undefined: not known. */
  bytesPerBatch(phase: BatchPhase): number | undefined {
    const { bytes, batches } = this.#totals[phase];
    return batches === 0 ? undefined : bytes / batches;
  }
}

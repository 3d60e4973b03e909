// Measures the JavaScript heap that the engine's thread allocates per batch, besides tensors, of which the decode loop
// allocates none. The heap size is read once per batch. A batch in which it shrank (a garbage collection) is not
// counted.

import type { BatchPhase } from "../backends/backend.ts";

export class HeapWatch {
  readonly #used: () => number | undefined;
  /** Bytes that a reading of the heap size allocates itself. */
  readonly #ownBytes: number;
  readonly #totals: Readonly<Record<BatchPhase, { bytes: number; batches: number }>> = {
    prompt: { bytes: 0, batches: 0 },
    generation: { bytes: 0, batches: 0 },
  };
  #last: number | undefined;

  /** `used` returns undefined if the platform does not report it. */
  constructor(used: () => number | undefined) {
    this.#used = used;
    const looks = Array.from({ length: 8 }, () => used() ?? 0);
    const grown = looks.slice(1).map((bytes, i) => bytes - looks[i]!);
    this.#ownBytes = grown.filter((bytes) => bytes >= 0).sort((a, b) => a - b)[0] ?? 0;
  }

  /** Ends a batch: everything allocated since the last one counts for it. */
  batch(phase: BatchPhase): void {
    const used = this.#used();
    const total = this.#totals[phase];
    if (used !== undefined && this.#last !== undefined && used >= this.#last) {
      total.bytes += Math.max(0, used - this.#last - this.#ownBytes);
      total.batches++;
    }
    this.#last = used;
  }

  /** Allocations until the next batch() are not counted: others may use the thread meanwhile. */
  pause(): void {
    this.#last = undefined;
  }

  reset(): void {
    for (const total of Object.values(this.#totals)) Object.assign(total, { bytes: 0, batches: 0 });
    this.pause();
  }

  /** undefined if not known. */
  bytesPerBatch(phase: BatchPhase): number | undefined {
    const { bytes, batches } = this.#totals[phase];
    return batches === 0 ? undefined : bytes / batches;
  }
}

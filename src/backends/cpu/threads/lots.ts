// The chunks of several matmuls that are shared out as one lot (stages.ts): whose they are, and in which order. Each thread
// has its run of every matmul (executor.ts), and takes the largest chunks of all of them first. What is left when threads
// begin to wait for each other is small then; one matmul after the other would have a large one near the end.

import type { Executor } from "../executor.ts";

/** An entry that stands for no chunk: all runs are as long as the longest. */
export const NO_CHUNK = -1;

/** Whose chunk it is, and which: at most 65535 (executor.ts). */
export function partOf(code: number): number {
  return code >> 16;
}

export function chunkOf(code: number): number {
  return code & 0xffff;
}

interface Piece {
  readonly code: number;
  readonly weight: number;
}

/** The runs of all threads, one behind the other: codes of entries, or NO_CHUNK. `counts`: chunks of each part now. */
export function planLot(
  parts: readonly Executor[],
  counts: readonly number[],
  threads: number,
): Int32Array<ArrayBuffer> {
  const runs = Array.from({ length: threads }, (): Piece[] => []);
  const load = (run: readonly Piece[]) => run.reduce((sum, { weight }) => sum + weight, 0);
  parts.forEach((part, index) => {
    const count = counts[index]!;
    for (let chunk = 0; chunk < count; chunk++) {
      const weight = part.weight?.(chunk) ?? 1;
      // What does not go round is for those who have least.
      const run =
        count >= threads
          ? runs[Math.floor((chunk * threads) / count)]!
          : runs.reduce((least, other) => (load(other) < load(least) ? other : least));
      run.push({ code: (index << 16) | chunk, weight });
    }
  });
  const length = Math.max(...runs.map((run) => run.length));
  const codes = new Int32Array(threads * length).fill(NO_CHUNK);
  runs.forEach((run, thread) => {
    const largestFirst = run.toSorted((a, b) => b.weight - a.weight);
    codes.set(
      largestFirst.map(({ code }) => code),
      thread * length,
    );
  });
  return codes;
}

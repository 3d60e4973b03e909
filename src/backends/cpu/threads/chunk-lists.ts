// The chunks of several matmuls that form one stage (stages.ts): whose they are, and in which order. Each thread
// has a list of chunks of every matmul (executor.ts), and takes the largest chunks of all of them first. What is left when threads
// begin to wait for each other is small then; one matmul after the other would have a large one near the end.

import type { Executor } from "../executor.ts";

/** An entry that stands for no chunk: all lists are as long as the longest. */
export const NO_CHUNK = -1;

/** Whose chunk it is, and which: at most 65535 (executor.ts). */
export function partOf(code: number): number {
  return code >> 16;
}

export function chunkOf(code: number): number {
  return code & 0xffff;
}

interface Chunk {
  readonly code: number;
  readonly weight: number;
}

/** The lists of all threads, one behind the other: codes of entries, or NO_CHUNK. `counts`: chunks of each part now. */
export function planChunks(
  parts: readonly Executor[],
  counts: readonly number[],
  threads: number,
): Int32Array<ArrayBuffer> {
  const lists = Array.from({ length: threads }, (): Chunk[] => []);
  const load = (list: readonly Chunk[]) => list.reduce((sum, { weight }) => sum + weight, 0);
  parts.forEach((part, index) => {
    const count = counts[index]!;
    for (let chunk = 0; chunk < count; chunk++) {
      const weight = part.weight?.(chunk) ?? 1;
      // Leftover chunks go to the threads with the fewest.
      const list =
        count >= threads
          ? lists[Math.floor((chunk * threads) / count)]!
          : lists.reduce((least, other) => (load(other) < load(least) ? other : least));
      list.push({ code: (index << 16) | chunk, weight });
    }
  });
  const length = Math.max(...lists.map((list) => list.length));
  const codes = new Int32Array(threads * length).fill(NO_CHUNK);
  lists.forEach((list, thread) => {
    const largestFirst = list.toSorted((a, b) => b.weight - a.weight);
    codes.set(
      largestFirst.map(({ code }) => code),
      thread * length,
    );
  });
  return codes;
}

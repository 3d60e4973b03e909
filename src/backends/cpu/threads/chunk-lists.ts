// The order of the chunks of several matmuls in one stage (stages.ts), and the thread of each. A thread has chunks of every
// matmul (executor.ts), and takes the largest first. So small chunks are left when threads begin to wait for each other; one
// matmul after the other would have a large chunk near the end.

import type { Executor } from "../executor.ts";

/** Padding: all lists are as long as the longest. */
export const NO_CHUNK = -1;

/** The part of an entry. chunkOf() is its chunk, at most 65535 (executor.ts). */
export function partOf(entry: number): number {
  return entry >> 16;
}

export function chunkOf(entry: number): number {
  return entry & 0xffff;
}

interface Chunk {
  readonly entry: number;
  readonly weight: number;
}

/** The lists of all threads, one after the other: entries, or NO_CHUNK. `counts`: the chunks of each part in this batch. */
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
      list.push({ entry: (index << 16) | chunk, weight });
    }
  });
  const length = Math.max(...lists.map((list) => list.length));
  const codes = new Int32Array(threads * length).fill(NO_CHUNK);
  lists.forEach((list, thread) => {
    const largestFirst = list.toSorted((a, b) => b.weight - a.weight);
    codes.set(
      largestFirst.map(({ entry }) => entry),
      thread * length,
    );
  });
  return codes;
}

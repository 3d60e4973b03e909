// The default prefetch distance (knob `ahead`, kernels/knobs.ts) of kernels that walk over weights once. Each stream is ahead
// by this much, so the bytes in flight are distance times streams, and a core has room for 4 to 8 KiB of them.
//
// One token, one thread, weights in memory in pieces of 3 MB, vectors of 64 bytes, Sapphire Rapids, lower quartiles of 120
// alternating rounds, GB/s of packed weights (a busy machine: the same variant twice differs by 1 %):
//
//   bytes ahead        0    512   1024   2048   4096   8192
//   Q4_0, 1 stream  10.0   10.7   11.4   12.9   14.5   14.8
//   Q4_0, 2         12.8   14.2   15.6   16.6   17.4   17.6
//   Q4_0, 4         14.8   16.0   16.7   16.3   16.5   15.9
//   Q4_0, 8         16.1   17.8   17.7   17.1   16.8   16.3
//   Q8_0, 8         19.2   20.2   20.1   19.9   19.0   18.4
//   Q6_K, 8                17.0   15.7   15.5

export const CACHE_LINE = 64;

const byStreams: Readonly<Record<number, number>> = { 1: 4096, 2: 4096, 4: 1024, 8: 512 };

/** Narrow vectors and other numbers of streams were not measured. */
export function usualAhead(width: number, streams: number): number {
  return width > 16 ? (byStreams[streams] ?? 1024) : 0;
}

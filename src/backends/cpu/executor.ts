// An executor: one instruction of a program on one thread. It says how many chunks the instruction has in this batch and
// does any one of them. Here are its interface and what all kinds share; ops/ has the kinds.

import { countOf } from "../../graph/batch.ts";
import type { Rows } from "../../graph/graph.ts";
import type { ArenaViews } from "./memory/arena.ts";
import type { ProgramFrame } from "./program.ts";

/** The kernels, by name. */
export type Kernels = Readonly<Record<string, (...args: number[]) => void>>;

export interface ExecutorContext {
  readonly program: ProgramFrame;
  readonly kernels: Kernels;
  readonly views: ArenaViews;
  /** This thread's number; 0 is the leader. */
  readonly thread: number;
  /** The leader's own instructions; absent on other threads. */
  readonly leader: readonly (() => void)[] | undefined;
}

export interface Executor {
  /** Chunks in this batch; the same on every thread. At most 65535. */
  chunks(): number;
  run(chunk: number): void;
  /** How much work a chunk is, beside others of the same stage. Optional: all are alike. */
  weight?(chunk: number): number;
  /** Only the leader can run it. */
  readonly leaderOnly?: boolean;
  /** The same row by row, where a row needs nothing of another: for stages.ts. */
  readonly row?: { count(): number; run(row: number): void };
}

/**
 * How much of a thread's run is behind each of its chunks. Large pieces stream best, and what is left at the end, when threads
 * wait for each other, is small. But the more threads, the more often the system takes one away in the middle of a chunk, and
 * all others wait for it: then none is larger than a quarter.
 */
const fewThreads = { most: 4, shares: [0.5, 0.75, 0.875, 0.9375, 1] } as const;
const manyShares: readonly number[] = [0.25, 0.5, 0.75, 0.875, 0.9375, 1];

export function rowCount({ program, views }: ExecutorContext, rows: Rows): number {
  return views.i32[program.batch.counts / 4 + countOf[rows]]!;
}

export function perRow(c: ExecutorContext, rows: Rows, run: (row: number) => void): Executor {
  const count = () => rowCount(c, rows);
  return { chunks: count, run, row: { count, run } };
}

/** Where the chunks of `total` items begin, and where the last one ends: those of each thread's run. */
export function chunkBounds(total: number, threads: number): readonly number[] {
  const shares = threads > fewThreads.most ? manyShares : fewThreads.shares;
  const bounds = [0];
  for (let thread = 0; thread < threads; thread++) {
    for (const share of shares) {
      const at = Math.round(((thread + share) * total) / threads);
      if (at > bounds.at(-1)!) bounds.push(at);
    }
  }
  return bounds;
}

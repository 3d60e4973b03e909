// An executor runs one instruction of a program on one thread: it gives the number of the instruction's chunks in this batch,
// and runs any of them. This file has the interface and the code that executors share; ops/ implements them.

import { countOf } from "../../graph/batch.ts";
import type { Rows } from "../../graph/graph.ts";
import { BLOCK_COLS } from "../../kernels/ops/packed/packed.ts";
import type { ArenaViews } from "./memory/arena.ts";
import type { Memories } from "./memory/memories.ts";
import type { ProgramFrame } from "./program.ts";

/** The kernels, by name. */
export type Kernels = Readonly<Record<string, (...args: number[]) => void>>;

export interface ExecutorContext {
  readonly program: ProgramFrame;
  readonly kernels: Kernels;
  readonly views: ArenaViews;
  /** The memories that addresses of row panels refer to; all other addresses are offsets in `views`. */
  readonly memories: Memories;
  /** This thread's number; 0 is the leader. */
  readonly thread: number;
  /** Nodes that only the leader computes; undefined on other threads. */
  readonly leader: readonly (() => void)[] | undefined;
}

/** A chunk cannot be computed, and the leader knows why: the batch fails, and nothing is printed. */
export class ChunkUnavailable extends Error {}

export interface Executor {
  /** Chunks in this batch; the same on every thread. At most 65535. */
  chunks(): number;
  run(chunk: number): void;
  /** The work of a chunk, relative to others of the same stage. Optional: all chunks are alike. */
  weight?(chunk: number): number;
  /** Only the leader can run it. */
  readonly leaderOnly?: boolean;
  /** The team stops before it, until the leader continues. */
  readonly pauses?: boolean;
  /** The same row by row, where rows are independent: for stages.ts. */
  readonly row?: { count(): number; run(row: number): void };
  /** The same for columns from..to of all rows, whole blocks of 32: for column-stages.ts. */
  readonly columns?: { count(): number; run(from: number, to: number): void };
}

/**
 * The share of a thread's items that is done after each of its chunks. The first chunks are large, since large pieces stream best;
 * the last are small, since threads wait for each other at the end. With more threads, the system more often suspends one in
 * the middle of a chunk while all others wait, so no chunk is larger than a quarter.
 */
const fewThreads = { most: 4, shares: [0.5, 0.75, 0.875, 0.9375, 1] } as const;
const manyShares: readonly number[] = [0.25, 0.5, 0.75, 0.875, 0.9375, 1];

export function rowCount({ program, views }: ExecutorContext, rows: Rows): number {
  return views.i32[program.batch.counts / 4 + countOf(rows)]!;
}

export function perRow(c: ExecutorContext, rows: Rows, run: (row: number) => void): Executor {
  const count = () => rowCount(c, rows);
  return { chunks: count, run, row: { count, run } };
}

/** The bounds of the chunks of `total` items, thread by thread. */
export function chunkBounds(total: number, threads: number): readonly number[] {
  return boundsOf(total, threads, threads > fewThreads.most ? manyShares : fewThreads.shares);
}

function boundsOf(total: number, threads: number, shares: readonly number[]): number[] {
  const bounds = [0];
  for (let thread = 0; thread < threads; thread++) {
    for (const share of shares) {
      const at = Math.round(((thread + share) * total) / threads);
      if (at > bounds.at(-1)!) bounds.push(at);
    }
  }
  return bounds;
}

/** The share of a thread's columns that is done after each of its chunks: each chunk begins several streams from memory. */
const columnShares = [0.75, 1] as const;

/** The bounds of the chunks of `cols` columns, in whole blocks of 32 (column-stages.ts). */
export function columnBounds(cols: number, threads: number): readonly number[] {
  const blocks = cols / BLOCK_COLS;
  if (threads === 1) return [0, cols];
  const bounds = boundsOf(blocks, threads, columnShares);
  return bounds.map((bound) => bound * BLOCK_COLS);
}

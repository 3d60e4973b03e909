// An executor: one instruction of a program on one thread. It says how many chunks the instruction has in this step and
// does any one of them. Here are its interface and what all kinds share; executors.ts has the table of kinds.

import type { ArenaViews } from "./arena.ts";
import type { InstructionKind, InstructionOf, Program, RowKind } from "./program.ts";

/** The kernels, by name. */
export type Kernels = Readonly<Record<string, (...args: number[]) => void>>;

export interface ExecutorContext {
  readonly program: Program;
  readonly kernels: Kernels;
  readonly views: ArenaViews;
  /** This thread's number; 0 is the leader. */
  readonly thread: number;
  /** The leader's own instructions; absent on other threads. */
  readonly leader: readonly (() => void)[] | undefined;
}

export interface Executor {
  /** Chunks in this step; the same on every thread. At most 65535. */
  chunks(): number;
  run(chunk: number): void;
  /** Only the leader can run it. */
  readonly leaderOnly?: boolean;
  /** The same row by row, where a row needs nothing of another: for stages.ts. */
  readonly row?: { count(): number; run(row: number): void };
}

export type MakeExecutor<K extends InstructionKind> = (
  instruction: InstructionOf<K>,
  context: ExecutorContext,
) => Executor;

/** Chunks per thread, so that one that was held up leaves its share to the others. */
const CHUNKS_PER_THREAD = 4;

export function rowCount({ program, views }: ExecutorContext, rows: RowKind): number {
  return views.i32[program.step.counts / 4 + (rows === "tokens" ? 0 : 1)]!;
}

export function perRow(c: ExecutorContext, rows: RowKind, run: (row: number) => void): Executor {
  const count = () => rowCount(c, rows);
  return { chunks: count, run, row: { count, run } };
}

/** Items of a chunk when `total` are shared out, in multiples of `unit`. */
export function shareOf(total: number, { program }: ExecutorContext, unit: number): number {
  const share = Math.ceil(total / (program.threads * CHUNKS_PER_THREAD) / unit) * unit;
  return Math.max(unit, share);
}

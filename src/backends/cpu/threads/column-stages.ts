// Stages of networks whose neurons are mostly zero (docs/inside/sparse.md), for one token or two: a thread takes some columns through the
// gate, the rows of `up` that it opens, their product and the list of those that are not zero, without a barrier in between. Row by
// row, one thread would do most of that for all columns while the others wait.
//
// Batches of more tokens run the same instructions in stages of their own (Stage.isRest).

import { columnBounds, type Executor } from "../executor.ts";
import { MOST_ALONE } from "../ops/neuron-batch.ts";
import type { ColumnAccess } from "../ops/op.ts";

/** Instructions first..end, whose results have `cols` columns. */
export interface ColumnRun {
  readonly first: number;
  readonly end: number;
  readonly cols: number;
}

/** The runs of several column-by-column instructions that are worth a stage. */
export function columnRuns(accesses: readonly (ColumnAccess | "idle" | undefined)[]): ColumnRun[] {
  const runs: ColumnRun[] = [];
  let open: ColumnAccess[] = [];
  let first = 0;
  const close = (end: number) => {
    const isWorthIt = open.length > 1 && open.some(({ isSparse }) => isSparse);
    if (isWorthIt) runs.push({ first, end, cols: open[0]!.cols });
    open = [];
  };
  accesses.forEach((access, index) => {
    if (access === "idle" && open.length > 0) return;
    if (typeof access !== "object") {
      close(index);
      return;
    }
    if (!open.every((earlier) => mayJoin(earlier, access))) close(index);
    if (open.length === 0) first = index;
    open.push(access);
  });
  close(accesses.length);
  return runs;
}

/** Columns stay independent: nothing that one of them reads as a whole is written by the other. */
function mayJoin(earlier: ColumnAccess, later: ColumnAccess): boolean {
  const isAlike = earlier.rows === later.rows && earlier.cols === later.cols;
  const clash = (whole: readonly number[], writes: readonly number[]) =>
    whole.some((at) => writes.includes(at));
  return isAlike && !clash(later.whole, earlier.writes) && !clash(earlier.whole, later.writes);
}

/** Whether the batch has so few tokens that they are computed by column. */
export function areFew(part: Executor): boolean {
  return part.columns!.count() <= MOST_ALONE;
}

/** Chunks are ranges of columns, which go through all instructions. `timed` runs one of them. */
export function byColumn(
  parts: readonly Executor[],
  cols: number,
  threads: number,
  timed: (part: number, run: (chunk: number) => void, chunk: number) => void,
): Executor {
  const bounds = columnBounds(cols, threads);
  const runs = parts.map(({ columns }) => {
    const { run } = columns!;
    return (chunk: number) => run(bounds[chunk]!, bounds[chunk + 1]!);
  });
  const [first] = parts as [Executor];
  return {
    chunks: () => (areFew(first) && first.columns!.count() > 0 ? bounds.length - 1 : 0),
    run: (chunk) => {
      for (let i = 0; i < runs.length; i++) timed(i, runs[i]!, chunk);
    },
  };
}

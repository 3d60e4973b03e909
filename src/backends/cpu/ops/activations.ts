// Prepares activations for matmuls: quantized to bytes in token tiles (quantize), or rounded to a type and back (round). Once
// for all matmuls that read the same value (matmul-activations.ts).

import { dtypeByName } from "../../../dtypes/table.ts";
import type { Rows } from "../../../graph/graph.ts";
import { largestOf } from "../../../graph/reference-memory.ts";
import { type ExecutorContext, perRow, rowCount } from "../executor.ts";
import type { ActivationVariant, ChoiceTable } from "./matmul-data.ts";
import { chosen } from "./matmul-run.ts";
import { MOST_ALONE } from "./neuron-batch.ts";
import { area, type InstructionDef, mappedRows } from "./op.ts";

export interface Quantize {
  readonly op: "quantize";
  readonly rows: Rows;
  readonly variants: readonly ActivationVariant[];
  readonly choice: ChoiceTable;
  readonly x: number;
  readonly out: number;
  readonly cols: number;
  readonly span: number;
  /** Fewer rows are not needed (neuron-batch.ts). Default: all are. */
  readonly fewest?: number | undefined;
}

export const quantize: InstructionDef<Quantize> = {
  access: {
    stage: "row by row",
    of: ({ rows, x, cols }) => ({ rows, reads: [area(x, cols * 4)], writes: [] }),
  },
  kernels: ({ variants }) => variants.map(({ kernel }) => kernel),
  code: "target",
  columns: ({ fewest = 1 }) => (fewest > MOST_ALONE ? "idle" : undefined),

  execute(i, c) {
    const variants = i.variants.map((variant) => ({
      ...variant,
      run: c.kernels[variant.kernel]!,
    }));
    const rowBlocks = i.cols / 32;
    const { fewest = 1 } = i;
    const byRow = perRow(c, i.rows, (row) => {
      const rows = rowCount(c, i.rows);
      if (rows < fewest) return;
      const { run, tile, blockBytes } = variants[chosen(c, i.choice, rows)]!;
      const inTile = row % tile;
      const width = Math.min(tile, rows - (row - inTile));
      const out = i.out + ((row - inTile) * rowBlocks + inTile) * blockBytes;
      run(i.x + row * i.cols * 4, out, rowBlocks / i.span, width * blockBytes);
    });
    return { ...byRow, columns: { count: () => rowCount(c, i.rows), run: () => {} } };
  },
};

/**
 * Rounds rows to a type and back. A row that leaves the range of the type stays float32, regardless of other rows, and
 * the first such row is recorded.
 */
export interface Round {
  readonly op: "round";
  readonly rows: Rows;
  /** kernel(x, out, n, largest); undefined: plain TypeScript. */
  readonly kernel: string | undefined;
  readonly dtype: string;
  readonly x: number;
  readonly out: number;
  /** Columns of a row, and of a row of a matrix: a row may have several, one for each expert. */
  readonly cols: number;
  readonly part: number;
  /** Room for a row of `dtype`, or for the kernel's report, for each thread. */
  readonly scratch: number;
  readonly scratchBytes: number;
  /** i32: the number of the first instruction that kept a row; f32: the largest value of that row. */
  readonly record: number;
  readonly number: number;
}

export const round: InstructionDef<Round> = {
  access: mappedRows(),
  kernels: ({ kernel }) => (kernel === undefined ? [] : [kernel]),
  code: ({ part }) => [part],

  execute(i, c) {
    const roundPart = i.kernel === undefined ? roundPlainly(i, c) : roundByKernel(i, c);
    return perRow(c, i.rows, (row) => {
      for (let at = row * i.cols; at < (row + 1) * i.cols; at += i.part) {
        if (roundPart(at) === Number.POSITIVE_INFINITY) keepPart(i, c, at);
      }
    });
  },
};

/** Rounds the part that begins with value `at`, and returns the largest magnitude of the result. */
type RoundPart = (at: number) => number;

function roundByKernel(i: Round, c: ExecutorContext): RoundPart {
  const kernel = c.kernels[i.kernel!]!;
  const { f32 } = c.views;
  const largest = i.scratch + c.thread * i.scratchBytes;
  return (at) => {
    kernel(i.x + at * 4, i.out + at * 4, i.part, largest);
    return f32[largest / 4]!;
  };
}

function roundPlainly(i: Round, c: ExecutorContext): RoundPart {
  const dtype = dtypeByName(i.dtype)!;
  const blocks = i.part / dtype.blockElems;
  const { u8, f32 } = c.views;
  const first = i.scratch + c.thread * i.scratchBytes;
  const scratch = u8.subarray(first, first + i.scratchBytes);
  const isFloat = dtype.blockElems === 1;
  return (at) => {
    dtype.quantize!(f32, i.x / 4 + at, scratch, 0, blocks);
    dtype.dequantize(scratch, 0, f32, i.out / 4 + at, blocks);
    return isFloat ? Math.abs(largestOf(f32, i.out / 4 + at, i.part)) : 0;
  };
}

/** Leaves a part as it was. */
function keepPart(i: Round, { views: { f32, i32 } }: ExecutorContext, at: number): void {
  const [from, to] = [i.x / 4 + at, i.out / 4 + at];
  f32.copyWithin(to, from, from + i.part);
  const record = i.record / 4;
  if (i32[record] !== 0) return;
  const largest = largestOf(f32, from, i.part);
  if (!Number.isFinite(largest)) return; // it was infinite before
  if (Atomics.compareExchange(i32, record, 0, i.number) === 0) f32[record + 1] = largest;
}

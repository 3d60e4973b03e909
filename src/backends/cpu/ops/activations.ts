// Prepares activations for matmuls: quantized to bytes in token tiles (quantize), or rounded to a type and back (round). Once
// for all matmuls that read the same value (matmul-activations.ts).

import { dtypeByName } from "../../../dtypes/table.ts";
import type { Rows } from "../../../graph/graph.ts";
import { perRow, rowCount } from "../executor.ts";
import type { ActivationVariant, ChoiceTable } from "./matmul-data.ts";
import { chosen } from "./matmul-run.ts";
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
}

export const quantize: InstructionDef<Quantize> = {
  access: {
    stage: "row by row",
    of: ({ rows, x, cols }) => ({ rows, reads: [area(x, cols * 4)], writes: [] }),
  },
  kernels: ({ variants }) => variants.map(({ kernel }) => kernel),
  code: "target",

  execute(i, c) {
    const variants = i.variants.map((variant) => ({
      ...variant,
      run: c.kernels[variant.kernel]!,
    }));
    const rowBlocks = i.cols / 32;
    return perRow(c, i.rows, (row) => {
      const rows = rowCount(c, i.rows);
      const { run, tile, blockBytes } = variants[chosen(c, i.choice, rows)]!;
      const inTile = row % tile;
      const width = Math.min(tile, rows - (row - inTile));
      const out = i.out + ((row - inTile) * rowBlocks + inTile) * blockBytes;
      run(i.x + row * i.cols * 4, out, rowBlocks / i.span, width * blockBytes);
    });
  },
};

export interface Round {
  readonly op: "round";
  readonly rows: Rows;
  readonly dtype: string;
  readonly x: number;
  readonly out: number;
  readonly cols: number;
  /** One row of `dtype` for each thread. */
  readonly scratch: number;
  readonly scratchBytes: number;
}

export const round: InstructionDef<Round> = {
  access: mappedRows(),
  kernels: () => [],
  code: "wasm",

  execute(i, c) {
    const dtype = dtypeByName(i.dtype)!;
    const blocks = i.cols / dtype.blockElems;
    const { u8, f32 } = c.views;
    const at = i.scratch + c.thread * i.scratchBytes;
    const scratch = u8.subarray(at, at + i.scratchBytes);
    const rowAt = (base: number, row: number) =>
      f32.subarray(base / 4 + row * i.cols, base / 4 + (row + 1) * i.cols);
    return perRow(c, i.rows, (row) => {
      dtype.quantize!(rowAt(i.x, row), 0, scratch, 0, blocks);
      dtype.dequantize(scratch, 0, rowAt(i.out, row), 0, blocks);
    });
  },
};

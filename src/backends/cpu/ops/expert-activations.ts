// Prepares activations for the matmuls of experts, in the order of the groups (expert-groups.ts): quantized to bytes in token
// tiles of each expert, or floats copied to consecutive rows where an expert has several tokens.
//
// All slots of a token share a row of x, or each has its own. A batch of one token whose slots share a row stores it once, for
// all experts.

import type { Rows } from "../../../graph/graph.ts";
import { perRow, rowCount } from "../executor.ts";
import { type GroupTable, readGroups } from "./expert-groups.ts";
import type { ActivationVariant, ChoiceTable } from "./matmul-data.ts";
import { chosen } from "./matmul-run.ts";
import { area, type InstructionDef, type StageAccess } from "./op.ts";

interface FromRows {
  readonly rows: Rows;
  readonly groups: GroupTable;
  readonly x: number;
  readonly out: number;
  /** Columns of the weights. */
  readonly cols: number;
  /** Rows of x for each token: 1, or one for each slot. */
  readonly perToken: number;
}

/** Prepared activations are not listed as written (op.ts). */
const rowsOfX: StageAccess<FromRows> = {
  stage: "row by row",
  of: ({ rows, x, cols, perToken }) => ({
    rows,
    reads: [area(x, cols * perToken * 4)],
    writes: [],
  }),
};

/** Whether all pairs of the batch share one row. */
export function isOneRow(tokens: number, perToken: number): boolean {
  return tokens === 1 && perToken === 1;
}

export interface QuantizeExperts extends FromRows {
  readonly op: "quantize_experts";
  readonly variants: readonly ActivationVariant[];
  readonly choice: ChoiceTable;
  readonly span: number;
  /** Bytes from a pair's activations to the next one's, for all variants. */
  readonly pairBytes: number;
}

export const quantizeExperts: InstructionDef<QuantizeExperts> = {
  access: rowsOfX,
  kernels: ({ variants }) => variants.map(({ kernel }) => kernel),
  code: "target",

  execute(i, c) {
    const variants = i.variants.map((variant) => ({ ...variant, run: c.kernels[variant.kernel]! }));
    const groups = readGroups(i.groups, c);
    const rowBlocks = i.cols / 32;
    const { slots } = i.groups;
    /** Stores one row as token `index` of a group of `size` whose activations begin at `out`. */
    const store = (x: number, out: number, index: number, size: number) => {
      const { run, tile, blockBytes } = variants[chosen(c, i.choice, size)]!;
      const inTile = index % tile;
      const first = index - inTile;
      const width = Math.min(tile, size - first);
      const at = out + (first * rowBlocks + inTile) * blockBytes;
      run(x, at, rowBlocks / i.span, width * blockBytes);
    };
    return perRow(c, i.rows, (row) => {
      const x = i.x + row * i.perToken * i.cols * 4;
      if (isOneRow(rowCount(c, i.rows), i.perToken)) {
        store(x, i.out, 0, 1);
        return;
      }
      for (let slot = 0; slot < slots; slot++) {
        const own = i.perToken === 1 ? x : x + slot * i.cols * 4;
        const pair = row * slots + slot;
        const group = groups.groupOf(pair);
        const start = groups.start(group);
        const size = groups.start(group + 1) - start;
        store(own, i.out + start * i.pairBytes, groups.position(pair) - start, size);
      }
    });
  },
};

/** Copies the rows of experts that have several tokens; others read theirs in place. */
export interface GatherExperts extends FromRows {
  readonly op: "gather_experts";
}

export const gatherExperts: InstructionDef<GatherExperts> = {
  access: rowsOfX,
  kernels: () => ["copy"],
  code: ({ cols }) => [cols],

  execute(i, c) {
    const { copy } = c.kernels;
    const groups = readGroups(i.groups, c);
    const { slots } = i.groups;
    const rowBytes = i.cols * 4;
    return perRow(c, i.rows, (row) => {
      const x = i.x + row * i.perToken * rowBytes;
      for (let slot = 0; slot < slots; slot++) {
        const pair = row * slots + slot;
        const group = groups.groupOf(pair);
        if (groups.start(group + 1) - groups.start(group) === 1) continue;
        const own = i.perToken === 1 ? x : x + slot * rowBytes;
        copy!(own, i.out + groups.position(pair) * rowBytes, i.cols);
      }
    });
  },
};

// rope: a table of cosines and sines of each token's position, filled once per batch for all layers with the same rotation;
// and the rotation.

import type { RopeLayout } from "../../../graph/graph.ts";
import { ropeTableSize, ropeTable as writeRow } from "../../../kernels/ops/elementwise/rope.ts";
import { perRow } from "../executor.ts";
import { area, type InstructionDef, type LowerNode } from "./op.ts";

export interface RopeTable {
  readonly op: "rope_table";
  /** f32 [maxTokens][tableSize]. */
  readonly table: number;
  readonly tableSize: number;
  readonly layout: RopeLayout;
  readonly frequencies: Float32Array;
  readonly magnitude: number;
  /** f32 [pairs], or -1. */
  readonly factors: number;
}

export interface Rotate {
  readonly op: "rope";
  readonly kernel: string;
  readonly x: number;
  readonly out: number;
  /** f32 [maxTokens][tableSize], filled by a RopeTable. */
  readonly table: number;
  readonly tableSize: number;
  readonly cols: number;
  readonly headDim: number;
  readonly dims: number;
}

export const lowerRope: LowerNode<"rope"> = (c, n): Rotate | string => {
  const { layout, dims } = n.rope;
  const unit = layout === "half" ? 8 : 4;
  if (dims % unit !== 0 || n.headDim % 4 !== 0) {
    return `${dims} rotated values, kernels take multiples of ${unit}`;
  }
  return {
    op: "rope",
    kernel: `rope_${layout}`,
    x: c.address(n.x),
    out: c.address(n.out),
    table: c.ropeTable(n.rope, n.factors),
    tableSize: ropeTableSize(dims),
    cols: n.x.cols,
    headDim: n.headDim,
    dims,
  };
};

export const ropeTable: InstructionDef<RopeTable> = {
  access: {
    stage: "row by row",
    of: ({ table, tableSize }) => ({
      rows: "tokens",
      reads: [],
      writes: [area(table, tableSize * 4)],
    }),
  },
  kernels: () => [],
  code: "wasm",

  execute(i, c) {
    const pairs = i.frequencies.length;
    const [cos, sin] = [new Float32Array(pairs), new Float32Array(pairs)];
    const { f32, i32 } = c.views;
    const positions = c.program.batch.positions / 4;
    return perRow(c, "tokens", (row) => {
      const position = i32[positions + row]!;
      for (let pair = 0; pair < pairs; pair++) {
        const turned = Math.fround(position * i.frequencies[pair]!);
        const angle = Math.fround(turned / (i.factors < 0 ? 1 : f32[i.factors / 4 + pair]!));
        cos[pair] = Math.fround(Math.cos(angle)) * i.magnitude;
        sin[pair] = Math.fround(Math.sin(angle)) * i.magnitude;
      }
      writeRow(i.layout, cos, sin, f32, i.table / 4 + row * i.tableSize);
    });
  },
};

export const rope: InstructionDef<Rotate> = {
  access: {
    stage: "row by row",
    of: ({ x, out, cols, table, tableSize }) => ({
      rows: "tokens",
      reads: [area(x, cols * 4), area(table, tableSize * 4)],
      writes: [area(out, cols * 4)],
    }),
  },
  kernels: ({ kernel }) => [kernel],
  code: ({ dims, headDim }) => [dims / 2, headDim - dims],

  execute(i, c) {
    const kernel = c.kernels[i.kernel]!;
    const heads = i.cols / i.headDim;
    return perRow(c, "tokens", (row) => {
      const at = row * i.cols * 4;
      const table = i.table + row * i.tableSize * 4;
      kernel(i.x + at, i.out + at, table, heads, i.headDim, i.dims);
    });
  },
};

// The tiled matmul kernels for float weights (F32, F16, BF16): G groups of four rows times T tokens, all columns.
//
// A tile is column -> group -> four rows' values, so one load gives four rows of a column. The activations are plain
// rows of float32. Cost per column of a G x T tile: G weight loads (and conversions), T splat loads, GT fma.

import { KernelBuilder } from "../ir/builder.ts";
import type { Kernel, Reg } from "../ir/kernel.ts";
import { GROUP_ROWS, GROUPS_PER_TILE } from "./packed.ts";

export interface FloatMatmul {
  readonly name: string;
  readonly weights: "f32" | "f16" | "bf16";
  readonly groups: number;
  readonly tokens: number;
  readonly order: "vector" | "matrix";
}

const loads = { f32: "f32v.load", f16: "f32v.load_f16", bf16: "f32v.load_bf16" } as const;

/** Columns that a round of the inner loop computes. */
export const FLOAT_UNROLL = 4;

export function floatBytes(weights: FloatMatmul["weights"]): number {
  return weights === "f32" ? 4 : 2;
}

/**
 * (w, x, out, columns / 4, rounds, xStride, outStride). vector: rounds = tiles, 16 floats each. matrix: rounds = token
 * tiles; xStride and outStride are the bytes from one token to the next.
 */
export function floatMatmulKernel(shape: FloatMatmul): Kernel {
  const { groups, tokens, order } = shape;
  const k = new KernelBuilder(shape.name, 16);
  const wStart = k.param("ptr", "w");
  const xStart = k.param("ptr", "x");
  const out = k.param("ptr", "out");
  const quads = k.param("i32", "quads");
  const rounds = k.param("i32", order === "vector" ? "tiles" : "tokenTiles");
  const xStride = k.param("i32", "xStride");
  const outStride = k.param("i32", "outStride");
  const w = k.variable(wStart, "w_at");
  const row = k.variable(xStart, "x_row");
  const zero = k.op("f32v.const", [], 0);
  k.loop(rounds, () => {
    if (order === "matrix") k.set(w, wStart);
    const xs: Reg<"ptr">[] = [];
    for (let t = 0; t < tokens; t++) {
      xs.push(k.variable(t === 0 ? row : k.op("ptr.add", [xs[t - 1]!, xStride])));
    }
    const sums = Array.from({ length: groups * tokens }, () => k.variable(zero));
    const next = order === "matrix" ? k.op("ptr.add", [xs.at(-1)!, xStride]) : undefined;
    k.loop(quads, () => columns(k, shape, w, xs, sums));
    store(k, shape, sums, out, outStride);
    if (next) k.set(row, next);
  });
  return k.finish();
}

function columns(
  k: KernelBuilder,
  { weights, groups, tokens }: FloatMatmul,
  w: Reg<"ptr">,
  xs: readonly Reg<"ptr">[],
  sums: readonly Reg<"f32v">[],
): void {
  const vector = GROUP_ROWS * floatBytes(weights);
  const column = GROUPS_PER_TILE * vector;
  for (let c = 0; c < FLOAT_UNROLL; c++) {
    const ws = Array.from({ length: groups }, (_, g) =>
      k.op(loads[weights], [w], c * column + g * vector),
    );
    for (let t = 0; t < tokens; t++) {
      const x = k.op("f32v.load_splat", [xs[t]!], 4 * c);
      for (let g = 0; g < groups; g++) {
        const sum = sums[g * tokens + t]!;
        k.update(sum, "f32v.fma", [ws[g]!, x, sum]);
      }
    }
  }
  k.advance(w, FLOAT_UNROLL * column);
  for (const x of xs) k.advance(x, FLOAT_UNROLL * 4);
}

function store(
  k: KernelBuilder,
  { groups, tokens, order }: FloatMatmul,
  sums: readonly Reg<"f32v">[],
  out: Reg<"ptr">,
  outStride: Reg<"i32">,
): void {
  for (let t = 0; t < tokens; t++) {
    for (let g = 0; g < groups; g++) k.op("f32v.store", [out, sums[g * tokens + t]!], 16 * g);
    if (order === "matrix") k.update(out, "ptr.add", [out, outStride]);
  }
  if (order === "vector") k.advance(out, groups * GROUP_ROWS * 4);
}

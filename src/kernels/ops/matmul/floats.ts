// The tiled matmul kernels for float weights (F32, F16, BF16): G groups of rows (as many rows as a vector has lanes) times
// T tokens, all columns. Quantized weights: dot4.ts.
//
// A row panel is column -> 16 rows' values, so one load gives a group's rows of a column. Where there is no instruction for
// half floats, F16 is coded (half-panels.ts). Activations are plain rows of float32. Cost per column of a G x T register
// tile: G weight loads (and conversions), T splat loads, GT fma.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import type { Halves, KernelTarget } from "../../target.ts";
import { HALF_PANEL_HEADER, loadHalfCodes, RAISED_SCALE } from "../packed/half-panels.ts";
import { PANEL_ROWS } from "../packed/packed.ts";
import { CACHE_LINE, usualAhead } from "./prefetch.ts";

export interface FloatMatmul {
  readonly name: string;
  readonly weights: "f32" | "f16" | "bf16";
  readonly groups: number;
  readonly tokens: number;
  readonly order: "vector" | "matrix";
  /** vector: row panels computed alternately, each a stream through memory (default 1); see dot4.ts. */
  readonly streams?: number;
  /** The distance in bytes by which weights are prefetched; 0: no prefetch. Default: the target decides. */
  readonly ahead?: number;
  readonly target: Pick<KernelTarget, "width" | "halves">;
}

/** The load of a vector of weights, the factor of activations, and the header of a row panel's weights. */
const formats: Readonly<Record<Exclude<FloatMatmul["weights"], "f16">, FloatFormat>> = {
  f32: {
    bytes: 4,
    load: (k, w, at) => k.op("f32v.load", [w], at),
  },
  bf16: {
    bytes: 2,
    load: (k, w, at) => k.op("f32v.load_bf16", [w], at),
  },
};

const halfFormats: Readonly<Record<Halves, FloatFormat>> = {
  coded: {
    bytes: 2,
    load: loadHalfCodes,
    xScale: RAISED_SCALE,
    headerBytes: HALF_PANEL_HEADER,
  },
  hardware: {
    bytes: 2,
    load: (k, w, at) => k.op("f32v.load_f16", [w], at),
  },
};

function formatOf({ weights, target }: FloatMatmul): FloatFormat {
  return weights === "f16" ? halfFormats[target.halves] : formats[weights];
}

interface FloatFormat {
  readonly bytes: number;
  readonly load: (k: KernelBuilder, w: Reg<"ptr">, at: number) => Reg<"f32v">;
  readonly xScale?: number;
  /** f32 x 4 that the results of a row panel are multiplied by. */
  readonly headerBytes?: number;
}

/** Columns that a round of the inner loop computes. */
export const FLOAT_UNROLL = 4;

/**
 * vector: (w, x, out, columns / 4, tiles, apart, outApart): one token, all groups of each row panel; writes 16 floats a panel.
 * With several streams, stream s begins `s * apart` bytes further, its results `s * outApart` bytes further; with one,
 * these two are not read.
 * matrix: (w, x, out, columns / 4, tokenTiles, xStride, outStride): w is the row panel plus the offset of the first group;
 * xStride and outStride are the bytes from one token to the next.
 */
export function floatMatmulKernel(shape: FloatMatmul): Kernel {
  return shape.order === "vector" ? vectorKernel(shape) : matrixKernel(shape);
}

function vectorKernel(shape: FloatMatmul): Kernel {
  const { groups, streams = 1 } = shape;
  const k = new KernelBuilder(shape.name, shape.target.width);
  const w = k.param("ptr", "w");
  const xStart = k.param("ptr", "x");
  const out = k.param("ptr", "out");
  const quads = k.param("i32", "quads");
  const tiles = k.param("i32", "tiles");
  const apart = k.param("i32", "apart");
  const outApart = k.param("i32", "outApart");
  const ws = [w];
  for (let s = 1; s < streams; s++) ws.push(k.variable(k.op("ptr.add", [ws[s - 1]!, apart])));
  const zero = k.op("f32v.const", [], 0);
  const { headerBytes } = formatOf(shape);
  k.loop(tiles, () => {
    const x = k.variable(xStart);
    const factors = headerBytes === undefined ? undefined : ws.map((at) => header(k, at));
    const sums = ws.map(() => Array.from({ length: groups }, () => [k.variable(zero)]));
    k.loop(quads, () => columns(k, shape, ws, [x], sums));
    let target = out;
    sums.forEach((grid, s) => {
      if (s > 0) target = k.op("ptr.add", [target, outApart]);
      storeRows(k, grid, 0, target, factors?.[s]);
    });
    k.advance(out, groups * k.width);
  });
  return k.finish();
}

/** Loads a row panel's factor, and moves w to its weights. */
function header(k: KernelBuilder, w: Reg<"ptr">): Reg<"f32v"> {
  const factor = k.op("f32v.load", [w]);
  k.advance(w, HALF_PANEL_HEADER);
  return factor;
}

function matrixKernel(shape: FloatMatmul): Kernel {
  const { groups, tokens } = shape;
  if (formatOf(shape).headerBytes !== undefined) {
    throw new Error(
      `${shape.name}: tiles of ${shape.weights} are widened where several tokens are computed at once`,
    );
  }
  const k = new KernelBuilder(shape.name, shape.target.width);
  const wStart = k.param("ptr", "w");
  const xStart = k.param("ptr", "x");
  const out = k.param("ptr", "out");
  const quads = k.param("i32", "quads");
  const tokenTiles = k.param("i32", "tokenTiles");
  const xStride = k.param("i32", "xStride");
  const outStride = k.param("i32", "outStride");
  const w = k.variable(wStart, "w_at");
  const row = k.variable(xStart, "x_row");
  const zero = k.op("f32v.const", [], 0);
  k.loop(tokenTiles, () => {
    k.set(w, wStart);
    const xs = [k.variable(row)];
    for (let t = 1; t < tokens; t++) xs.push(k.variable(k.op("ptr.add", [xs[t - 1]!, xStride])));
    const next = k.op("ptr.add", [xs.at(-1)!, xStride]);
    const sums = Array.from({ length: groups }, () => xs.map(() => k.variable(zero)));
    k.loop(quads, () => columns(k, shape, [w], xs, [sums]));
    for (let t = 0; t < tokens; t++) {
      storeRows(k, sums, t, out);
      k.update(out, "ptr.add", [out, outStride]);
    }
    k.set(row, next);
  });
  return k.finish();
}

/**
 * Prefetch distance. With vectors of 64 bytes, eight streams and one token: F16 has 1.03, BF16 1.05 and F32 1.03 times the
 * bandwidth without prefetch (measured as in prefetch.ts). Other cases were not measured, or not faster.
 */
function aheadOf({ order, streams = 1, target }: FloatMatmul): number {
  const { width, halves } = target;
  const isKnown = order === "vector" && width === 64 && halves === "hardware";
  return isKnown ? usualAhead(width, streams) : 0;
}

/** A round of the inner loop: sums[stream][group][token] of some columns. */
function columns(
  k: KernelBuilder,
  shape: FloatMatmul,
  ws: readonly Reg<"ptr">[],
  xs: readonly Reg<"ptr">[],
  sums: readonly Reg<"f32v">[][][],
): void {
  const { groups, ahead = aheadOf(shape) } = shape;
  const { bytes, load, xScale } = formatOf(shape);
  const vector = k.lanes * bytes;
  const column = PANEL_ROWS * bytes;
  const activation = (from: Reg<"ptr">, c: number) => {
    const x = k.op("f32v.load_splat", [from], 4 * c);
    return xScale === undefined ? x : k.op("f32v.mul", [x, k.op("f32v.const", [], xScale)]);
  };
  const some = FLOAT_UNROLL * column;
  for (const w of ahead > 0 ? ws : []) {
    for (let line = 0; line < some; line += CACHE_LINE) k.op("ptr.prefetch", [w], ahead + line);
  }
  for (let c = 0; c < FLOAT_UNROLL; c++) {
    // The activation of a single token is loaded once for all streams, those of several tokens at each use: registers are few.
    const shared = xs.length === 1 ? activation(xs[0]!, c) : undefined;
    ws.forEach((w, s) => {
      const rows = Array.from({ length: groups }, (_, g) => load(k, w, c * column + g * vector));
      xs.forEach((from, t) => {
        const x = shared ?? activation(from, c);
        rows.forEach((row, g) => {
          const sum = sums[s]![g]![t]!;
          k.update(sum, "f32v.fma", [row, x, sum]);
        });
      });
    });
  }
  for (const w of ws) k.advance(w, some);
  for (const x of xs) k.advance(x, FLOAT_UNROLL * 4);
}

/** The results of all groups for token t. */
function storeRows(
  k: KernelBuilder,
  sums: readonly Reg<"f32v">[][],
  t: number,
  out: Reg<"ptr">,
  factor?: Reg<"f32v">,
): void {
  sums.forEach((group, g) => {
    const sum = factor ? k.op("f32v.mul", [group[t]!, factor]) : group[t]!;
    k.op("f32v.store", [out, sum], k.width * g);
  });
}

// Which kernels a matrix product is computed with: the one place where the shapes of tiles are chosen. lower-matmul.ts
// puts what is chosen here into instructions; executors.ts call it.
//
// A product has a kernel for one token, which streams over the weights, and one for tiles of several tokens.

import type { Kernel } from "../../kernels/ir/kernel.ts";
import type { Dot4 } from "../../kernels/ir/meanings.ts";
import { blockMatmulKernel } from "../../kernels/ops/matmul-blocks.ts";
import { floatMatmulKernel } from "../../kernels/ops/matmul-floats.ts";
import type { BlockLayout } from "../../kernels/ops/packed.ts";
import type { FloatType } from "./table-rows.ts";

/** Tiles that a product with one token walks at once: measured, four give 1.7 times the bandwidth of one. */
const STREAMS = 4;

/** The shape of tiles that a machine is best served with. */
export interface TileChoice {
  /** Groups of four rows and tokens that a matrix kernel computes at once. */
  readonly groups: 1 | 2 | 4;
  readonly tokens: number;
  /** Activations repeated in every lane. */
  readonly replicated: boolean;
}

export interface MatmulKernels {
  /** One token, one tile after the other. */
  readonly vector: Kernel;
  /** One token, `streams` tiles in turns. */
  readonly vectorStreams: Kernel;
  readonly streams: number;
  /** `tokens` tokens, `groups` groups of four rows. */
  readonly matrix: Kernel;
  readonly groups: number;
  readonly tokens: number;
}

/** Measured: with an unsigned dot4 (x86) splats are free and registers few; with a signed one (arm64) the reverse. */
export function chooseTiles(dot4: Dot4): TileChoice {
  return dot4 === "signed"
    ? { groups: 4, tokens: 4, replicated: true }
    : { groups: 2, tokens: 4, replicated: false };
}

/** For weights of quantized `type`, packed as `layout`. */
export function blockKernels(type: string, layout: BlockLayout, tiles: TileChoice): MatmulKernels {
  const { groups, tokens, replicated } = tiles;
  const style = replicated ? "replicated" : "compact";
  const vector = { layout, groups: 4, tokens: 1, replicated, order: "vector" } as const;
  return {
    vector: blockMatmulKernel({ ...vector, name: `matmul.${type}.16x1.${style}` }),
    vectorStreams: blockMatmulKernel({
      ...vector,
      name: `matmul.${type}.${STREAMS}x16x1.${style}`,
      streams: STREAMS,
    }),
    streams: STREAMS,
    matrix: blockMatmulKernel({
      name: `matmul.${type}.${groups * 4}x${tokens}.${style}`,
      layout,
      groups,
      tokens,
      replicated,
      order: "matrix",
    }),
    groups,
    tokens,
  };
}

/** For weights of float `type`. The matrix kernel multiplies float32 tiles: those of half floats are widened for it. */
export function floatKernels(type: FloatType): Omit<MatmulKernels, "vectorStreams" | "streams"> {
  const [groups, tokens] = [2, 4];
  return {
    vector: floatMatmulKernel({
      name: `matmul.${type}.16x1`,
      weights: type,
      groups: 4,
      tokens: 1,
      order: "vector",
    }),
    matrix: floatMatmulKernel({
      name: `matmul.f32.${groups * 4}x${tokens}`,
      weights: "f32",
      groups,
      tokens,
      order: "matrix",
    }),
    groups,
    tokens,
  };
}

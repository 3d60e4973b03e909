// The kernels of a matrix product: those of a variant (kernels/matmul-variants.ts) for one type of weights.
// lower-matmul.ts puts their names into instructions; execute-matmul.ts calls them.
//
// A product has kernels for one token, which stream over the weights, and one for each width of a tile of tokens: the
// last tile of a step may be narrower than the others. Full tiles may have one that streams as well.

import type { Kernel } from "../../kernels/ir/kernel.ts";
import type { MatmulVariant } from "../../kernels/matmul-variants.ts";
import { blockMatmulKernel } from "../../kernels/ops/matmul-blocks.ts";
import { floatMatmulKernel } from "../../kernels/ops/matmul-floats.ts";
import type { BlockLayout } from "../../kernels/ops/packed.ts";
import type { FloatType } from "./float-tiles.ts";

export interface VariantKernels {
  /** One token, one tile of rows after the other. */
  readonly vector: Kernel;
  /** One token, `streams` tiles of rows in turns. */
  readonly vectorStreams: Kernel;
  /** For tiles of 2, 3, ... tokens. */
  readonly matrix: readonly MatrixKernels[];
}

export interface MatrixKernels {
  readonly kernel: Kernel;
  /** Groups of four rows that it computes at once. */
  readonly groups: number;
  /** The same for all groups of `streams` tiles of rows in turns. */
  readonly inStreams?: Kernel;
}

/** For weights of quantized `type`, packed as `layout`. */
export function blockKernels(
  type: string,
  layout: BlockLayout,
  { groups, tokens, replicated, streams, streamed }: MatmulVariant,
): VariantKernels {
  const style = replicated ? "replicated" : "compact";
  const shape = { layout, groups: 4, tokens: 1, replicated, order: "vector" } as const;
  const vector = blockMatmulKernel({ ...shape, name: `matmul.${type}.16x1.${style}` });
  const name = `matmul.${type}.${streams}x16x1.${style}`;
  return {
    vector,
    vectorStreams: streams === 1 ? vector : blockMatmulKernel({ ...shape, name, streams }),
    matrix: widths(tokens).map((width) => {
      const tile = { layout, groups, tokens: width, replicated };
      const shapeName = `${groups * 4}x${width}.${style}`;
      return {
        kernel: blockMatmulKernel({
          ...tile,
          name: `matmul.${type}.${shapeName}`,
          order: "matrix",
        }),
        groups,
        ...(streamed &&
          width === tokens && {
            inStreams: blockMatmulKernel({
              ...tile,
              name: `matmul.${type}.${streams}x${shapeName}`,
              order: "vector",
              streams,
            }),
          }),
      };
    }),
  };
}

/** For weights of float `type`. The matrix kernels multiply float32 tiles: those of half floats are widened for them. */
export function floatKernels(
  type: FloatType,
  { groups, tokens, streams }: MatmulVariant,
): VariantKernels {
  const shape = { weights: type, groups: 4, tokens: 1, order: "vector" } as const;
  const vector = floatMatmulKernel({ ...shape, name: `matmul.${type}.16x1` });
  const name = `matmul.${type}.${streams}x16x1`;
  return {
    vector,
    vectorStreams: streams === 1 ? vector : floatMatmulKernel({ ...shape, name, streams }),
    matrix: widths(tokens).map((width) => {
      const rows = width <= NARROW ? 4 : groups;
      return {
        kernel: floatMatmulKernel({
          name: `matmul.f32.${rows * 4}x${width}`,
          weights: "f32",
          groups: rows,
          tokens: width,
          order: "matrix",
        }),
        groups: rows,
      };
    }),
  };
}

/** Tiles of so few tokens take all rows: with less than eight sums on their way, each fma waits for the one before. */
const NARROW = 2;

/** 2, 3, ... tokens. */
function widths(tokens: number): number[] {
  return Array.from({ length: tokens - 1 }, (_, i) => i + 2);
}

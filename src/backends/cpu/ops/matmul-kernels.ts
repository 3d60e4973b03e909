// The kernels of a matmul: those of a variant (kernels/matmul-variants.ts) for one type of weights.
// matmul-lower.ts puts their names into instructions; matmul-run.ts calls them.
//
// A matmul has kernels for one token, which stream over the weights, and one for each width of a tile of tokens: the
// last tile of a batch may be narrower than the others. Full tiles may have one that streams as well, or one that computes in
// AMX tiles or by pairs of rows. Knobs (kernels/knobs.ts) are those of all its other kernels.

import type { Kernel } from "../../../kernels/ir/kernel.ts";
import { type Knobs, knobWords } from "../../../kernels/knobs.ts";
import { scheduled } from "../../../kernels/lower/schedule.ts";
import {
  groupsAtOnce,
  type MatmulVariant,
  WIDEST_IN_VECTORS,
} from "../../../kernels/matmul-variants.ts";
import { tileMatmulKernel, tileScratchBytes } from "../../../kernels/ops/matmul/amx.ts";
import { type BlockMatmul, blockMatmulKernel } from "../../../kernels/ops/matmul/dot4.ts";
import { type FloatMatmul, floatMatmulKernel } from "../../../kernels/ops/matmul/floats.ts";
import { PAIR_SCRATCH_BYTES, pairMatmulKernel } from "../../../kernels/ops/matmul/i8mm.ts";
import {
  type BlockLayout,
  groupRows,
  groupsPerPanel,
  PANEL_ROWS,
} from "../../../kernels/ops/packed/packed.ts";
import type { KernelTarget } from "../../../kernels/target.ts";
import type { FloatType } from "../memory/float-panels.ts";

/** Bytes of scratch memory that AMX tiles or pairs of rows need for so many tokens, for each thread. */
export function matmulScratchBytes(tokens: number): number {
  return Math.max(tileScratchBytes(tokens), PAIR_SCRATCH_BYTES);
}

export interface VariantKernels {
  /** One token, one row panel after the other. */
  readonly vector: Kernel;
  /** One token, `streams` row panels in turns. */
  readonly vectorStreams: Kernel;
  /** The same for half as many, where that still is several: for what a share of rows has left over. */
  readonly vectorHalf?: Kernel;
  /** For tiles of 2, 3, ... tokens. */
  readonly matrix: readonly MatrixKernels[];
}

export interface MatrixKernels {
  readonly kernel: Kernel;
  /** Groups of rows that it computes at once. */
  readonly groups: number;
  /** The same for all groups of `streams` row panels in turns. */
  readonly inStreams?: Kernel;
}

/** For weights of quantized `type`, packed as `layout`. */
export function blockKernels(
  type: string,
  layout: BlockLayout,
  { rows, tokens, replicated, streams, streamed, amx, i8mm, knobs }: MatmulVariant,
): VariantKernels {
  const groups = rows / groupRows(layout);
  const style = replicated ? "replicated" : "compact";
  const make = (name: string, shape: Omit<BlockMatmul, "name" | "layout" | "replicated">) =>
    arranged(knobs, `matmul.${type}.${name}`, (own) =>
      blockMatmulKernel({ ...shape, layout, replicated, ...own }),
    );
  const one = { groups: groupsAtOnce(layout, layout.width), tokens: 1, order: "vector" } as const;
  const vector = make(`16x1.${style}`, one);
  return {
    vector,
    ...inStreams(vector, streams, (count) =>
      make(`${count}x16x1.${style}`, { ...one, streams: count }),
    ),
    matrix: widths(tokens).map((width) => {
      const tile = { groups, tokens: width };
      const shapeName = `${rows}x${width}.${style}`;
      if (amx && width > WIDEST_IN_VECTORS) {
        const name = `matmul.${type}.${rows}x${width}.amx`;
        return { kernel: tileMatmulKernel({ name, layout, tokens: width }), groups };
      }
      if (i8mm) {
        const name = `matmul.${type}.${rows}x${width}.i8mm`;
        return { kernel: pairMatmulKernel({ name, layout, tokens: width }), groups };
      }
      return {
        kernel: make(shapeName, { ...tile, order: "matrix" }),
        groups,
        ...(streamed &&
          width === tokens && {
            inStreams: make(`${streams}x${shapeName}`, { ...tile, order: "vector", streams }),
          }),
      };
    }),
  };
}

/** Streams from which on half of them are a kernel of their own. */
const MANY_STREAMS = 8;

function inStreams(
  vector: Kernel,
  streams: number,
  make: (count: number) => Kernel,
): Pick<VariantKernels, "vectorStreams" | "vectorHalf"> {
  return {
    vectorStreams: streams === 1 ? vector : make(streams),
    ...(streams >= MANY_STREAMS && { vectorHalf: make(streams / 2) }),
  };
}

/** Makes a kernel with such knobs, which are part of its name where they are not the usual ones. */
function arranged(
  knobs: Knobs = {},
  plainName: string,
  make: (own: { name: string; ahead?: number }) => Kernel,
  usual: Knobs = {},
): Kernel {
  const { ahead, unroll = 1, order = "written", pipelined = false } = { ...usual, ...knobs };
  const name = [plainName, ...knobWords(knobs)].join(".");
  const kernel = make({ name, ...(ahead !== undefined && { ahead }) });
  return scheduled(kernel, { unroll, order, pipelined });
}

/**
 * For weights of float `type`. Where half floats are coded, the matrix kernels multiply float32 tiles, to which they are
 * widened.
 */
export function floatKernels(
  type: FloatType,
  target: KernelTarget,
  { rows: wanted, tokens, streams, knobs }: MatmulVariant,
): VariantKernels {
  const all = groupsPerPanel(target);
  const isWide = target.halves === "hardware" && target.width > 16;
  const make = (name: string, shape: Omit<FloatMatmul, "name" | "target">) =>
    arranged(
      knobs,
      `matmul.${shape.weights}.${name}`,
      (own) => floatMatmulKernel({ ...shape, target, ...own }),
      shape.order === "matrix" && isWide ? inWideTiles : {},
    );
  const one = { weights: type, groups: all, tokens: 1, order: "vector" } as const;
  const inPanels = target.halves === "coded" ? "f32" : type;
  const vector = make("16x1", one);
  return {
    vector,
    ...inStreams(vector, streams, (count) => make(`${count}x16x1`, { ...one, streams: count })),
    matrix: widths(tokens).map((width) => {
      const rows = width <= NARROW ? PANEL_ROWS : wanted;
      const groups = rows / groupRows(target);
      const tile = { weights: inPanels, groups, tokens: width, order: "matrix" } as const;
      return { kernel: make(`${rows}x${width}`, tile), groups };
    }),
  };
}

/** Floats, tiles of tokens in the cache: 1.02 times as fast with 64 bytes a vector, 1.04 with 32. Blocks: no faster, or slower. */
const inWideTiles: Knobs = { unroll: 2 };

/** Tiles of so few tokens take all rows: with less than eight sums on their way, each fma waits for the one before. */
const NARROW = 2;

/** 2, 3, ... tokens. */
function widths(tokens: number): number[] {
  return Array.from({ length: tokens - 1 }, (_, i) => i + 2);
}

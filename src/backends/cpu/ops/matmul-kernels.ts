// The kernels of a matmul: those of a variant (kernels/matmul-variants.ts) for one type of weights.
// matmul-lower.ts puts their names into instructions; matmul-run.ts calls them.
//
// A matmul has kernels for one token, which stream over the weights, and one for each width of a token tile, since the last
// token tile of a batch may be narrower. Full token tiles may also have a kernel that streams, or one with AMX tiles or
// SMMLA. Knobs (kernels/knobs.ts) apply to all kernels but the last two.

import type { Kernel } from "../../../kernels/ir/kernel.ts";
import { lazyKernel } from "../../../kernels/ir/lazy-kernel.ts";
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
import { unpackedLayout, unpackPanelKernel } from "../../../kernels/ops/packed/unpack-panel.ts";
import type { KernelTarget } from "../../../kernels/target.ts";
import type { FloatType } from "../memory/float-panels.ts";

/** Bytes of scratch memory for each thread that AMX or SMMLA kernels need for `tokens` tokens. */
export function matmulScratchBytes(tokens: number): number {
  return Math.max(tileScratchBytes(tokens), PAIR_SCRATCH_BYTES);
}

export interface VariantKernels {
  /** One token, one row panel after the other. */
  readonly vector: Kernel;
  /** One token, `streams` row panels at once. */
  readonly vectorStreams: Kernel;
  /** The same for half as many, if that is still several: for the remaining panels of a chunk. */
  readonly vectorHalf?: Kernel;
  /** For token tiles of 2, 3, ... tokens. */
  readonly matrix: readonly MatrixKernels[];
  /** Unpacks a row panel for them; undefined: they read it as it is. */
  readonly unpack?: Kernel;
}

export interface MatrixKernels {
  readonly kernel: Kernel;
  /** Groups of rows that it computes at once. */
  readonly groups: number;
  /** The same for all groups of `streams` row panels at once. */
  readonly inStreams?: Kernel;
}

/** For weights of quantized `type`, packed as `layout`. */
export function blockKernels(
  type: string,
  layout: BlockLayout,
  { rows, tokens, replicated, words, streams, streamed, amx, i8mm, unpacked, knobs }: MatmulVariant,
): VariantKernels {
  const groups = rows / groupRows(layout);
  const style = replicated ? "replicated" : words ? "words" : "compact";
  const make = (
    name: string,
    shape: Omit<BlockMatmul, "name" | "layout" | "replicated" | "words">,
  ) =>
    arranged(knobs, `matmul.${type}.${name}`, layout.width, (own) =>
      blockMatmulKernel({ ...shape, layout, replicated, words, ...own }),
    );
  const one = { groups: groupsAtOnce(layout, layout.width), tokens: 1, order: "vector" } as const;
  const vector = make(`16x1.${style}`, one);
  return {
    vector,
    ...inStreams(vector, streams, (count) =>
      make(`${count}x16x1.${style}`, { ...one, streams: count }),
    ),
    ...(unpacked && { unpack: unpacker(`unpack.${type}`, layout) }),
    matrix: widths(tokens).map((width) => {
      const tile = { groups, tokens: width };
      const shapeName = `${rows}x${width}.${style}`;
      if (amx && width > WIDEST_IN_VECTORS) {
        const name = `matmul.${type}.${rows}x${width}.amx`;
        const build = () => tileMatmulKernel({ name, layout, tokens: width });
        return { kernel: lazyKernel(name, layout.width, build), groups };
      }
      if (i8mm) {
        const name = `matmul.${type}.${rows}x${width}.i8mm`;
        const build = () => pairMatmulKernel({ name, layout, tokens: width });
        return { kernel: lazyKernel(name, layout.width, build), groups };
      }
      if (unpacked) return { kernel: unpackedTile(type, layout, rows, width), groups };
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

/** A register tile of an unpacked row panel, which is in the cache: nothing is prefetched. */
function unpackedTile(type: string, packed: BlockLayout, rows: number, tokens: number): Kernel {
  const layout = unpackedLayout(packed);
  const name = `matmul.${type}.${rows}x${tokens}.unpacked`;
  return lazyKernel(name, layout.width, () =>
    blockMatmulKernel({
      ...{ name, layout, groups: rows / groupRows(layout), tokens },
      ...{ replicated: false, order: "matrix", ahead: 0 },
    }),
  );
}

function unpacker(name: string, layout: BlockLayout): Kernel {
  return lazyKernel(name, layout.width, () => unpackPanelKernel(name, layout));
}

/** The fewest streams for which there is a kernel with half as many. */
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

/** Makes a kernel with these knobs, which are part of its name where they differ from the default. */
function arranged(
  knobs: Knobs = {},
  plainName: string,
  width: number,
  make: (own: { name: string; ahead?: number }) => Kernel,
  usual: Knobs = {},
): Kernel {
  const { ahead, unroll = 1, order = "written", pipelined = false } = { ...usual, ...knobs };
  const name = [plainName, ...knobWords(knobs)].join(".");
  return lazyKernel(name, width, () => {
    const kernel = make({ name, ...(ahead !== undefined && { ahead }) });
    return scheduled(kernel, { unroll, order, pipelined });
  });
}

/**
 * For weights of float `type`. Where half floats are coded, panels are widened, and the matrix kernels read float32 panels.
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
      target.width,
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

/** Float weights in the cache: 1.02 times as fast with vectors of 64 bytes, 1.04 with 32. Quantized types are no faster. */
const inWideTiles: Knobs = { unroll: 2 };

/** Token tiles of up to this many tokens take all groups: with fewer than eight sums in flight, each fma waits for the last. */
const NARROW = 2;

/** 2, 3, ... tokens. */
function widths(tokens: number): number[] {
  return Array.from({ length: tokens - 1 }, (_, i) => i + 2);
}

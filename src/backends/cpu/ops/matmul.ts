// matmul and matmul_id: over row panels of quantized types, over row panels of floats, or (any type) row by row. The layout of
// the weight (weights.ts) decides which; matmul-lower.ts makes the instruction.

import { dtypeByName } from "../../../dtypes/table.ts";
import { PANEL_ROWS } from "../../../kernels/ops/packed/packed.ts";
import { chunkBounds, type ExecutorContext, rowCount } from "../executor.ts";
import { dotRowsFor } from "./dot-rows.ts";
import { expertMatmul, expertRows } from "./expert-matmul.ts";
import type { Matmul, MatmulRows, TiledMatmul, TiledVariant } from "./matmul-data.ts";
import { addBias, type TileKernels, tiledMatmul } from "./matmul-run.ts";
import {
  area,
  type ColumnAccess,
  type InstructionDef,
  type LowerNode,
  type StageAccess,
} from "./op.ts";

export interface MatmulBlocks extends TiledMatmul {
  readonly op: "matmul_blocks";
  readonly spans: number;
  readonly codebook: number;
  /** Scratch memory for each thread, of kernels that unpack row panels (AMX, SMMLA); otherwise -1. */
  readonly tileScratch: number;
  readonly tileScratchBytes: number;
  /** An unpacked row panel for each thread; -1: no variant unpacks any. */
  readonly unpacked: number;
  readonly unpackedBytes: number;
}

export interface MatmulFloats extends TiledMatmul {
  readonly op: "matmul_floats";
  /** Bytes from one group of rows to the next in the row panels that the matrix kernels read. */
  readonly groupBytes: number;
  /** The kernel that widens a row panel of half floats into `wide` (one for each thread); undefined: panels are not widened. */
  readonly widen: string | undefined;
  readonly wide: number;
  /** Bytes of `wide` for each thread: a panel of the longest rows of all matmuls, which share it. */
  readonly wideBytes: number;
  /** The address that records rows that stay float32 (activations.ts); -1: there are none. */
  readonly record: number;
}

export const lowerMatmul: LowerNode<"matmul"> = (c, n) =>
  n.x.cols % 4 === 0 ? c.matmul(n) : `${n.x.cols} columns, kernels take multiples of 4`;

export const lowerMatmulId: LowerNode<"matmul_id"> = (c, n) => {
  const cols = n.weight.shape[2]!;
  return cols % 4 === 0 ? c.matmul(n) : `${cols} columns, kernels take multiples of 4`;
};

function asOne<I extends Matmul & { op: string; x: number }>(): StageAccess<I> {
  return {
    stage: "as one",
    of: ({ rows, x, out, experts }) => ({
      rows,
      reads: [area(x, 0), ...(experts ? [area(experts.direct, 0)] : [])],
      writes: [area(out, 0)],
    }),
  };
}

/** A range of row panels is a range of columns of the results. */
function byColumn({ rows, x, out, n, experts }: TiledMatmul): ColumnAccess | undefined {
  if (experts || n % PANEL_ROWS !== 0) return undefined;
  return { rows, cols: n, whole: [x], writes: [out] };
}

/** All kernels of a variant. */
function kernelsIn({ vector, vectorStreams, vectorHalf, matrix, unpack }: TiledVariant): string[] {
  return [
    vector,
    vectorStreams,
    ...(unpack === undefined ? [] : [unpack]),
    ...(vectorHalf === undefined ? [] : [vectorHalf]),
    ...matrix.flatMap(({ kernel, inStreams }) =>
      inStreams === undefined ? [kernel] : [kernel, inStreams],
    ),
  ];
}

/** All kernels of a matmul. */
export function matmulKernels({ variants }: TiledMatmul): string[] {
  return variants.flatMap(kernelsIn);
}

export const matmulBlocks: InstructionDef<MatmulBlocks> = {
  access: asOne(),
  kernels: matmulKernels,
  code: "target",
  columns: byColumn,

  execute(instruction, c) {
    const i = { ...instruction, w: c.memories.pointer(instruction.w) };
    const compute = i.experts ? expertMatmul : tiledMatmul;
    return compute(i, c, blockTiles(i, c));
  },
};

/** The calls of the kernels of quantized row panels. */
function blockTiles(i: MatmulBlocks, c: ExecutorContext): TileKernels {
  const { spans, codebook } = i;
  const scratch = i.tileScratch + c.thread * i.tileScratchBytes; // read only by kernels that have it
  const unpacked = i.unpacked + c.thread * i.unpackedBytes; // the same
  return {
    tile: (at, unpack) => {
      if (!unpack) return at;
      unpack(at, unpacked, spans, codebook);
      return unpacked;
    },
    vector: (kernel, w, x, out, tiles, apart, outApart) =>
      kernel(w, x, out, spans, tiles, codebook, apart, outApart),
    matrix: (kernel, w, group, x, out, tokenTiles, outStride) =>
      kernel(w, x, out, spans, tokenTiles, codebook, outStride, group, scratch),
    streams: (kernel, w, x, out, tiles, outStride, apart, outApart) =>
      kernel(w, x, out, spans, tiles, codebook, outStride, apart, outApart),
  };
}

export const matmulFloats: InstructionDef<MatmulFloats> = {
  access: asOne(),
  kernels: ({ variants, widen }) => [
    ...variants.flatMap(kernelsIn),
    ...(widen === undefined ? [] : [widen]),
  ],
  code: "target",
  columns: byColumn,

  execute(instruction, c) {
    const i = { ...instruction, w: c.memories.pointer(instruction.w) };
    const compute = i.experts ? expertMatmul : tiledMatmul;
    return compute(i, c, floatTiles(i, c));
  },
};

/** The calls of the kernels of row panels of floats. */
function floatTiles(i: MatmulFloats, c: ExecutorContext): TileKernels {
  const widen = i.widen === undefined ? undefined : c.kernels[i.widen]!;
  const wide = i.wide + c.thread * i.wideBytes;
  const quads = i.k / 4;
  const stride = i.k * 4;
  const tile = (at: number) => {
    if (!widen) return at;
    widen(at, wide, PANEL_ROWS * i.k);
    return wide;
  };
  return {
    tile,
    ...(widen && i.record >= 0 && { check: afterOverflow(i, c, tile) }),
    vector: (kernel, w, x, out, tiles, apart, outApart) =>
      kernel(w, x, out, quads, tiles, apart, outApart),
    matrix: (kernel, w, group, x, out, tokenTiles, outStride) =>
      kernel(w + group * i.groupBytes, x, out, quads, tokenTiles, stride, outStride),
  };
}

/** The calls of the kernels of a matmul's row panels. */
export function tilesOf(i: MatmulBlocks | MatmulFloats, c: ExecutorContext): TileKernels {
  return i.op === "matmul_blocks" ? blockTiles(i, c) : floatTiles(i, c);
}

/**
 * Kernels for coded half floats multiply activations by 2^102 (half-panels.ts), and so take none beyond 2^25. Rows that stay float32
 * may have such values: their results are not finite then, and are computed again by a matrix kernel, from widened panels, as two
 * tokens that are the same one.
 */
function afterOverflow(
  i: MatmulFloats,
  { kernels, views: { i32 } }: ExecutorContext,
  tile: (at: number) => number,
): TileKernels["check"] {
  const pair = i.variants.find(({ matrix }) => matrix.length > 0)?.matrix[0];
  if (!pair) return undefined;
  const kernel = kernels[pair.kernel]!;
  return (w, x, out, tiles) => {
    if (i32[i.record / 4] === 0 || areFinite(i32, out / 4, tiles * PANEL_ROWS)) return;
    for (let t = 0; t < tiles; t++) {
      const base = tile(w + t * i.rowPanelBytes);
      const target = out + t * PANEL_ROWS * 4;
      for (let g = 0; g * i.width < PANEL_ROWS * 4; g += pair.groups) {
        kernel(base + g * i.groupBytes, x, target + g * i.width, i.k / 4, 1, 0, 0);
      }
    }
  };
}

/** Whether no float is infinite or NaN, by its bits. */
function areFinite(bits: Int32Array, at: number, n: number): boolean {
  for (let i = at; i < at + n; i++) {
    if ((bits[i]! & 0x7f800000) === 0x7f800000) return false;
  }
  return true;
}

export const matmulRows: InstructionDef<MatmulRows> = {
  access: asOne(),
  kernels: ({ kernel }) => (kernel === undefined ? [] : [kernel]),
  code: "wasm",

  execute(i, c) {
    if (i.experts) return expertRows(i, c);
    const kernel = dotRowsFor(i, c);
    const dtype = dtypeByName(i.dtype)!;
    const isFloat = dtype.asFloat32 !== undefined;
    const blocks = i.k / dtype.blockElems;
    const scratch = i.scratch + c.thread * i.scratchBytes;
    const floats = c.views.f32.subarray(scratch / 4, scratch / 4 + i.k);
    const bounds = chunkBounds(i.n, c.program.threads);
    return {
      chunks: () => (rowCount(c, i.rows) === 0 ? 0 : bounds.length - 1),
      weight: (chunk) => (bounds[chunk + 1]! - bounds[chunk]!) * i.rowBytes,
      run: (chunk) => {
        const tokens = rowCount(c, i.rows);
        const start = bounds[chunk]!;
        const end = bounds[chunk + 1]!;
        const bytes = c.views.u8.subarray(i.w + start * i.rowBytes, i.w + end * i.rowBytes);
        for (let row = start; row < end; row++) {
          const w = isFloat ? i.w + row * i.rowBytes : scratch;
          if (!isFloat) dtype.dequantize(bytes, (row - start) * i.rowBytes, floats, 0, blocks);
          kernel(w, i.x, i.out + row * 4, i.k, tokens, i.k * 4, i.n * 4);
        }
        addBias(i, c, start, end);
      },
    };
  },
};

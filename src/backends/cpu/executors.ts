// What each instruction of a program does, on whichever thread: how many chunks its work has in this step, and what one
// chunk is. Chunks are independent; threads take them as they come (team.ts), so a thread that is slow or busy elsewhere
// takes fewer.

import { dtypeByName } from "../../dtypes/table.ts";
import { KV_BLOCK_TOKENS } from "../../graph/step.ts";
import { TILE_ROWS } from "../../kernels/ops/packed.ts";
import type { ArenaViews } from "./arena.ts";
import type { Instruction, InstructionKind, InstructionOf, Program, RowKind } from "./program.ts";

/** The kernels, by name. */
export type Kernels = Readonly<Record<string, (...args: number[]) => void>>;

export interface ExecutorContext {
  readonly program: Program;
  readonly kernels: Kernels;
  readonly views: ArenaViews;
  /** This thread's number; 0 is the leader. */
  readonly thread: number;
  /** The leader's own instructions; absent on other threads. */
  readonly leader: readonly (() => void)[] | undefined;
}

export interface Executor {
  /** Chunks in this step; the same on every thread. At most 65535. */
  chunks(): number;
  run(chunk: number): void;
  /** Only the leader can run it. */
  readonly leaderOnly?: boolean;
}

type MakeExecutor<K extends InstructionKind> = (
  instruction: InstructionOf<K>,
  context: ExecutorContext,
) => Executor;

/** Floats of an elementwise chunk: large enough to be worth taking, small enough to share. */
const ELEMENTS_PER_CHUNK = 8192;
/** Chunks per thread, so that one that was held up leaves its share to the others. */
const CHUNKS_PER_THREAD = 4;

const makers: { readonly [K in InstructionKind]: MakeExecutor<K> } = {
  leader: ({ index }, { leader }) => ({
    leaderOnly: true,
    chunks: () => 1,
    run: () => leader![index]!(),
  }),

  rms_norm: (i, c) => {
    const { rms_norm } = c.kernels;
    const groups = i.cols / i.size;
    return perRow(c, i.rows, (row) => {
      const at = row * i.cols * 4;
      rms_norm!(i.x + at, i.weight, i.out + at, groups, i.size, i.eps);
    });
  },

  binary: (i, c) => {
    const kernel = c.kernels[i.kernel]!;
    const total = () => rowCount(c, i.rows) * i.cols;
    return {
      chunks: () => Math.ceil(total() / ELEMENTS_PER_CHUNK),
      run: (chunk) => {
        const from = chunk * ELEMENTS_PER_CHUNK;
        const count = Math.min(ELEMENTS_PER_CHUNK, total() - from);
        kernel(i.a + from * 4, i.b + from * 4, i.out + from * 4, count);
      },
    };
  },

  rope: (i, c) => {
    const kernel = c.kernels[i.kernel]!;
    const heads = i.cols / i.headDim;
    return perRow(c, "tokens", (row) => {
      const at = row * i.cols * 4;
      const table = i.table + row * i.tableSize * 4;
      kernel(i.x + at, i.out + at, table, heads, i.headDim, i.dims);
    });
  },

  kv_write: (i, c) => {
    const kernel = c.kernels[i.kernel]!;
    const { step } = c.program;
    return perRow(c, "tokens", (row) => {
      const position = c.views.i32[step.positions / 4 + row]!;
      const entry =
        step.tables / 4 + row * step.tableLength + Math.floor(position / KV_BLOCK_TOKENS);
      const cacheRow = c.views.i32[entry]! * KV_BLOCK_TOKENS + (position % KV_BLOCK_TOKENS);
      const at = row * i.cols * 4;
      kernel(i.k + at, i.keys + cacheRow * i.rowBytes, i.cols);
      kernel(i.v + at, i.values + cacheRow * i.rowBytes, i.cols);
    });
  },

  attention: makeAttention,

  quantize: (i, c) => {
    const kernel = c.kernels[i.kernel]!;
    const rowBlocks = i.cols / 32;
    return perRow(c, i.rows, (row) => {
      const width = tileWidth(rowCount(c, i.rows), row, i.tile);
      const inTile = row % width;
      const out = i.out + ((row - inTile) * rowBlocks + inTile) * i.blockBytes;
      kernel(i.x + row * i.cols * 4, out, rowBlocks / i.span, width * i.blockBytes);
    });
  },

  round: (i, c) => {
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

  matmul_blocks: (i, c) => {
    const vector = c.kernels[i.vector]!;
    const streams = c.kernels[i.vectorStreams]!;
    const matrix = c.kernels[i.matrix]!;
    const rowBytes = (i.k / 32) * i.blockBytes; // one token's activations
    return tiledMatmul(i, c, {
      tile: (at) => at,
      vector: (w, token, out, tiles) => {
        // Equal shares in as many streams; a few tiles may be left.
        const x = i.x + token * rowBytes;
        const share = Math.floor(tiles / i.streams);
        const apart = share * i.tileBytes;
        const outApart = share * TILE_ROWS * 4;
        if (share > 0) streams(w, x, out, i.spans, share, i.levels, apart, outApart);
        const left = tiles - share * i.streams;
        if (left === 0) return;
        vector(w + i.streams * apart, x, out + i.streams * outApart, i.spans, left, i.levels);
      },
      matrix: (w, out, tokenTiles, outStride) =>
        matrix(w, i.x, out, i.spans, tokenTiles, i.levels, outStride),
    });
  },

  matmul_floats: (i, c) => {
    const vector = c.kernels[i.vector]!;
    const matrix = c.kernels[i.matrix]!;
    const widen = i.widen === undefined ? undefined : c.kernels[i.widen]!;
    const wide = i.wide + c.thread * TILE_ROWS * i.k * 4;
    const quads = i.k / 4;
    const stride = i.k * 4;
    return tiledMatmul(i, c, {
      tile: (at) => {
        if (!widen) return at;
        widen(at, wide, TILE_ROWS * i.k);
        return wide;
      },
      vector: (w, token, out, tiles) =>
        vector(w, i.x + token * stride, out, quads, tiles, stride, 0),
      matrix: (w, out, tokenTiles, outStride) =>
        matrix(w, i.x, out, quads, tokenTiles, stride, outStride),
    });
  },

  matmul_rows: (i, c) => {
    const kernel = c.kernels[i.kernel]!;
    const dtype = dtypeByName(i.dtype)!;
    const blocks = i.k / dtype.blockElems;
    const scratch = i.scratch + c.thread * i.k * 4;
    const floats = c.views.f32.subarray(scratch / 4, scratch / 4 + i.k);
    const perChunk = shareOf(i.n, c, 1);
    return {
      chunks: () => (rowCount(c, i.rows) === 0 ? 0 : Math.ceil(i.n / perChunk)),
      run: (chunk) => {
        const tokens = rowCount(c, i.rows);
        const start = chunk * perChunk;
        const end = Math.min(i.n, start + perChunk);
        const bytes = c.views.u8.subarray(i.w + start * i.rowBytes, i.w + end * i.rowBytes);
        for (let row = start; row < end; row++) {
          dtype.dequantize(bytes, (row - start) * i.rowBytes, floats, 0, blocks);
          kernel(scratch, i.x, i.out + row * 4, i.k, tokens, i.k * 4, i.n * 4);
        }
        addBias(i, c, start, end);
      },
    };
  },
};

/** The kernels that an instruction calls, by name. */
export function kernelsOf(instruction: Instruction): string[] {
  if (instruction.op === "rms_norm") return ["rms_norm"];
  if (instruction.op === "attention") {
    const parts = ["attn_scores", "attn_scores4", "attn_mix", "attn_mix4"];
    return ["softmax", ...parts.map((part) => `${part}_${instruction.kvType}`)];
  }
  const named = ["kernel", "vector", "vectorStreams", "matrix", "widen"] as const;
  const fields = instruction as Partial<Record<(typeof named)[number], string>>;
  return named.flatMap((field) => fields[field] ?? []);
}

export function makeExecutors(context: ExecutorContext): Executor[] {
  return context.program.instructions.map((instruction) => {
    const make = makers[instruction.op] as MakeExecutor<InstructionKind>;
    return make(instruction, context);
  });
}

function rowCount({ program, views }: ExecutorContext, rows: RowKind): number {
  return views.i32[program.step.counts / 4 + (rows === "tokens" ? 0 : 1)]!;
}

function perRow(c: ExecutorContext, rows: RowKind, run: (row: number) => void): Executor {
  return { chunks: () => rowCount(c, rows), run };
}

/** Items of a chunk when `total` are shared out, in multiples of `unit`. */
function shareOf(total: number, { program }: ExecutorContext, unit: number): number {
  const share = Math.ceil(total / (program.threads * CHUNKS_PER_THREAD) / unit) * unit;
  return Math.max(unit, share);
}

/** How many tokens are in the tile of a row: full tiles come first, then single tokens. */
function tileWidth(rows: number, row: number, tile: number): number {
  return row < rows - (rows % tile) ? tile : 1;
}

type TiledInstruction = InstructionOf<"matmul_blocks"> | InstructionOf<"matmul_floats">;

interface TileKernels {
  /** Where the tile at this address can be read by the matrix kernel. */
  tile(at: number): number;
  /** All rows of `tiles` tiles for one token. */
  vector(w: number, token: number, out: number, tiles: number): void;
  /** `groups` groups of one tile for all full token tiles. */
  matrix(w: number, out: number, tokenTiles: number, outStride: number): void;
}

/** Chunks are runs of row tiles. Full token tiles go through the matrix kernel, tokens left over one by one. */
function tiledMatmul(i: TiledInstruction, c: ExecutorContext, kernels: TileKernels): Executor {
  const tiles = Math.ceil(i.n / TILE_ROWS);
  const wholeTiles = Math.floor(i.n / TILE_ROWS);
  const perChunk = shareOf(tiles, c, 1);
  const scratch = i.scratch + c.thread * i.scratchBytes;
  const runTiles = (from: number, to: number, out: number, outStride: number) => {
    const tokens = rowCount(c, i.rows);
    const tokenTiles = Math.floor(tokens / i.tile);
    if (tokenTiles > 0) {
      for (let tile = from; tile < to; tile++) {
        const base = kernels.tile(i.w + tile * i.tileBytes);
        for (let g = 0; g < 4; g += i.groups) {
          const w = base + g * i.groupBytes;
          kernels.matrix(w, out + ((tile - from) * TILE_ROWS + g * 4) * 4, tokenTiles, outStride);
        }
      }
    }
    for (let token = tokenTiles * i.tile; token < tokens; token++) {
      kernels.vector(i.w + from * i.tileBytes, token, out + token * outStride, to - from);
    }
  };
  return {
    chunks: () => (rowCount(c, i.rows) === 0 ? 0 : Math.ceil(tiles / perChunk)),
    run: (chunk) => {
      const from = chunk * perChunk;
      const to = Math.min(tiles, from + perChunk);
      const whole = Math.min(to, wholeTiles);
      if (whole > from) runTiles(from, whole, i.out + from * TILE_ROWS * 4, i.n * 4);
      if (to > wholeTiles) {
        // The last tile has rows that do not exist: compute it beside, and keep the real ones.
        runTiles(wholeTiles, tiles, scratch, TILE_ROWS * 4);
        copyTail(i, c, scratch, wholeTiles * TILE_ROWS);
      }
      addBias(i, c, from * TILE_ROWS, Math.min(i.n, to * TILE_ROWS));
    },
  };
}

function copyTail(
  i: TiledInstruction,
  c: ExecutorContext,
  scratch: number,
  firstRow: number,
): void {
  const { f32 } = c.views;
  const rows = rowCount(c, i.rows);
  const count = i.n - firstRow;
  for (let token = 0; token < rows; token++) {
    const from = scratch / 4 + token * TILE_ROWS;
    f32.copyWithin(i.out / 4 + token * i.n + firstRow, from, from + count);
  }
}

function addBias(
  i: { bias: number; n: number; out: number; rows: RowKind },
  c: ExecutorContext,
  from: number,
  to: number,
): void {
  if (i.bias < 0) return;
  const { f32 } = c.views;
  const rows = rowCount(c, i.rows);
  for (let token = 0; token < rows; token++) {
    const at = i.out / 4 + token * i.n;
    for (let row = from; row < to; row++) f32[at + row]! += f32[i.bias / 4 + row]!;
  }
}

/** Query heads that the wide attention kernels take at once. */
export const WIDE_HEADS = 4;

/**
 * Chunks are (token, KV head): the query heads that share a KV head read the same keys and values, four of them in one
 * pass where there are as many.
 */
function makeAttention(i: InstructionOf<"attention">, c: ExecutorContext): Executor {
  const { softmax } = c.kernels;
  const [scores1, mix1] = [
    c.kernels[`attn_scores_${i.kvType}`]!,
    c.kernels[`attn_mix_${i.kvType}`]!,
  ];
  const [scores4, mix4] = [
    c.kernels[`attn_scores4_${i.kvType}`]!,
    c.kernels[`attn_mix4_${i.kvType}`]!,
  ];
  const { step } = c.program;
  const sharing = i.heads / i.kvHeads;
  const { keys, values, rowBytes, headDim, scale } = i;
  const headStride = headDim * 4;
  const scoreStride = c.program.scoresLength * 4;
  const scores = c.program.scores + c.thread * WIDE_HEADS * scoreStride;
  return {
    chunks: () => rowCount(c, "tokens") * i.kvHeads,
    run: (chunk) => {
      const token = Math.floor(chunk / i.kvHeads);
      const kvHead = chunk % i.kvHeads;
      const length = c.views.i32[step.positions / 4 + token]! + 1;
      const blocks = Math.floor(length / KV_BLOCK_TOKENS);
      const last = length % KV_BLOCK_TOKENS;
      const table = step.tables + token * step.tableLength * 4;
      const offset = kvHead * i.headBytes;
      const first = (token * i.heads + kvHead * sharing) * headStride;
      let head = 0;
      for (; head + WIDE_HEADS <= sharing; head += WIDE_HEADS) {
        const at = first + head * headStride;
        // biome-ignore format: a kernel's parameters in their order
        scores4(i.q + at, keys, table, scores, blocks, last, rowBytes, offset, headDim, scale, headStride, scoreStride);
        for (let row = 0; row < WIDE_HEADS; row++) {
          softmax!(scores + row * scoreStride, scores + row * scoreStride, length);
        }
        // biome-ignore format: a kernel's parameters in their order
        mix4(scores, values, table, i.out + at, blocks, last, rowBytes, offset, headDim, scoreStride, headStride);
      }
      for (; head < sharing; head++) {
        const at = first + head * headStride;
        scores1(i.q + at, keys, table, scores, blocks, last, rowBytes, offset, headDim, scale);
        softmax!(scores, scores, length);
        mix1(scores, values, table, i.out + at, blocks, last, rowBytes, offset, headDim);
      }
    },
  };
}

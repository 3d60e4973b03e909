// The instructions of a matrix product: activations are prepared (quantize, round), then multiplied (matmul_blocks,
// matmul_floats, matmul_rows). Chunks of a product are runs of its output columns, for all tokens.

import { dtypeByName } from "../../dtypes/table.ts";
import { TILE_ROWS } from "../../kernels/ops/packed.ts";
import {
  type Executor,
  type ExecutorContext,
  type MakeExecutor,
  perRow,
  rowCount,
  shareOf,
} from "./executor.ts";
import type { InstructionOf, RowKind } from "./program.ts";

type MatmulKind = "quantize" | "round" | "matmul_blocks" | "matmul_floats" | "matmul_rows";

export const matmulMakers: { readonly [K in MatmulKind]: MakeExecutor<K> } = {
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

// Matrices of floats in tiles: for each type, how a tile is packed from rows of the file, how a row is read back, and what
// widens it to float32 for the kernels that multiply several tokens. kernels/ops/matmul-floats.ts multiplies them.

import { bf16ToF32 } from "../../base/half.ts";
import { HALF_TILE_HEADER, packHalfTile, readHalfTile } from "../../kernels/ops/half-tiles.ts";
import { TILE_ROWS } from "../../kernels/ops/packed.ts";

export type FloatType = "f32" | "f16" | "bf16";

export interface FloatTiles {
  /** Bytes of a tile of so many columns. */
  tileBytes(cols: number): number;
  /** The kernel that widens a tile: (tile, out, n). */
  readonly widen?: string;
  /** Up to 16 rows of the file into the tile at this address, which is zero as yet. */
  pack(source: DataView, rows: number, cols: number, buffer: ArrayBufferLike, at: number): void;
  /** Row 0 to 15 of the tile at this address into target[to...]. */
  read(
    buffer: ArrayBufferLike,
    at: number,
    row: number,
    cols: number,
    target: Float32Array,
    to: number,
  ): void;
}

export const floatTiles: Readonly<Record<FloatType, FloatTiles>> = {
  f32: {
    tileBytes: (cols) => 4 * TILE_ROWS * cols,
    pack: (source, rows, cols, buffer, at) => {
      const words = new Uint32Array(buffer, at, TILE_ROWS * cols);
      for (let row = 0; row < rows; row++) {
        for (let col = 0; col < cols; col++) {
          words[col * TILE_ROWS + row] = source.getUint32(4 * (row * cols + col), true);
        }
      }
    },
    read: (buffer, at, row, cols, target, to) => {
      const values = new Float32Array(buffer, at, TILE_ROWS * cols);
      for (let c = 0; c < cols; c++) target[to + c] = values[c * TILE_ROWS + row]!;
    },
  },
  f16: {
    tileBytes: (cols) => HALF_TILE_HEADER + 2 * TILE_ROWS * cols,
    widen: "widen_tile_f16",
    pack: (source, rows, cols, buffer, at) => {
      const codes = new Uint16Array(buffer, at + HALF_TILE_HEADER, TILE_ROWS * cols);
      packHalfTile(source, rows, cols, codes, new Float32Array(buffer, at, HALF_TILE_HEADER / 4));
    },
    read: (buffer, at, row, cols, target, to) => {
      const codes = new Uint16Array(buffer, at + HALF_TILE_HEADER, TILE_ROWS * cols);
      const header = new Float32Array(buffer, at, HALF_TILE_HEADER / 4);
      readHalfTile(codes, header, row, cols, target, to);
    },
  },
  bf16: {
    tileBytes: (cols) => 2 * TILE_ROWS * cols,
    widen: "widen_bf16",
    pack: (source, rows, cols, buffer, at) => {
      const halves = new Uint16Array(buffer, at, TILE_ROWS * cols);
      for (let row = 0; row < rows; row++) {
        for (let col = 0; col < cols; col++) {
          halves[col * TILE_ROWS + row] = source.getUint16(2 * (row * cols + col), true);
        }
      }
    },
    read: (buffer, at, row, cols, target, to) => {
      const halves = new Uint16Array(buffer, at, TILE_ROWS * cols);
      for (let c = 0; c < cols; c++) target[to + c] = bf16ToF32(halves[c * TILE_ROWS + row]!);
    },
  },
};

/** The type's tiles, if it has any. */
export function floatTypeOf(dtype: string): FloatType | undefined {
  return Object.hasOwn(floatTiles, dtype) ? (dtype as FloatType) : undefined;
}

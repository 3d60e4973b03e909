// Matrices of floats in tiles: for each type, how a tile is packed from rows of the file, how a row is read back, and what
// widens it to float32 for the kernels that multiply several tokens. kernels/ops/matmul/floats.ts multiplies them.
//
// Tiles do not depend on the width of a vector, those of F16 on how the target reads half floats. Targets that have an
// instruction for that multiply half floats as they are, also for several tokens: nothing is widened.

import { bf16ToF32, f16ToF32 } from "../../../base/half.ts";
import {
  HALF_TILE_HEADER,
  packHalfTile,
  readHalfTile,
} from "../../../kernels/ops/packed/half-tiles.ts";
import { TILE_ROWS } from "../../../kernels/ops/packed/packed.ts";
import type { Halves, KernelTarget } from "../../../kernels/target.ts";

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

const f32Tiles: FloatTiles = {
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
};

const codedF16Tiles: FloatTiles = {
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
};

/** Two bytes a weight, as in the file. */
function plainHalfTiles(value: (bits: number) => number): FloatTiles {
  return {
    tileBytes: (cols) => 2 * TILE_ROWS * cols,
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
      for (let c = 0; c < cols; c++) target[to + c] = value(halves[c * TILE_ROWS + row]!);
    },
  };
}

const bf16Tiles = plainHalfTiles(bf16ToF32);

const floatTiles: Readonly<Record<Halves, Readonly<Record<FloatType, FloatTiles>>>> = {
  coded: { f32: f32Tiles, f16: codedF16Tiles, bf16: { ...bf16Tiles, widen: "widen_bf16" } },
  hardware: { f32: f32Tiles, f16: plainHalfTiles((bits) => f16ToF32[bits]!), bf16: bf16Tiles },
};

export function floatTilesFor(
  type: FloatType,
  { halves }: Pick<KernelTarget, "halves">,
): FloatTiles {
  return floatTiles[halves][type];
}

/** The type's tiles, if it has any. */
export function floatTypeOf(dtype: string): FloatType | undefined {
  return Object.hasOwn(floatTiles.coded, dtype) ? (dtype as FloatType) : undefined;
}

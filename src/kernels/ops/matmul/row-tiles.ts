// Register tiles over weights as the file has them: B0 rows x B1 tokens, a vector of sums along the columns for each pair.
// Opt level 2 is the tile of one row and one token; `lantern bench matmul --tile` measures the others. Opt level 3 uses none of
// this: its row panels (packed/) need no sum over lanes at the end.
//
// Floats are multiplied as they are. Quantized blocks are multiplied as integers with activations in bytes
// (quantize-activations.ts): scales are widened once for all tokens, quants are unpacked in registers.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import type { KernelTarget } from "../../target.ts";
import { RAISED_SCALE } from "../packed/half-panels.ts";
import {
  ACTIVATION_FIELDS,
  ACTIVATION_QUANTS_AT,
  activationBlockBytes,
  BLOCK_COLS,
} from "../packed/packed.ts";

/** A register tile: B0 rows and B1 tokens. */
export interface RowTile {
  readonly rows: number;
  readonly tokens: number;
}

/** Rows and tokens of the largest register tile. Compilers spill its sums; it is there to be measured. */
export const MOST_ROW_TILE = 8;

/** The layout of a block of 32 weights in the file. Its scale is a half float at its first byte. */
export interface RowBlock {
  readonly bytes: number;
  readonly quantsAt: number;
  /** 4: the first 16 weights are low nibbles, the last 16 high ones. */
  readonly bits: 4 | 8;
  /** The number that is subtracted from each quant. */
  readonly offset: number;
  /** Another half float after the scale: the number that is added to each weight. */
  readonly hasMin: boolean;
}

const rowBlocks: Readonly<Record<string, RowBlock>> = {
  q4_0: { bytes: 18, quantsAt: 2, bits: 4, offset: 8, hasMin: false },
  q4_1: { bytes: 20, quantsAt: 4, bits: 4, offset: 0, hasMin: true },
  q8_0: { bytes: 34, quantsAt: 2, bits: 8, offset: 0, hasMin: false },
};

/** undefined: rows of this type are unpacked to floats. */
export function rowBlockOf(dtype: string): RowBlock | undefined {
  return rowBlocks[dtype];
}

const WIDTH = 16;

/** (w, x, out, columns, tiles, rowBytes, xStride, outStride): `tiles` token tiles; columns are a multiple of the lanes. */
export function floatRowTile({ rows, tokens }: RowTile): Kernel {
  const k = new KernelBuilder(`rows_f32_${rows}x${tokens}`, WIDTH);
  const w = k.param("ptr", "w");
  const x = k.param("ptr", "x");
  const out = k.param("ptr", "out");
  const columns = k.param("i32", "columns");
  const tiles = k.param("i32", "tiles");
  const rowBytes = k.param("i32", "rowBytes");
  const xStride = k.param("i32", "xStride");
  const outStride = k.param("i32", "outStride");
  const vectors = k.op("i32.shr_u", [columns], Math.log2(k.lanes));
  const firstOf = (base: Reg<"ptr">, stride: Reg<"i32">, index: number) =>
    k.op("ptr.add_product", [base, stride, k.i32(index)]);
  const a = range(rows, () => k.variable(w)); // [rows]
  const b = range(tokens, () => k.variable(x)); // [tokens]
  const zero = k.op("f32v.const", [], 0);
  k.loop(tiles, () => {
    a.forEach((pointer, row) => {
      k.set(pointer, firstOf(w, rowBytes, row));
    });
    b.forEach((pointer, token) => {
      k.set(pointer, firstOf(x, xStride, token));
    });
    const sums = range(rows, () => range(tokens, () => k.variable(zero))); // [rows][tokens]
    k.loop(vectors, () => {
      const ofTokens = b.map((pointer) => k.op("f32v.load", [pointer]));
      a.forEach((pointer, row) => {
        const ofRow = k.op("f32v.load", [pointer]);
        ofTokens.forEach((ofToken, token) => {
          const sum = sums[row]![token]!;
          k.update(sum, "f32v.fma", [ofRow, ofToken, sum]);
        });
      });
      for (const pointer of [...a, ...b]) k.advance(pointer, k.width);
    });
    storeSums(k, out, outStride, sums);
    k.set(x, firstOf(x, xStride, tokens));
    k.set(out, firstOf(out, outStride, tokens));
  });
  return k.finish();
}

/** Bytes from a block's widened scales to the next one's, which all rows of the tile share; the end is for whole stores. */
export function scaleStride(rows: number): number {
  return (rows + 2) * 8;
}

/**
 * (w, out, blocks, outStride): the scale and a quarter of the min of each block of a row, as floats. The min is added to all
 * four lanes of a vector of sums. Activations beside coded half floats are raised, which is undone here; nothing is rounded.
 */
export function rowScales(dtype: string, { halves }: Pick<KernelTarget, "halves">): Kernel {
  const { bytes, hasMin } = rowBlockOf(dtype)!;
  const k = new KernelBuilder(`row_scales_${dtype}`, WIDTH);
  const w = k.param("ptr", "w");
  const out = k.param("ptr", "out");
  const blocks = k.param("i32", "blocks");
  const outStride = k.param("i32", "outStride");
  const factor = halves === "coded" ? 1 / RAISED_SCALE : 1;
  const onScale = k.op("f32v.const", [], factor);
  const onMin = k.op("f32v.const", [], factor / 4);
  k.loop(blocks, () => {
    // Each store writes a whole vector of which only the first lane counts.
    const scale = k.op("f32v.mul", [k.op("f32v.load_f16", [w]), onScale]);
    k.op("f32v.store", [out, scale]);
    if (hasMin) {
      const min = k.op("f32v.mul", [k.op("f32v.load_f16", [w], 2), onMin]);
      k.op("f32v.store", [out, min], 4);
    }
    k.advance(w, bytes);
    k.update(out, "ptr.add", [out, outStride]);
  });
  return k.finish();
}

/**
 * (w, scales, x, out, blocks, tiles, rowBytes, outStride): `tiles` token tiles, whose activations are interleaved block by
 * block.
 */
export function blockRowTile(dtype: string, { rows, tokens }: RowTile): Kernel {
  const block = rowBlockOf(dtype)!;
  const k = new KernelBuilder(`rows_${dtype}_${rows}x${tokens}`, WIDTH);
  const w = k.param("ptr", "w");
  const scales = k.param("ptr", "scales");
  const x = k.param("ptr", "x");
  const out = k.param("ptr", "out");
  const blocks = k.param("i32", "blocks");
  const tiles = k.param("i32", "tiles");
  const rowBytes = k.param("i32", "rowBytes");
  const outStride = k.param("i32", "outStride");
  const a = range(rows, () => k.variable(w)); // [rows]
  const s = k.variable(scales);
  const zero = k.op("f32v.const", [], 0);
  const none = k.op("i32v.const", [], 0);
  const tokenBytes = activationBlockBytes(false, k.width);
  // Nibbles are 0..15; quants with an offset and bytes have signs.
  const dot4 = block.bits === 4 && block.offset === 0 ? "i32v.dot4" : "i32v.dot4_ss";
  k.loop(tiles, () => {
    a.forEach((pointer, row) => {
      k.set(pointer, k.op("ptr.add_product", [w, rowBytes, k.i32(row)]));
    });
    k.set(s, scales);
    const sums = range(rows, () => range(tokens, () => k.variable(zero))); // [rows][tokens]
    k.loop(blocks, () => {
      const ofTokens = range(tokens, (token) => activationBlock(k, x, token * tokenBytes));
      a.forEach((pointer, row) => {
        const quants = rowQuants(k, pointer, block);
        const scale = k.op("f32v.load_splat", [s], row * 8);
        const min = block.hasMin ? k.op("f32v.load_splat", [s], row * 8 + 4) : undefined;
        ofTokens.forEach((token, index) => {
          const sum = sums[row]![index]!;
          const products = quants.reduce(
            (dots, quant, half) => k.op(dot4, [token.quants[half]!, quant, dots]),
            none,
          );
          const factor = k.op("f32v.mul", [scale, token.scale]);
          k.update(sum, "f32v.fma", [factor, k.op("f32v.from_i32v", [products]), sum]);
          if (min) k.update(sum, "f32v.fma", [min, token.scaledSum(), sum]);
        });
        k.advance(pointer, block.bytes);
      });
      k.advance(s, scaleStride(rows));
      k.advance(x, tokens * tokenBytes);
    });
    storeSums(k, out, outStride, sums);
    k.set(out, k.op("ptr.add_product", [out, outStride, k.i32(tokens)]));
  });
  return k.finish();
}

/** A block of a token's activations. */
function activationBlock(k: KernelBuilder, x: Reg<"ptr">, at: number) {
  const field = (index: number) => k.op("f32v.load_splat", [x], at + 4 * index);
  return {
    quants: [0, 1].map((half) =>
      k.op("i8v.load", [x], at + ACTIVATION_QUANTS_AT + (half * BLOCK_COLS) / 2),
    ),
    scale: field(ACTIVATION_FIELDS.scale),
    scaledSum: () => field(ACTIVATION_FIELDS.scaledSum),
  };
}

/** The quants of a block as two vectors of bytes. */
function rowQuants(k: KernelBuilder, w: Reg<"ptr">, block: RowBlock): Reg<"i8v">[] {
  const { bits, quantsAt, offset } = block;
  const first = k.op("i8v.load", [w], quantsAt);
  if (bits === 8) return [first, k.op("i8v.load", [w], quantsAt + k.width)];
  const low = k.op("i8v.and", [first, k.op("i8v.splat", [], 15)]);
  const high = k.op("i8v.shr_u", [first], 4);
  if (offset === 0) return [low, high];
  return [low, high].map((quants) => k.op("i8v.sub", [quants, k.op("i8v.splat", [], offset)]));
}

/** Stores the sum of each vector: f32 [tokens][outStride bytes], rows side by side. */
function storeSums(
  k: KernelBuilder,
  out: Reg<"ptr">,
  outStride: Reg<"i32">,
  sums: readonly (readonly Reg<"f32v">[])[],
): void {
  const tokens = sums[0]!.length;
  for (let token = 0; token < tokens; token++) {
    const at = k.op("ptr.add_product", [out, outStride, k.i32(token)]);
    sums.forEach((ofRow, row) => {
      k.op("f32.store", [at, k.op("f32v.sum", [ofRow[token]!])], 4 * row);
    });
  }
}

function range<T>(count: number, make: (index: number) => T): T[] {
  return Array.from({ length: count }, (_, index) => make(index));
}

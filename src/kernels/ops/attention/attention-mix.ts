// attn_mix_<kv>: out[i] = sum over p of scores[p] * value p[i], over all positions of a paged cache, for one query.
// attn_mix4_<kv>: the same for four queries over the same values (heads that share a KV head, or neighbouring tokens): the
// scores of query j are scoreStride bytes after those of query j - 1, its results outStride bytes after.
//
// `isNew` is 1 if the sums begin with 0, and 0 if they begin with the values in out. Every kernel and register tile adds
// in the order of the positions.
// `values` is the first row of the layer's first block, `headOffset` where the head starts in a row, in bytes; table,
// blocks, last, rowBytes as in kv-walk.ts. headDim is a multiple of the lanes (types with blocks: of 32).
// Within a block of positions, the sums of a piece of the head stay in registers over all rows; between blocks, sums are in
// out. So a block's rows come from memory for the first piece, and from the nearest cache for the others.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import { type KernelMaker, lazily } from "../../ir/lazy-kernel.ts";
import { forEachVector, manyRegisters, remainder, store, stream } from "../loops.ts";
import type { KvFormat, KvReader } from "./kv-format.ts";
import { kvFormats } from "./kv-formats.ts";
import { blockRows, type RowRange, strided, walkBlocks, walkRows } from "./kv-walk.ts";

export interface MixTile {
  readonly queries: number;
  /** Positions per round of the loop. */
  readonly rows: number;
  /**
   * Vectors of the head whose sums are kept in registers, largest first. A format with blocks reads a block at a time and
   * uses the first of these numbers.
   */
  readonly pieces: readonly number[];
  /** Whether scores are in registers, or are read for each vector. */
  readonly scores: "held" | "read";
}

/** Each takes the bytes of a vector register and the number of registers. */
export const attentionMix: readonly KernelMaker[] = kvFormats.flatMap((format) => [
  lazily(`attn_mix_${format.name}`, (width) =>
    mixKernel(width, format, { queries: 1, rows: 4, pieces: [8, 4, 1], scores: "held" }),
  ),
  lazily(`attn_mix4_${format.name}`, (width, registers = manyRegisters) => {
    // Eight sums fit sixteen registers. q8_0 on WebAssembly gains more from using a scaled score for more vectors.
    const isFew = registers < manyRegisters;
    const isSmall = isFew || (width === 16 && !format.blockValues);
    const most = isSmall ? 2 : 4;
    return mixKernel(width, format, {
      queries: 4,
      rows: 4,
      pieces: [4, 2, 1].filter((vectors) => vectors <= (isFew && format.registers > 3 ? 1 : most)),
      scores: format.registers > (isFew ? 1 : 3) ? "read" : "held",
    });
  }),
]);

function mixKernel(width: number, format: KvFormat, tile: MixTile): Kernel {
  const many = tile.queries > 1;
  const k = new KernelBuilder(`attn_mix${many ? tile.queries : ""}_${format.name}`, width);
  const scores = k.param("ptr", "scores");
  const values = k.param("ptr", "values");
  const table = k.param("ptr", "table");
  const out = k.param("ptr", "out");
  const blocks = k.param("i32", "blocks");
  const last = k.param("i32", "last");
  const rowBytes = k.param("i32", "rowBytes");
  const headOffset = k.param("i32", "headOffset");
  const headDim = k.param("i32", "headDim");
  const isNew = k.param("i32", "isNew");
  const scoreStride = many ? k.param("i32", "scoreStride") : undefined;
  const outStride = many ? k.param("i32", "outStride") : undefined;

  const scoreRows = strided(k, scores, tile.queries, scoreStride).map((p) => k.variable(p));
  const outRows = strided(k, out, tile.queries, outStride);
  k.loop(isNew, () => {
    for (const row of outRows) clear(k, row, headDim);
  });
  const reader = format.reader(k);
  const cache = k.op("ptr.add", [values, headOffset]);
  walkBlocks(k, { cache, table, blocks, last, rowBytes }, (range) => {
    mixBlock(k, format, reader, tile, range, headDim, scoreRows, outRows);
    for (const pointer of scoreRows) k.advance(pointer, 4 * blockRows);
  });
  return k.finish();
}

export function clear(k: KernelBuilder, pointer: Reg<"ptr">, n: Reg<"i32">): void {
  const target = stream(k, pointer);
  const zero = k.op("f32v.const", [], 0);
  forEachVector(k, n, 1, [target], (i) => store(k, target, i, zero));
}

/** out += scores * values over the rows of a block, one piece of the head after the other. */
export function mixBlock(
  k: KernelBuilder,
  format: KvFormat,
  reader: KvReader,
  tile: MixTile,
  range: RowRange,
  headDim: Reg<"i32">,
  scores: readonly Reg<"ptr">[],
  outRows: readonly Reg<"ptr">[],
): void {
  const first = k.variable(range.first);
  const outs = outRows.map((row) => k.variable(row));
  const blockVectors = format.blockValues ? format.blockValues / k.lanes : undefined;
  let left = headDim;
  for (const vectors of blockVectors ? [blockVectors] : tile.pieces) {
    const count = vectors * k.lanes;
    const rounds = k.op("i32.shr_u", [left], Math.log2(count));
    const perPiece = Math.min(vectors, tile.pieces[0]!);
    k.loop(rounds, () => {
      for (let from = 0; from < vectors; from += perPiece) {
        const indices = Array.from({ length: perPiece }, (_, i) => from + i);
        mixPiece(k, reader, { ...tile, indices }, { ...range, first }, scores, outs);
      }
      k.advance(first, format.bytes(count));
      for (const out of outs) k.advance(out, count * 4);
    });
    left = remainder(k, left, rounds, count);
  }
}

/** One piece: the vectors of the head with these indices. */
function mixPiece(
  k: KernelBuilder,
  reader: KvReader,
  { indices, rows, scores: kept }: MixTile & { readonly indices: readonly number[] },
  range: RowRange,
  scores: readonly Reg<"ptr">[],
  outs: readonly Reg<"ptr">[],
): void {
  const sums = outs.map((out) =>
    indices.map((index) => k.variable(k.op("f32v.load", [out], index * k.width))),
  );
  const scoreAt = scores.map((pointer) => k.variable(pointer));
  walkRows(k, range, rows, (pointers) => {
    pointers.forEach((row, r) => {
      const { load, scale } = reader(row);
      const weigh = (pointer: Reg<"ptr">) => {
        const score = k.op("f32v.load_splat", [pointer], 4 * r);
        return scale ? k.op("f32v.mul", [score, scale]) : score;
      };
      const held = kept === "held" ? scoreAt.map(weigh) : [];
      indices.forEach((index, i) => {
        const value = load(index);
        scoreAt.forEach((pointer, j) => {
          const weight = held[j] ?? weigh(pointer);
          k.update(sums[j]![i]!, "f32v.fma", [weight, value, sums[j]![i]!]);
        });
      });
    });
    for (const pointer of scoreAt) k.advance(pointer, 4 * pointers.length);
  });
  outs.forEach((out, j) => {
    indices.forEach((index, i) => {
      k.op("f32v.store", [out, sums[j]![i]!], index * k.width);
    });
  });
}

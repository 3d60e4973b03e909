// attn_mix_<kv>: out[i] = sum over p of scores[p] * value p[i], over all positions of a paged cache, for one head.
// attn_mix4_<kv>: the same for four rows of scores at once over the same values (heads that share a KV head): scores of
// query j are scoreStride bytes after those of query j - 1, its out outStride bytes after the other's.
//
// `values` is the first row of the layer's first block, `headOffset` where the head starts in a row, in bytes; table,
// blocks, last, rowBytes as in kv-walk.ts. headDim is a multiple of the lanes (q8_0: of 32).
// A piece of the head at a time stays in registers while all positions go by.

import { KernelBuilder } from "../ir/builder.ts";
import type { Kernel, Reg } from "../ir/kernel.ts";
import { strided } from "./attention-scores.ts";
import { type KvFormat, kvFormats } from "./kv-format.ts";
import { type PagedRows, walkRows } from "./kv-walk.ts";
import { remainder } from "./loops.ts";

export interface MixTile {
  readonly queries: number;
  /** Positions per round of the loop. */
  readonly rows: number;
  /** Vectors of the head that are kept in registers, most first; what the format needs together replaces them. */
  readonly pieces: readonly number[];
}

export const attentionMix: readonly ((width: number) => Kernel)[] = kvFormats.flatMap((format) => [
  (width: number) => mixKernel(width, format, { queries: 1, rows: 4, pieces: [8, 4, 1] }),
  (width: number) => mixKernel(width, format, { queries: 4, rows: 1, pieces: [4, 1] }),
]);

export function mixKernel(width: number, format: KvFormat, tile: MixTile): Kernel {
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
  const scoreStride = many ? k.param("i32", "scoreStride") : undefined;
  const outStride = many ? k.param("i32", "outStride") : undefined;

  const scoreRows = strided(k, scores, tile.queries, scoreStride);
  const outRows = strided(k, out, tile.queries, outStride).map((p) => k.variable(p));
  const cache = k.variable(k.op("ptr.add", [values, headOffset]));
  const paged = { cache, table, blocks, last, rowBytes };
  const blockVectors = format.blockValues ? format.blockValues / k.lanes : undefined;
  let left = headDim;
  for (const vectors of blockVectors ? [blockVectors] : tile.pieces) {
    const count = vectors * k.lanes;
    const rounds = k.op("i32.shr_u", [left], Math.log2(count));
    k.loop(rounds, () => {
      mixPiece(k, format, { vectors, rows: tile.rows }, paged, scoreRows, outRows);
      k.advance(cache, format.bytes(count));
      for (const row of outRows) k.advance(row, count * 4);
    });
    left = remainder(k, left, rounds, count);
  }
  return k.finish();
}

/** `vectors` vectors of the head, at the cache's and the out pointers, over all positions. */
function mixPiece(
  k: KernelBuilder,
  format: KvFormat,
  piece: { vectors: number; rows: number },
  paged: PagedRows,
  scores: readonly Reg<"ptr">[],
  outs: readonly Reg<"ptr">[],
): void {
  const zero = k.op("f32v.const", [], 0);
  const indices = Array.from({ length: piece.vectors }, (_, i) => i);
  const sums = outs.map(() => indices.map(() => k.variable(zero)));
  const scoreAt = scores.map((pointer) => k.variable(pointer));
  walkRows(k, paged, piece.rows, (rows, first) => {
    strided(k, first, rows, paged.rowBytes).forEach((row, r) => {
      const { load, scale } = format.open(k, row);
      const weights = scoreAt.map((pointer) => {
        const score = k.op("f32v.load_splat", [pointer], 4 * r);
        return scale ? k.op("f32v.mul", [score, scale]) : score;
      });
      for (const i of indices) {
        const value = load(i);
        weights.forEach((weight, j) => {
          k.update(sums[j]![i]!, "f32v.fma", [weight, value, sums[j]![i]!]);
        });
      }
    });
    for (const pointer of scoreAt) k.advance(pointer, 4 * rows);
  });
  outs.forEach((out, j) => {
    for (const i of indices) k.op("f32v.store", [out, sums[j]![i]!], i * k.width);
  });
}

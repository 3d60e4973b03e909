// Attention of many queries over the same rows, which kv-widen.ts has made float32: [rows][headDim], without gaps.
//
// attn_scores_many: scores[j][p] = q j . key p, for `groups` times four queries and `fours` times four rows.
// attn_mix_many: out[j][i] += sum over p of scores[j][p] * value p[i], for `groups` times four queries and any number of rows.
// attn_mix_few: the same for single queries: `groups` is their number.
//
// Query j of a group is queryStride bytes after query j - 1, and a group groupStride bytes after the one before; rows of scores
// are scoreStride bytes apart, those of a group after those of the one before. `isNew` as in attention-mix.ts.
//
// Products are added in the order of attention-scores.ts and attention-mix.ts, so a query gets the same bits from either.
// A vector of keys serves four queries and one of a query four keys: 16 fused multiply-adds for 8 loads. Of values, 16 vectors and
// four of scores serve 64.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import { type KernelMaker, lazily } from "../../ir/lazy-kernel.ts";
import { manyRegisters } from "../loops.ts";
import { clear, type MixTile, mixBlock } from "./attention-mix.ts";
import {
  addQueryByQuery,
  dotProducts,
  type FourVectors,
  roundsOver,
  rowsAtOnce,
  wide,
} from "./attention-scores.ts";
import { f32Rows } from "./kv-formats.ts";
import { strided } from "./kv-walk.ts";

const queriesAtOnce = 4;

/** Each takes the bytes of a vector register and the number of registers. */
export const attentionMany: readonly KernelMaker[] = [
  lazily("attn_scores_many", scoresKernel),
  lazily("attn_mix_many", (width, registers) => mixKernel(width, registers, queriesAtOnce)),
  lazily("attn_mix_few", (width, registers) => mixKernel(width, registers, 1)),
];

function scoresKernel(width: number, registers: number = manyRegisters): Kernel {
  const k = new KernelBuilder("attn_scores_many", width);
  const q = k.param("ptr", "q");
  const keys = k.param("ptr", "keys");
  const scores = k.param("ptr", "scores");
  const groups = k.param("i32", "groups");
  const fours = k.param("i32", "fours");
  const headDim = k.param("i32", "headDim");
  const queryStride = k.param("i32", "queryStride");
  const groupStride = k.param("i32", "groupStride");
  const scoreStride = k.param("i32", "scoreStride");

  const reader = f32Rows.reader(k);
  const rounds = roundsOver(k, f32Rows, wide, headDim);
  const rowBytes = k.op("i32.mul", [headDim, k.i32(4)]);
  const fourRows = k.op("i32.mul", [rowBytes, k.i32(rowsAtOnce)]);
  const groupScores = k.op("i32.mul", [scoreStride, k.i32(queriesAtOnce)]);
  const atOnce = registers < manyRegisters ? 2 : queriesAtOnce;
  const firstQuery = k.variable(q);
  const firstScores = k.variable(scores);
  k.loop(groups, () => {
    const queries = strided(k, firstQuery, queriesAtOnce, queryStride);
    const targets = strided(k, firstScores, queriesAtOnce, scoreStride).map((p) => k.variable(p));
    const row = k.variable(keys);
    k.loop(fours, () => {
      const rows = strided(k, row, rowsAtOnce, rowBytes);
      for (let from = 0; from < queriesAtOnce; from += atOnce) {
        const some = queries.slice(from, from + atOnce);
        const sums = dotProducts(k, f32Rows, reader, rounds, some, rows, addQueryByQuery);
        sums.forEach((four, j) => {
          storeSums(k, targets[from + j]!, four as FourVectors);
        });
      }
      for (const target of targets) k.advance(target, 4 * rowsAtOnce);
      k.update(row, "ptr.add", [row, fourRows]);
    });
    k.update(firstQuery, "ptr.add", [firstQuery, groupStride]);
    k.update(firstScores, "ptr.add", [firstScores, groupScores]);
  });
  return k.finish();
}

/** store_sums in three additions, where a vector is as long as the four sums: the same order. */
function storeSums(k: KernelBuilder, target: Reg<"ptr">, [a, b, c, d]: FourVectors): void {
  if (k.lanes !== 4) k.op("f32v.store_sums", [target, a, b, c, d]);
  else {
    const ab = k.op("f32v.add_pairs", [a, b]);
    const cd = k.op("f32v.add_pairs", [c, d]);
    k.op("f32v.store", [target, k.op("f32v.add_pairs", [ab, cd])]);
  }
}

/** `registers` undefined: WebAssembly, whose engine may have few. */
function mixKernel(width: number, registers: number | undefined, queries: number): Kernel {
  const k = new KernelBuilder(queries === 1 ? "attn_mix_few" : "attn_mix_many", width);
  const scores = k.param("ptr", "scores");
  const values = k.param("ptr", "values");
  const out = k.param("ptr", "out");
  const groups = k.param("i32", "groups");
  const rows = k.param("i32", "rows");
  const headDim = k.param("i32", "headDim");
  const isNew = k.param("i32", "isNew");
  const outStride = k.param("i32", "outStride");
  const groupStride = k.param("i32", "groupStride");
  const scoreStride = k.param("i32", "scoreStride");

  const reader = f32Rows.reader(k);
  const pieces = queries === 1 ? [8, 4, 1] : (registers ?? 0) < manyRegisters ? [2, 1] : [4, 2, 1];
  const tile: MixTile = { queries, rows: 4, pieces, scores: "held" };
  const rowBytes = k.op("i32.mul", [headDim, k.i32(4)]);
  const groupScores = k.op("i32.mul", [scoreStride, k.i32(queries)]);
  const firstScores = k.variable(scores);
  const firstOut = k.variable(out);
  k.loop(groups, () => {
    const scoreRows = strided(k, firstScores, queries, scoreStride);
    const outRows = strided(k, firstOut, queries, outStride);
    k.loop(isNew, () => {
      for (const row of outRows) clear(k, row, headDim);
    });
    const range = { first: values, count: rows, rowBytes };
    mixBlock(k, f32Rows, reader, tile, range, headDim, scoreRows, outRows);
    k.update(firstScores, "ptr.add", [firstScores, groupScores]);
    k.update(firstOut, "ptr.add", [firstOut, groupStride]);
  });
  return k.finish();
}

// attn_scores_<kv>: scores[p] = q . key p over all positions of a paged cache, for one query.
// attn_scores4_<kv>: the same for four queries over the same keys (heads that share a KV head, or neighbouring tokens):
// query j is queryStride bytes after query j - 1, its scores scoreStride bytes after.
//
// `keys` is the first row of the layer's first block, `headOffset` where the head starts in a row, in bytes; table,
// blocks, last, rowBytes as in kv-walk.ts. headDim is a multiple of the lanes (types with blocks: of 32).
// Four positions are computed at once, so that a vector of the query is loaded once for all of them, and their lanes are
// reduced together. Scores are therefore written in fours: up to three undefined ones follow the last position.
//
// Every kernel and register tile adds the products of a score in the same order: a token's result does not depend on the
// rest of the batch.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import { type KernelMaker, lazily } from "../../ir/lazy-kernel.ts";
import { manyRegisters, remainder } from "../loops.ts";
import type { KvChunk, KvFormat, KvReader } from "./kv-format.ts";
import { kvFormats } from "./kv-formats.ts";
import { strided, walkBlocks, walkRowGroups } from "./kv-walk.ts";

type Vector = Reg<"f32v">;

export interface ScoresTile {
  readonly queries: number;
  /** Queries whose sums are in registers at once; the other queries go over the same rows afterwards. */
  readonly atOnce: number;
  /**
   * The outer loop's operand: vectors of a query, used with the keys of all positions, which are in registers; or a key,
   * used with all queries, which are read from memory each time. On targets with few registers, keys with scales fit the
   * second only.
   */
  readonly first: "queries" | "keys";
  /** Vectors per round of the loop over the head, where the format leaves the choice. */
  readonly unroll: number;
}

export const wide: ScoresTile = { queries: 4, atOnce: 4, first: "queries", unroll: 4 };

/** Positions computed at once: the lanes of their sums are reduced together. */
export const rowsAtOnce = 4;

/** Each takes the bytes of a vector register and the number of registers. */
export const attentionScores: readonly KernelMaker[] = kvFormats.flatMap((format) => {
  return [
    lazily(`attn_scores_${format.name}`, (width, registers = manyRegisters) => {
      const first = registers < manyRegisters && format.registers > 1 ? "keys" : "queries";
      return scoresKernel(width, format, { ...wide, queries: 1, atOnce: 1, first });
    }),
    lazily(`attn_scores4_${format.name}`, (width, registers = manyRegisters) => {
      const isSmall = registers < manyRegisters;
      const first = format.registers > (isSmall ? 0 : 1) ? "keys" : "queries";
      const some = format.registers > 3 ? 1 : 2;
      return scoresKernel(width, format, { ...wide, atOnce: isSmall ? some : 4, first });
    }),
  ];
});

function scoresKernel(width: number, format: KvFormat, tile: ScoresTile): Kernel {
  const many = tile.queries > 1;
  const k = new KernelBuilder(`attn_scores${many ? tile.queries : ""}_${format.name}`, width);
  const q = k.param("ptr", "q");
  const keys = k.param("ptr", "keys");
  const table = k.param("ptr", "table");
  const scores = k.param("ptr", "scores");
  const blocks = k.param("i32", "blocks");
  const last = k.param("i32", "last");
  const rowBytes = k.param("i32", "rowBytes");
  const headOffset = k.param("i32", "headOffset");
  const headDim = k.param("i32", "headDim");
  const queryStride = many ? k.param("i32", "queryStride") : undefined;
  const scoreStride = many ? k.param("i32", "scoreStride") : undefined;

  const queries = strided(k, q, tile.queries, queryStride);
  const targets = strided(k, scores, tile.queries, scoreStride).map((p) => k.variable(p));
  const cache = k.op("ptr.add", [keys, headOffset]);
  const reader = format.reader(k);
  const rounds = roundsOver(k, format, tile, headDim);
  const addProducts = tile.first === "keys" ? addKeyByKey : addQueryByQuery;
  walkBlocks(k, { cache, table, blocks, last, rowBytes }, (range) => {
    walkRowGroups(k, range, rowsAtOnce, (rows) => {
      for (let from = 0; from < tile.queries; from += tile.atOnce) {
        const some = queries.slice(from, from + tile.atOnce);
        dotProducts(k, format, reader, rounds, some, rows, addProducts).forEach((sums, j) => {
          k.op("f32v.store_sums", [targets[from + j]!, ...(sums as FourVectors)]);
        });
      }
      for (const target of targets) k.advance(target, 4 * rowsAtOnce);
    });
  });
  return k.finish();
}

export type FourVectors = [Vector, Vector, Vector, Vector];

/** A loop over a part of the head: `vectors` in each round. */
interface Rounds {
  readonly vectors: number;
  readonly count: Reg<"i32">;
}

export function roundsOver(
  k: KernelBuilder,
  { blockValues }: KvFormat,
  { unroll }: ScoresTile,
  headDim: Reg<"i32">,
): Rounds[] {
  let left = headDim;
  return (blockValues ? [blockValues / k.lanes] : [unroll, 1]).map((vectors) => {
    const values = vectors * k.lanes;
    const count = k.op("i32.shr_u", [left], Math.log2(values));
    left = remainder(k, left, count, values);
    return { vectors, count };
  });
}

/** [queries][rows]: vectors whose lanes add up to the dot products. */
export function dotProducts(
  k: KernelBuilder,
  format: KvFormat,
  reader: KvReader,
  rounds: readonly Rounds[],
  queries: readonly Reg<"ptr">[],
  rows: readonly Reg<"ptr">[],
  addProducts: AddProducts,
): Vector[][] {
  const zero = k.op("f32v.const", [], 0);
  const sums = queries.map(() => rows.map(() => k.variable(zero)));
  const queryAt = queries.map((q) => k.variable(q));
  const rowAt = rows.map((row) => k.variable(row));
  for (const { vectors, count } of rounds) {
    const values = vectors * k.lanes;
    k.loop(count, () => {
      addProducts(k, reader, vectors, queryAt, rowAt, sums);
      for (const q of queryAt) k.advance(q, values * 4);
      for (const row of rowAt) k.advance(row, format.bytes(values));
    });
  }
  return sums;
}

/** sums += query * key over a chunk of the head: [queries][rows]. */
type AddProducts = (
  k: KernelBuilder,
  reader: KvReader,
  vectors: number,
  queries: readonly Reg<"ptr">[],
  rows: readonly Reg<"ptr">[],
  sums: readonly (readonly Vector[])[],
) => void;

export const addQueryByQuery: AddProducts = (k, reader, vectors, queries, rows, sums) => {
  const chunks = rows.map(reader);
  for (let i = 0; i < vectors; i++) {
    const keys = chunks.map((chunk) => scaled(k, chunk, i));
    queries.forEach((pointer, j) => {
      const q = k.op("f32v.load", [pointer], i * k.width);
      keys.forEach((key, row) => {
        const sum = sums[j]![row]!;
        k.update(sum, "f32v.fma", [q, key, sum]);
      });
    });
  }
};

const addKeyByKey: AddProducts = (k, reader, vectors, queries, rows, sums) => {
  rows.forEach((pointer, row) => {
    const chunk = reader(pointer);
    for (let i = 0; i < vectors; i++) {
      const key = scaled(k, chunk, i);
      queries.forEach((query, j) => {
        const sum = sums[j]![row]!;
        k.update(sum, "f32v.fma", [k.op("f32v.load", [query], i * k.width), key, sum]);
      });
    }
  });
};

function scaled(k: KernelBuilder, { load, scale }: KvChunk, i: number): Vector {
  return scale ? k.op("f32v.mul", [load(i), scale]) : load(i);
}

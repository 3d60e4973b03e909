// attn_scores_<kv>: scores[p] = scale * (q . key p) over all positions of a paged cache, for one query head.
// attn_scores4_<kv>: the same for four queries at once that look at the same keys (heads that share a KV head): query j
// is queryStride bytes after query j - 1, and its scores scoreStride bytes after the other's.
//
// `keys` is the first row of the layer's first block, `headOffset` where the head starts in a row, in bytes; table,
// blocks, last, rowBytes as in kv-walk.ts. headDim is a multiple of the lanes (q8_0: of 32).
// Several positions are summed up side by side, so that a vector of the query is loaded once for all of them.

import { KernelBuilder } from "../ir/builder.ts";
import type { Kernel, Reg } from "../ir/kernel.ts";
import { type KvFormat, kvFormats } from "./kv-format.ts";
import { walkRows } from "./kv-walk.ts";
import { remainder } from "./loops.ts";

export interface ScoresTile {
  readonly queries: number;
  /** Positions side by side. */
  readonly rows: number;
  /** Vectors per round of the loop over the head, where the format leaves the choice. */
  readonly unroll: number;
}

export const attentionScores: readonly ((width: number) => Kernel)[] = kvFormats.flatMap(
  (format) => [
    (width: number) => scoresKernel(width, format, { queries: 1, rows: 8, unroll: 4 }),
    (width: number) => scoresKernel(width, format, { queries: 4, rows: 4, unroll: 4 }),
  ],
);

export function scoresKernel(width: number, format: KvFormat, tile: ScoresTile): Kernel {
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
  const scale = k.param("f32", "scale");
  const queryStride = many ? k.param("i32", "queryStride") : undefined;
  const scoreStride = many ? k.param("i32", "scoreStride") : undefined;

  const queries = strided(k, q, tile.queries, queryStride);
  const targets = strided(k, scores, tile.queries, scoreStride).map((p) => k.variable(p));
  const cache = k.op("ptr.add", [keys, headOffset]);
  walkRows(k, { cache, table, blocks, last, rowBytes }, tile.rows, (rows, first) => {
    const rowPointers = strided(k, first, rows, rowBytes);
    const sums = dotProducts(k, format, tile.unroll, queries, rowPointers, headDim);
    targets.forEach((target, j) => {
      sums[j]!.forEach((sum, row) => {
        const score = k.op("f32.mul", [k.op("f32v.sum", [sum]), scale]);
        k.op("f32.store", [target, score], 4 * row);
      });
      k.advance(target, 4 * rows);
    });
  });
  return k.finish();
}

/** first, first + stride, first + 2 stride, ... */
export function strided(
  k: KernelBuilder,
  first: Reg<"ptr">,
  count: number,
  stride: Reg<"i32"> | undefined,
): Reg<"ptr">[] {
  const pointers = [first];
  while (stride && pointers.length < count) {
    pointers.push(k.op("ptr.add", [pointers.at(-1)!, stride]));
  }
  return pointers;
}

/** [queries][rows]: vectors whose lanes add up to the dot products. */
function dotProducts(
  k: KernelBuilder,
  format: KvFormat,
  unroll: number,
  queries: readonly Reg<"ptr">[],
  rows: readonly Reg<"ptr">[],
  headDim: Reg<"i32">,
): Reg<"f32v">[][] {
  const zero = k.op("f32v.const", [], 0);
  const sums = queries.map(() => rows.map(() => k.variable(zero)));
  const queryAt = queries.map((q) => k.variable(q));
  const rowAt = rows.map((row) => k.variable(row));
  const blockVectors = format.blockValues ? format.blockValues / k.lanes : undefined;
  let left = headDim;
  for (const vectors of blockVectors ? [blockVectors] : [unroll, 1]) {
    const values = vectors * k.lanes;
    const rounds = k.op("i32.shr_u", [left], Math.log2(values));
    k.loop(rounds, () => {
      addProducts(k, format, vectors, queryAt, rowAt, sums);
      for (const q of queryAt) k.advance(q, values * 4);
      for (const row of rowAt) k.advance(row, format.bytes(values));
    });
    left = remainder(k, left, rounds, values);
  }
  return sums;
}

/** sums += query * key over a chunk of the head. */
function addProducts(
  k: KernelBuilder,
  format: KvFormat,
  vectors: number,
  queries: readonly Reg<"ptr">[],
  rows: readonly Reg<"ptr">[],
  sums: readonly (readonly Reg<"f32v">[])[],
): void {
  const chunks = rows.map((row) => format.open(k, row));
  // A single query sums up unscaled and brings the scale in once; for several, scaling the values is less work.
  const scaleSums = queries.length === 1 && chunks[0]!.scale !== undefined;
  const zero = k.op("f32v.const", [], 0);
  const targets = scaleSums ? sums.map((row) => row.map(() => k.variable(zero))) : sums;
  for (let i = 0; i < vectors; i++) {
    const values = chunks.map(({ load, scale }) =>
      scale && !scaleSums ? k.op("f32v.mul", [load(i), scale]) : load(i),
    );
    queries.forEach((pointer, j) => {
      const q = k.op("f32v.load", [pointer], i * k.width);
      values.forEach((value, row) => {
        const sum = targets[j]![row]!;
        k.update(sum, "f32v.fma", [q, value, sum]);
      });
    });
  }
  if (!scaleSums) return;
  chunks.forEach(({ scale }, row) => {
    const sum = sums[0]![row]!;
    k.update(sum, "f32v.fma", [targets[0]![row]!, scale!, sum]);
  });
}

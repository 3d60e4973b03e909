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
import { strided, walkBlocks, walkRows } from "./kv-walk.ts";
import { remainder } from "./loops.ts";

type Vector = Reg<"f32v">;

export interface ScoresTile {
  readonly queries: number;
  /** Positions side by side. */
  readonly rows: number;
  /** Vectors per round of the loop over the head, where the format leaves the choice. */
  readonly unroll: number;
  /** Partial sums of each dot product: additions to one of them wait for each other. */
  readonly chains: number;
}

export const attentionScores: readonly ((width: number) => Kernel)[] = kvFormats.flatMap(
  (format) => [
    (width: number) => scoresKernel(width, format, { queries: 1, rows: 4, unroll: 4, chains: 2 }),
    (width: number) => scoresKernel(width, format, { queries: 4, rows: 4, unroll: 4, chains: 1 }),
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
  walkBlocks(k, { cache, table, blocks, last, rowBytes }, (range) => {
    walkRows(k, range, tile.rows, (rows) => {
      const sums = dotProducts(k, format, tile, queries, rows, headDim);
      targets.forEach((target, j) => {
        storeScores(k, target, sums[j]!, scale);
        k.advance(target, 4 * rows.length);
      });
    });
  });
  return k.finish();
}

/** The sum of each vector, scaled, one after another at the target. */
function storeScores(
  k: KernelBuilder,
  target: Reg<"ptr">,
  vectors: readonly Reg<"f32v">[],
  scale: Reg<"f32">,
): void {
  let row = 0;
  // Four vectors of four lanes are summed up together, which takes half the work.
  for (; k.lanes === 4 && row + 4 <= vectors.length; row += 4) {
    const [a, b, c, d] = vectors.slice(row, row + 4) as [Vector, Vector, Vector, Vector];
    const halves = [k.op("f32v.add_pairs", [a, b]), k.op("f32v.add_pairs", [c, d])] as const;
    const sums = k.op("f32v.add_pairs", halves);
    const scaled = k.op("f32v.mul", [sums, k.op("f32v.splat", [scale])]);
    k.op("f32v.store", [target, scaled], 4 * row);
  }
  for (; row < vectors.length; row++) {
    const score = k.op("f32.mul", [k.op("f32v.sum", [vectors[row]!]), scale]);
    k.op("f32.store", [target, score], 4 * row);
  }
}

/** [queries][rows]: vectors whose lanes add up to the dot products. */
function dotProducts(
  k: KernelBuilder,
  format: KvFormat,
  { unroll, chains }: ScoresTile,
  queries: readonly Reg<"ptr">[],
  rows: readonly Reg<"ptr">[],
  headDim: Reg<"i32">,
): Reg<"f32v">[][] {
  const zero = k.op("f32v.const", [], 0);
  const partial = Array.from({ length: chains }, () =>
    queries.map(() => rows.map(() => k.variable(zero))),
  );
  const queryAt = queries.map((q) => k.variable(q));
  const rowAt = rows.map((row) => k.variable(row));
  const blockVectors = format.blockValues ? format.blockValues / k.lanes : undefined;
  let left = headDim;
  for (const vectors of blockVectors ? [blockVectors] : [unroll, 1]) {
    const values = vectors * k.lanes;
    const rounds = k.op("i32.shr_u", [left], Math.log2(values));
    k.loop(rounds, () => {
      addProducts(k, format, vectors, queryAt, rowAt, partial);
      for (const q of queryAt) k.advance(q, values * 4);
      for (const row of rowAt) k.advance(row, format.bytes(values));
    });
    left = remainder(k, left, rounds, values);
  }
  return partial.reduce((total, more) =>
    total.map((sums, j) => sums.map((sum, row) => k.op("f32v.add", [sum, more[j]![row]!]))),
  );
}

/** sums += query * key over a chunk of the head. */
function addProducts(
  k: KernelBuilder,
  format: KvFormat,
  vectors: number,
  queries: readonly Reg<"ptr">[],
  rows: readonly Reg<"ptr">[],
  partial: readonly (readonly (readonly Reg<"f32v">[])[])[],
): void {
  const chunks = rows.map((row) => format.open(k, row));
  // A single query sums up unscaled and brings the scale in once; for several, scaling the values is less work.
  const scaleSums = queries.length === 1 && chunks[0]!.scale !== undefined;
  const zero = k.op("f32v.const", [], 0);
  const block = rows.map(() => k.variable(zero));
  for (let i = 0; i < vectors; i++) {
    const values = chunks.map(({ load, scale }) =>
      scale && !scaleSums ? k.op("f32v.mul", [load(i), scale]) : load(i),
    );
    queries.forEach((pointer, j) => {
      const q = k.op("f32v.load", [pointer], i * k.width);
      values.forEach((value, row) => {
        const sum = scaleSums ? block[row]! : partial[i % partial.length]![j]![row]!;
        k.update(sum, "f32v.fma", [q, value, sum]);
      });
    });
  }
  if (!scaleSums) return;
  chunks.forEach(({ scale }, row) => {
    const sum = partial[0]![0]![row]!;
    k.update(sum, "f32v.fma", [block[row]!, scale!, sum]);
  });
}

// Calls the kernels of attention. A pass is for one query, for four heads that share a KV head, or for one head of four
// neighbouring tokens, and goes over a range of positions, which may begin and end in the middle of a block.
//
// Scores are computed from a multiple of 4 on, because the kernels take rows in fours; values are summed from the first
// position of the range on. The ranges of four tokens begin and end up to three positions apart: the positions that all four
// attend to are summed for all at once, those before and after for each token alone, so that every sum is in the order of
// positions.

import { attendedFrom, attendedTo, bucketOf } from "../../../graph/attended.ts";
import { KV_BLOCK_TOKENS } from "../../../graph/batch.ts";
import type { ExecutorContext } from "../executor.ts";
import type { Attention } from "./attention-instruction.ts";

/** Queries that the wide attention kernels take at once. */
export const WIDE_QUERIES = 4;

/** Runs a token (or four from it on) with a KV head; `query` is the number of the first query: token * heads + head. */
type Pass = (token: number, kvHead: number, query: number) => void;

/** The kernels for one query, or for four at a fixed stride; `count` rows from `keys` or `values` on. */
interface Queries {
  score(
    q: number,
    keys: number,
    table: number,
    scores: number,
    count: number,
    offset: number,
  ): void;
  mix(
    scores: number,
    values: number,
    table: number,
    out: number,
    count: number,
    offset: number,
    isNew: number,
  ): void;
}

/** Lanes of the widest vectors: elementwise kernels take whole vectors. */
const MOST_LANES = 16;

export const blocksOf = (count: number): number => Math.floor(count / KV_BLOCK_TOKENS);
export const lastOf = (count: number): number => count % KV_BLOCK_TOKENS;

/** Tokens of this token's sequence after the batch, where attention needs them. */
export function lengthOf(
  { lengths }: Attention,
  { views }: ExecutorContext,
  token: number,
): number {
  return lengths === undefined ? 0 : views.i32[lengths / 4 + token]!;
}

/** The positions that a token of the batch attends to: [fromOf(token), toOf(token)). */
export interface Ranges {
  fromOf(token: number): number;
  toOf(token: number): number;
}

export function makeRanges(i: Attention, c: ExecutorContext): Ranges {
  const { i32 } = c.views;
  const positions = c.program.batch.positions / 4;
  // Plain attention needs only the position. These run for every head, so they are chosen once.
  return {
    fromOf: i.window === undefined ? () => 0 : (token) => attendedFrom(i, i32[positions + token]!),
    toOf: i.causal
      ? (token) => i32[positions + token]! + 1
      : (token) => attendedTo(i, i32[positions + token]!, lengthOf(i, c, token)),
  };
}

export function makePasses(
  i: Attention,
  c: ExecutorContext,
): Record<"oneHead" | "fourHeads" | "fourTokens", Pass> {
  const { batch, scoresLength } = c.program;
  const { keys, values, headBytes, vHeadBytes } = i;
  const headStride = i.headDim * 4;
  const outStride = i.vHeadDim * 4;
  const scoreStride = scoresLength * 4;
  const scores = c.program.scores + c.thread * c.program.scoresRows * scoreStride;
  const one = oneQuery(i, c);
  const fourHeads = fourQueries(i, c, 1, scoreStride);
  const fourTokens = fourQueries(i, c, i.heads, scoreStride);
  const weigh = makeWeigh(i, c);
  const { fromOf, toOf } = makeRanges(i, c);
  const tableOffset = (token: number) => token * batch.tableLength * 4;
  const firstScored = (from: number) => from - (from % 4);

  /** Rows of a range in its first block, where it begins in the middle of one; else 0. */
  const rowsBefore = (from: number, to: number) =>
    lastOf(from) === 0 ? 0 : Math.min(KV_BLOCK_TOKENS - lastOf(from), to - from);

  // biome-ignore format: parameters in the kernels' order, on one line
  const scoreRange = (by: Queries, query: number, tableAt: number, from: number, to: number, kvHead: number): void => {
    const table = keys.tables + tableAt;
    const q = i.q + query * headStride;
    const offset = kvHead * headBytes;
    if (from === 0) {
      by.score(q, keys.at, table, scores, to, offset);
      return;
    }
    const before = rowsBefore(from, to);
    const entry = table + blocksOf(from) * 4;
    if (before > 0) by.score(q, keys.at + lastOf(from) * keys.rowBytes, entry, scores, before, offset);
    const left = to - from - before;
    if (left > 0) by.score(q, keys.at, before > 0 ? entry + 4 : entry, scores + before * 4, left, offset);
  };

  /** `row` is the address of the weight of the range's first position. */
  // biome-ignore format: parameters in the kernels' order, on one line
  const mixRange = (by: Queries, row: number, tableAt: number, query: number, from: number, to: number, kvHead: number, isNew: number): void => {
    const table = values.tables + tableAt;
    const out = i.out + query * outStride;
    const offset = kvHead * vHeadBytes;
    if (from === 0) {
      by.mix(row, values.at, table, out, to, offset, isNew);
      return;
    }
    const before = rowsBefore(from, to);
    const entry = table + blocksOf(from) * 4;
    if (before > 0) by.mix(row, values.at + lastOf(from) * values.rowBytes, entry, out, before, offset, isNew);
    const left = to - from - before;
    const isFirst = before > 0 ? 0 : isNew;
    if (left + isFirst > 0) by.mix(row + before * 4, values.at, before > 0 ? entry + 4 : entry, out, left, offset, isFirst);
  };

  /** `count` heads of one token that share a KV head. */
  const headsOfToken =
    (by: Queries, count: number): Pass =>
    (token, kvHead, query) => {
      const from = fromOf(token);
      const to = toOf(token);
      const base = firstScored(from);
      const table = tableOffset(token);
      const weights = scores + (from - base) * 4;
      scoreRange(by, query, table, base, to, kvHead);
      for (let row = 0; row < count; row++) {
        weigh(weights + row * scoreStride, from, to, query + row);
      }
      mixRange(by, weights, table, query, from, to, kvHead, 1);
    };

  return {
    oneHead: headsOfToken(one, 1),
    fourHeads: headsOfToken(fourHeads, WIDE_QUERIES),
    fourTokens: (token, kvHead, query) => {
      const last = token + WIDE_QUERIES - 1;
      const first = fromOf(token);
      // The positions that all four attend to.
      const from = fromOf(last);
      const to = toOf(token);
      const base = firstScored(first);
      const table = tableOffset(last);
      scoreRange(fourTokens, query, table, base, toOf(last), kvHead);
      for (let row = 0; row < WIDE_QUERIES; row++) {
        const own = fromOf(token + row);
        const weights = scores + row * scoreStride + (own - base) * 4;
        const rowQuery = query + row * i.heads;
        weigh(weights, own, toOf(token + row), rowQuery);
        if (first < from) mixRange(one, weights, table, rowQuery, own, from, kvHead, 1);
      }
      const common = scores + (from - base) * 4;
      mixRange(fourTokens, common, table, query, from, to, kvHead, first < from ? 0 : 1);
      for (let row = 1; row < WIDE_QUERIES; row++) {
        const late = scores + row * scoreStride + (to - base) * 4;
        mixRange(one, late, table, query + row * i.heads, to, toOf(token + row), kvHead, 0);
      }
    },
  };
}

/** Turns the scores at `row`, of positions `from` to `to`, into softmax weights, for query number `query`. */
export type Weigh = (row: number, from: number, to: number, query: number) => void;

export function makeWeigh(i: Attention, c: ExecutorContext): Weigh {
  const { scale, softcap, sinks, alibi, bias, buckets, distances, heads } = i;
  const softmax = c.kernels.softmax!;
  if ([softcap, sinks, alibi, bias].every((option) => option === undefined)) {
    return (row, from, to) => softmax(row, row, to - from, scale);
  }
  const cap = c.kernels.softcap;
  const { f32, i32 } = c.views;
  const positions = c.program.batch.positions / 4;
  return (row, from, to, query) => {
    const count = to - from;
    // The softmax multiplies by the scale later, so the cap is divided by it. The floats after the scores are unused.
    if (softcap !== undefined)
      cap!(row, row, Math.ceil(count / MOST_LANES) * MOST_LANES, softcap / scale);
    if (alibi !== undefined) {
      const slope = f32[alibi / 4 + (query % heads)]! / scale;
      const position = i32[positions + Math.floor(query / heads)]!;
      for (let p = from, at = row / 4; p < to; p++, at++)
        f32[at]! -= slope * Math.abs(position - p);
    }
    if (bias !== undefined && buckets !== undefined) {
      const ofHead = bias / 4 + (query % heads);
      const position = i32[positions + Math.floor(query / heads)]!;
      for (let p = from, at = row / 4; p < to; p++, at++) {
        const bucket = bucketOf(f32, p - position, buckets / 4, distances);
        f32[at]! += f32[ofHead + bucket * heads]! / scale;
      }
    }
    if (sinks === undefined) softmax(row, row, count, scale);
    else {
      // A sink is one more score after those of positions, without a value.
      f32[row / 4 + count] = f32[sinks / 4 + (query % heads)]! / scale;
      softmax(row, row, count + 1, scale);
    }
  };
}

// biome-ignore format: a kernel's parameters in their order, on one line
function oneQuery({ keys: k, values: v, headDim, vHeadDim }: Attention, { kernels }: ExecutorContext): Queries {
  const [scores, mix] = [kernels[`attn_scores_${k.type}`]!, kernels[`attn_mix_${v.type}`]!];
  return {
    score: (q, keys, table, to, count, offset) =>
      scores(q, keys, table, to, blocksOf(count), lastOf(count), k.rowBytes, offset, headDim),
    mix: (row, values, table, out, count, offset, isNew) =>
      mix(row, values, table, out, blocksOf(count), lastOf(count), v.rowBytes, offset, vHeadDim, isNew),
  };
}

/** Queries and results are `apart` heads apart. */
// biome-ignore format: a kernel's parameters in their order, on one line
function fourQueries({ keys: k, values: v, headDim, vHeadDim }: Attention, { kernels }: ExecutorContext, apart: number, scoreStride: number): Queries {
  const [scores, mix] = [kernels[`attn_scores4_${k.type}`]!, kernels[`attn_mix4_${v.type}`]!];
  const [queryStride, outStride] = [apart * headDim * 4, apart * vHeadDim * 4];
  return {
    score: (q, keys, table, to, count, offset) =>
      scores(q, keys, table, to, blocksOf(count), lastOf(count), k.rowBytes, offset, headDim, queryStride, scoreStride),
    mix: (row, values, table, out, count, offset, isNew) =>
      mix(row, values, table, out, blocksOf(count), lastOf(count), v.rowBytes, offset, vHeadDim, isNew, scoreStride, outStride),
  };
}

// How one pass of attention calls its kernels: for one query, for four heads that share a KV head, or for one head of four
// tokens that follow one another. A pass goes through a range of positions, which may begin and end in the middle of a block.
//
// Scores are computed from a multiple of 4 on, because the kernels take rows in fours; weights are mixed from the first
// position of the range on. Four tokens have ranges that begin and end up to three positions apart: what all four attend to is
// mixed for all at once, what comes before and after it for each by itself, so that every sum is in the order of positions.

import { attendedFrom, attendedTo } from "../../../graph/attended.ts";
import { KV_BLOCK_TOKENS } from "../../../graph/step.ts";
import type { ExecutorContext } from "../executor.ts";
import type { Attention } from "./attention-instruction.ts";

/** Queries that the wide attention kernels take at once. */
export const WIDE_QUERIES = 4;

/** For a token (or four from it on), a KV head, and where the first query is, in bytes: its result goes to the same place. */
type Pass = (token: number, kvHead: number, at: number) => void;

/** The kernels for one query, or for four of them that are so many bytes apart; `count` rows from `keys` or `values` on. */
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

const blocksOf = (count: number) => Math.floor(count / KV_BLOCK_TOKENS);
const lastOf = (count: number) => count % KV_BLOCK_TOKENS;

export function makePasses(
  i: Attention,
  c: ExecutorContext,
): Record<"oneHead" | "fourHeads" | "fourTokens", Pass> {
  const { step, scoresLength } = c.program;
  const { keys, values, rowBytes, headBytes } = i;
  const headStride = i.headDim * 4;
  const tokenStride = i.heads * headStride;
  const scoreStride = scoresLength * 4;
  const scores = c.program.scores + c.thread * WIDE_QUERIES * scoreStride;
  const one = oneQuery(i, c);
  const fourHeads = fourQueries(i, c, headStride, scoreStride);
  const fourTokens = fourQueries(i, c, tokenStride, scoreStride);
  const softmax = c.kernels.softmax!;
  const positionOf = (token: number) => c.views.i32[step.positions / 4 + token]!;
  const tableOf = (token: number) => i.tables + token * step.tableLength * 4;

  /** Rows of a range that lie in its first block, where it begins in the middle of one; else none. */
  const rowsBefore = (from: number, to: number) =>
    lastOf(from) === 0 ? 0 : Math.min(KV_BLOCK_TOKENS - lastOf(from), to - from);

  // biome-ignore format: parameters in the kernels' order, on one line
  const scoreRange = (by: Queries, q: number, table: number, from: number, to: number, offset: number): void => {
    const before = rowsBefore(from, to);
    const entry = table + blocksOf(from) * 4;
    if (before > 0) by.score(q, keys + lastOf(from) * rowBytes, entry, scores, before, offset);
    const left = to - from - before;
    if (left > 0) by.score(q, keys, before > 0 ? entry + 4 : entry, scores + before * 4, left, offset);
  };

  /** `row` has the weight of the first position of the range. */
  // biome-ignore format: parameters in the kernels' order, on one line
  const mixRange = (by: Queries, row: number, table: number, out: number, from: number, to: number, offset: number, isNew: number): void => {
    const before = rowsBefore(from, to);
    const entry = table + blocksOf(from) * 4;
    if (before > 0) by.mix(row, values + lastOf(from) * rowBytes, entry, out, before, offset, isNew);
    const left = to - from - before;
    const isFirst = before > 0 ? 0 : isNew;
    if (left + isFirst > 0) by.mix(row + before * 4, values, before > 0 ? entry + 4 : entry, out, left, offset, isFirst);
  };

  /** Scores of a row, of which the first is position `base`'s, become weights of positions from..to. */
  const weigh = (row: number, base: number, from: number, to: number): void => {
    const at = scores + row * scoreStride + (from - base) * 4;
    softmax(at, at, to - from, i.scale);
  };

  const firstScored = (from: number) => from - (from % 4);

  return {
    oneHead: (token, kvHead, at) => {
      const position = positionOf(token);
      const from = attendedFrom(i, position);
      const to = attendedTo(position);
      const base = firstScored(from);
      const table = tableOf(token);
      const offset = kvHead * headBytes;
      scoreRange(one, i.q + at, table, base, to, offset);
      weigh(0, base, from, to);
      mixRange(one, scores + (from - base) * 4, table, i.out + at, from, to, offset, 1);
    },
    fourHeads: (token, kvHead, at) => {
      const position = positionOf(token);
      const from = attendedFrom(i, position);
      const to = attendedTo(position);
      const base = firstScored(from);
      const table = tableOf(token);
      const offset = kvHead * headBytes;
      scoreRange(fourHeads, i.q + at, table, base, to, offset);
      for (let row = 0; row < WIDE_QUERIES; row++) weigh(row, base, from, to);
      mixRange(fourHeads, scores + (from - base) * 4, table, i.out + at, from, to, offset, 1);
    },
    fourTokens: (token, kvHead, at) => {
      const last = token + WIDE_QUERIES - 1;
      const first = attendedFrom(i, positionOf(token));
      const end = attendedTo(positionOf(last));
      // What all four attend to.
      const from = attendedFrom(i, positionOf(last));
      const to = attendedTo(positionOf(token));
      const base = firstScored(first);
      const table = tableOf(last);
      const offset = kvHead * headBytes;
      scoreRange(fourTokens, i.q + at, table, base, end, offset);
      for (let row = 0; row < WIDE_QUERIES; row++) {
        const position = positionOf(token + row);
        const own = attendedFrom(i, position);
        weigh(row, base, own, attendedTo(position));
        if (first === from) continue;
        const weights = scores + row * scoreStride + (own - base) * 4;
        mixRange(one, weights, table, i.out + at + row * tokenStride, own, from, offset, 1);
      }
      const weights = scores + (from - base) * 4;
      mixRange(fourTokens, weights, table, i.out + at, from, to, offset, first === from ? 1 : 0);
      for (let row = 1; row < WIDE_QUERIES; row++) {
        const own = attendedTo(positionOf(token + row));
        const late = scores + row * scoreStride + (to - base) * 4;
        mixRange(one, late, table, i.out + at + row * tokenStride, to, own, offset, 0);
      }
    },
  };
}

// biome-ignore format: a kernel's parameters in their order, on one line
function oneQuery({ kvType, rowBytes, headDim }: Attention, { kernels }: ExecutorContext): Queries {
  const [scores, mix] = [kernels[`attn_scores_${kvType}`]!, kernels[`attn_mix_${kvType}`]!];
  return {
    score: (q, keys, table, to, count, offset) =>
      scores(q, keys, table, to, blocksOf(count), lastOf(count), rowBytes, offset, headDim),
    mix: (row, values, table, out, count, offset, isNew) =>
      mix(row, values, table, out, blocksOf(count), lastOf(count), rowBytes, offset, headDim, isNew),
  };
}

/** Queries and results are `stride` bytes apart. */
// biome-ignore format: a kernel's parameters in their order, on one line
function fourQueries({ kvType, rowBytes, headDim }: Attention, { kernels }: ExecutorContext, stride: number, scoreStride: number): Queries {
  const [scores, mix] = [kernels[`attn_scores4_${kvType}`]!, kernels[`attn_mix4_${kvType}`]!];
  return {
    score: (q, keys, table, to, count, offset) =>
      scores(q, keys, table, to, blocksOf(count), lastOf(count), rowBytes, offset, headDim, stride, scoreStride),
    mix: (row, values, table, out, count, offset, isNew) =>
      mix(row, values, table, out, blocksOf(count), lastOf(count), rowBytes, offset, headDim, isNew, scoreStride, stride),
  };
}

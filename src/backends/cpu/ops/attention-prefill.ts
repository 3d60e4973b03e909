// Attention of many neighbouring tokens of a sequence (prefill, encoders) with one KV head: some rows of keys are widened to
// float32 in scratch memory, which all queries then read, and so are values. Kernels: kernels/ops/attention/attention-prefill.ts.
//
// Queries are in groups of four: four heads of a token, or, of the remaining heads, one head of four tokens. A token attends to a
// range of its own. Scores are computed for all positions that any of the tokens attends to, and softmax takes a token's own. Values
// are added for a token's own positions only, in their order: values outside its range may be NaN, and 0 times NaN is not 0.
//
// Results have the bits of attention-passes.ts.

import { KV_BLOCK_TOKENS } from "../../../graph/batch.ts";
import type { ExecutorContext } from "../executor.ts";
import type { ProgramFrame } from "../program.ts";
import type { Attention, Scratch } from "./attention-instruction.ts";
import { blocksOf, lastOf, makeRanges, makeWeigh, WIDE_QUERIES } from "./attention-passes.ts";
import type { CacheRows } from "./op.ts";

/** Rows of scores for each thread: the most queries at once, unless they take too much memory. */
const MOST_ROWS = 32;
const MOST_SCORE_BYTES = 1 << 21;

export function scoresRowsFor(scoresLength: number): number {
  let rows = MOST_ROWS;
  while (rows > WIDE_QUERIES && rows * scoresLength * 4 > MOST_SCORE_BYTES) rows /= 2;
  return rows;
}

/** Widened rows should stay in the nearest cache, beside queries and sums. */
const ROWS_BYTES = 16384;

const rowsAtOnce = (size: number) => {
  const blocks = Math.floor(ROWS_BYTES / (KV_BLOCK_TOKENS * size * 4));
  return Math.max(1, blocks) * KV_BLOCK_TOKENS;
};

export function manyScratchBytes({ headDim, vHeadDim }: SizesOfHead): number {
  return Math.max(...[headDim, vHeadDim].map((size) => rowsAtOnce(size) * size * 4));
}

type SizesOfHead = Pick<Attention, "headDim" | "vHeadDim">;

export function manyKernels(keys: string, values: string): string[] {
  const widen = [`kv_widen_${keys}`, `kv_widen_${values}`];
  return [...widen, "attn_scores_many", "attn_mix_many", "attn_mix_few"];
}

/** Heads of a KV head whose rows of scores fit, with those of four tokens. */
function headsAtOnce({ heads, kvHeads }: Attention, { scoresRows }: ProgramFrame): number {
  const sharing = heads / kvHeads;
  const most = scoresRows / WIDE_QUERIES;
  if (sharing <= most) return sharing;
  return most < WIDE_QUERIES ? most : most - (most % WIDE_QUERIES);
}

/** Chunks that each thread should have, so that none waits long for the last. */
const CHUNKS_PER_THREAD = 4;

/** Rows of the batch for each chunk; 1: too few for many queries at once. */
export function tokensOfChunk(i: Attention, program: ProgramFrame, tokens: number): number {
  const most = program.scoresRows / headsAtOnce(i, program);
  for (let rows = MOST_ROWS; rows >= WIDE_QUERIES; rows /= 2) {
    const chunks = Math.ceil(tokens / rows) * i.kvHeads;
    const isEnough = program.threads === 1 || chunks >= CHUNKS_PER_THREAD * program.threads;
    if (rows <= most && rows <= tokens && isEnough) return rows;
  }
  return 1;
}

/** Groups of four queries: four heads of each token, or one head of each four tokens. Strides are in queries. */
interface Groups {
  readonly tokens: number;
  readonly queryStride: number;
  readonly groupStride: number;
}

/** Computes `count` tokens (a multiple of 4) from row `token` of the batch on, which follow one another in one sequence. */
type Many = (token: number, count: number, kvHead: number) => void;

export function makeMany(i: Attention, c: ExecutorContext, memory: Scratch): Many {
  const { batch, scoresLength } = c.program;
  const { heads, headDim, vHeadDim } = i;
  const sharing = heads / i.kvHeads;
  const atOnce = headsAtOnce(i, c.program);
  const ofHeads: Groups = { tokens: 1, queryStride: 1, groupStride: heads };
  const ofTokens: Groups = {
    tokens: WIDE_QUERIES,
    queryStride: heads,
    groupStride: WIDE_QUERIES * heads,
  };
  const scoreStride = scoresLength * 4;
  const scores = c.program.scores + c.thread * c.program.scoresRows * scoreStride;
  const rows = memory.scratch + c.thread * memory.scratchBytes;
  const { fromOf, toOf } = makeRanges(i, c);
  const weigh = makeWeigh(i, c);
  const score = c.kernels.attn_scores_many!;
  const widenKeys = widener(i.keys, c, i.headBytes, headDim, rows);
  const widenValues = widener(i.values, c, i.vHeadBytes, vHeadDim, rows);
  const [keyRows, valueRows] = [rowsAtOnce(headDim), rowsAtOnce(vHeadDim)];
  const [queryBytes, outBytes] = [headDim * 4, vHeadDim * 4];

  // biome-ignore format: parameters in the kernels' order, on one line
  const scoreGroups = (by: Groups, query: number, at: number, groups: number, row: number, count: number): void =>
    score(i.q + query * queryBytes, rows + row * queryBytes, at, groups, Math.ceil(count / 4), headDim, by.queryStride * queryBytes, by.groupStride * queryBytes, scoreStride);

  /** Scores of positions [p, end), whose keys are in scratch memory. `at`: the first group's scores of position p. */
  // biome-ignore format: parameters on one line
  const scoreRange = (by: Groups, token: number, count: number, query: number, at: number, p: number, end: number): void => {
    if (fromOf(token + count - 1) <= p && toOf(token) >= end) {
      scoreGroups(by, query, at, count / by.tokens, 0, end - p);
      return;
    }
    for (let t = 0; t < count; t += by.tokens) {
      // In fours from p on, as the kernel takes them.
      const skipped = Math.max(0, fromOf(token + t) - p) & -4;
      const length = Math.min(end, toOf(token + t + by.tokens - 1)) - p - skipped;
      if (length <= 0) continue;
      const group = t / by.tokens;
      const groupAt = at + group * WIDE_QUERIES * scoreStride + skipped * 4;
      scoreGroups(by, query + group * by.groupStride, groupAt, 1, skipped, length);
    }
  };

  /** Adds `count` values from `row` of those in scratch memory on. */
  // biome-ignore format: parameters in the kernels' order, on one line
  const mixer = (mix: (...args: number[]) => void) =>
    (by: Groups, query: number, at: number, groups: number, row: number, count: number, isNew: number): void =>
      mix(at, rows + row * outBytes, i.out + query * outBytes, groups, count, vHeadDim, isNew, by.queryStride * outBytes, by.groupStride * outBytes, scoreStride);
  const mix = mixer(c.kernels.attn_mix_many!);
  const mixOne = mixer(c.kernels.attn_mix_few!);

  /** Adds the values of positions [p, end), which are in scratch memory. `at`: the first group's weights of position p. */
  // biome-ignore format: parameters on one line
  const mixRange = (by: Groups, token: number, count: number, query: number, at: number, p: number, end: number): void => {
    if (fromOf(token + count - 1) <= p && toOf(token) >= end) {
      mix(by, query, at, count / by.tokens, 0, end - p, 0);
      return;
    }
    for (let t = 0; t < count; t += by.tokens) {
      const groupQuery = query + (t / by.tokens) * by.groupStride;
      const groupAt = at + (t / by.tokens) * WIDE_QUERIES * scoreStride;
      const lastFrom = Math.max(p, fromOf(token + t + by.tokens - 1));
      const firstTo = Math.min(end, toOf(token + t));
      // The positions that all attend to; those before and after are added for each token alone.
      const [from, to] = lastFrom < firstTo ? [lastFrom, firstTo] : [end, end];
      if (by.tokens > 1) mixAlone(by, token + t, groupQuery, groupAt, p, p, from);
      if (from < to) mix(by, groupQuery, groupAt + (from - p) * 4, 1, from - p, to - from, 0);
      if (by.tokens > 1) mixAlone(by, token + t, groupQuery, groupAt, p, to, end);
    }
  };

  /** For each token of a group, the positions of [low, high) that it attends to. */
  // biome-ignore format: parameters on one line
  const mixAlone = (by: Groups, token: number, query: number, at: number, p: number, low: number, high: number): void => {
    for (let t = 0; t < by.tokens; t++) {
      const from = Math.max(low, fromOf(token + t));
      const to = Math.min(high, toOf(token + t));
      if (from < to) mixOne(by, query + t * by.queryStride, at + t * scoreStride + (from - p) * 4, 1, from - p, to - from, 0);
    }
  };

  /** `some` heads from the KV head's `head` on. */
  // biome-ignore format: parameters on one line
  const someHeads = (token: number, count: number, kvHead: number, head: number, some: number): void => {
    const last = token + count - 1;
    const first = token * heads + kvHead * sharing + head;
    const inFours = some - (some % WIDE_QUERIES);
    const table = last * batch.tableLength * 4;
    // From the beginning of a block on: those rows are in the block, whether or not anyone attends to them.
    const base = fromOf(token) - lastOf(fromOf(token));
    const end = toOf(last);
    /** Calls visit for each head of groups of tokens, and for each four heads; rows of scores follow one another. */
    const each = (visit: (by: Groups, query: number, row: number) => void): void => {
      for (let h = 0; h < inFours; h += WIDE_QUERIES) visit(ofHeads, first + h, h * count);
      for (let h = inFours; h < some; h++) visit(ofTokens, first + h, h * count);
    };
    for (let p = base; p < end; p += keyRows) {
      const to = Math.min(end, p + keyRows);
      widenKeys(table, kvHead, p, to);
      each((by, query, row) => {
        scoreRange(by, token, count, query, scores + row * scoreStride + (p - base) * 4, p, to);
      });
    }
    each((by, query, row) => {
      for (let j = 0; j < count * (WIDE_QUERIES / by.tokens); j++) {
        const group = Math.floor(j / WIDE_QUERIES);
        const inGroup = j % WIDE_QUERIES;
        const own = by.tokens === 1 ? token + group : token + j;
        const from = fromOf(own);
        const at = scores + (row + j) * scoreStride + (from - base) * 4;
        weigh(at, from, toOf(own), query + group * by.groupStride + inGroup * by.queryStride);
      }
      mix(by, query, scores, count / by.tokens, 0, 0, 1);
    });
    for (let p = base; p < end; p += valueRows) {
      const to = Math.min(end, p + valueRows);
      widenValues(table, kvHead, p, to);
      each((by, query, row) => {
        mixRange(by, token, count, query, scores + row * scoreStride + (p - base) * 4, p, to);
      });
    }
  };

  return (token, count, kvHead) => {
    for (let head = 0; head < sharing; head += atOnce) {
      someHeads(token, count, kvHead, head, Math.min(atOnce, sharing - head));
    }
  };
}

/** Widens the rows of positions [from, to), where `from` begins a block. `table`: bytes from the first row's block table on. */
type Widen = (table: number, kvHead: number, from: number, to: number) => void;

// biome-ignore format: a kernel's parameters in their order, on one line
function widener(cache: CacheRows, { kernels }: ExecutorContext, headBytes: number, size: number, to: number): Widen {
  const widen = kernels[`kv_widen_${cache.type}`]!;
  return (table, kvHead, from, end) =>
    widen(cache.at, cache.tables + table + blocksOf(from) * 4, to, blocksOf(end - from), lastOf(end - from), cache.rowBytes, kvHead * headBytes, size);
}

// attention: scores, softmax and mix, by kernels over the paged cache.
//
// Four queries that look at the same keys and values go through the cache in one pass: four heads that share a KV head, or,
// of the heads that are left, one head of four tokens that follow one another (a prompt). Every query's result is the same
// bits either way: the kernels add in one order, and positions after a token's own are never mixed into it.

import { bytesFor } from "../../../dtypes/dtype.ts";
import { KV_BLOCK_TOKENS } from "../../../graph/step.ts";
import { type Executor, type ExecutorContext, rowCount } from "../executor.ts";
import type { InstructionDef, LowerNode } from "./op.ts";

export interface Attention {
  readonly op: "attention";
  readonly kvType: string;
  readonly q: number;
  readonly out: number;
  readonly keys: number;
  readonly values: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly headBytes: number;
  readonly rowBytes: number;
  /** Address of a ScaledTable. */
  readonly tables: number;
  readonly scale: number;
}

/** Queries that the wide attention kernels take at once. */
export const WIDE_QUERIES = 4;

type Kernel = ExecutorContext["kernels"][string];

export const lowerAttention: LowerNode<"attention"> = (c, n): Attention | string => {
  const dtype = c.kvDType;
  const kvType = dtype.name;
  if (!c.hasKernel(`attn_scores_${kvType}`)) return `no kernel for a ${kvType} cache`;
  const unit = Math.max(4, dtype.blockElems);
  if (n.headDim % unit !== 0) return `heads of ${n.headDim}, kernels take multiples of ${unit}`;
  const { keys, values, rowBytes, tables } = c.cache(n.state);
  return {
    op: "attention",
    kvType,
    q: c.address(n.q),
    out: c.address(n.out),
    keys,
    values,
    heads: n.heads,
    kvHeads: n.kvHeads,
    headDim: n.headDim,
    headBytes: bytesFor(dtype, n.headDim),
    rowBytes,
    tables,
    scale: n.scale,
  };
};

export const attention: InstructionDef<Attention> = {
  access: "barrier",
  kernels: ({ kvType }) => {
    const parts = ["attn_scores", "attn_scores4", "attn_mix", "attn_mix4"];
    return ["softmax", ...parts.map((part) => `${part}_${kvType}`)];
  },
  code: ({ headDim }) => [headDim],
  execute,
};

/** Chunks are (token, KV head). The first of four tokens does what is done for all four. */
function execute(i: Attention, c: ExecutorContext): Executor {
  const sharing = i.heads / i.kvHeads;
  const wideHeads = sharing - (sharing % WIDE_QUERIES);
  const headStride = i.headDim * 4;
  const passes = makePasses(i, c);
  return {
    chunks: () => rowCount(c, "tokens") * i.kvHeads,
    run: (chunk) => {
      const token = Math.floor(chunk / i.kvHeads);
      const kvHead = chunk % i.kvHeads;
      const first = (token * i.heads + kvHead * sharing) * headStride;
      for (let head = 0; head < wideHeads; head += WIDE_QUERIES) {
        passes.fourHeads(token, kvHead, first + head * headStride);
      }
      if (wideHeads === sharing) return;
      const inFour = isInFour(c, i.tables, token);
      if (inFour && token % WIDE_QUERIES !== 0) return;
      const pass = inFour ? passes.fourTokens : passes.oneHead;
      for (let head = wideHeads; head < sharing; head++) {
        pass(token, kvHead, first + head * headStride);
      }
    },
  };
}

/** For a token (or four from it on), a KV head, and where the first query is, in bytes: its result goes to the same place. */
type Pass = (token: number, kvHead: number, at: number) => void;

function makePasses(
  i: Attention,
  c: ExecutorContext,
): Record<"oneHead" | "fourHeads" | "fourTokens", Pass> {
  const kernel = (name: string): Kernel => c.kernels[`${name}_${i.kvType}`]!;
  const [scores1, mix1] = [kernel("attn_scores"), kernel("attn_mix")];
  const [scores4, mix4] = [kernel("attn_scores4"), kernel("attn_mix4")];
  const softmax = c.kernels.softmax!;
  const { step, scoresLength } = c.program;
  const { keys, values, rowBytes, headDim, scale, headBytes } = i;
  const headStride = headDim * 4;
  const tokenStride = i.heads * headStride;
  const scoreStride = scoresLength * 4;
  const scores = c.program.scores + c.thread * WIDE_QUERIES * scoreStride;
  const lengthOf = (token: number) => c.views.i32[step.positions / 4 + token]! + 1;
  const tableOf = (token: number) => i.tables + token * step.tableLength * 4;
  const blocksOf = (length: number) => Math.floor(length / KV_BLOCK_TOKENS);
  const lastOf = (length: number) => length % KV_BLOCK_TOKENS;

  /** Goes on with a sum: positions `from` up to `to` of a row of scores. */
  const mixMore = (
    row: number,
    table: number,
    offset: number,
    out: number,
    from: number,
    to: number,
  ) => {
    for (let at = from; at < to; ) {
      const inBlock = lastOf(at);
      const count = Math.min(KV_BLOCK_TOKENS - inBlock, to - at);
      const block = table + blocksOf(at) * 4;
      const first = values + inBlock * rowBytes;
      mix1(row + at * 4, first, block, out, 0, count, rowBytes, offset, headDim, 0);
      at += count;
    }
  };

  // biome-ignore format: a kernel's parameters in their order, on one line
  return {
    oneHead: (token, kvHead, at) => {
      const length = lengthOf(token);
      const blocks = blocksOf(length);
      const last = lastOf(length);
      const table = tableOf(token);
      const offset = kvHead * headBytes;
      scores1(i.q + at, keys, table, scores, blocks, last, rowBytes, offset, headDim);
      softmax(scores, scores, length, scale);
      mix1(scores, values, table, i.out + at, blocks, last, rowBytes, offset, headDim, 1);
    },
    fourHeads: (token, kvHead, at) => {
      const length = lengthOf(token);
      const blocks = blocksOf(length);
      const last = lastOf(length);
      const table = tableOf(token);
      const offset = kvHead * headBytes;
      scores4(i.q + at, keys, table, scores, blocks, last, rowBytes, offset, headDim, headStride, scoreStride);
      for (let row = 0; row < WIDE_QUERIES; row++) {
        softmax(scores + row * scoreStride, scores + row * scoreStride, length, scale);
      }
      mix4(scores, values, table, i.out + at, blocks, last, rowBytes, offset, headDim, 1, scoreStride, headStride);
    },
    fourTokens: (token, kvHead, at) => {
      // What the first token sees, all see; the others' own positions follow one by one.
      const least = lengthOf(token);
      const most = least + WIDE_QUERIES - 1;
      const table = tableOf(token + WIDE_QUERIES - 1);
      const offset = kvHead * headBytes;
      scores4(i.q + at, keys, table, scores, blocksOf(most), lastOf(most), rowBytes, offset, headDim, tokenStride, scoreStride);
      for (let row = 0; row < WIDE_QUERIES; row++) {
        softmax(scores + row * scoreStride, scores + row * scoreStride, least + row, scale);
      }
      mix4(scores, values, table, i.out + at, blocksOf(least), lastOf(least), rowBytes, offset, headDim, 1, scoreStride, tokenStride);
      for (let row = 1; row < WIDE_QUERIES; row++) {
        mixMore(scores + row * scoreStride, table, offset, i.out + at + row * tokenStride, least, least + row);
      }
    },
  };
}

/** The four tokens of which this is one (0 to 3, 4 to 7, ...) follow one another in one sequence. */
function isInFour(c: ExecutorContext, tables: number, token: number): boolean {
  const first = token - (token % WIDE_QUERIES);
  if (first + WIDE_QUERIES > rowCount(c, "tokens")) return false;
  for (let next = first + 1; next < first + WIDE_QUERIES; next++) {
    if (!follows(c, tables, next)) return false;
  }
  return true;
}

/** The token before is the one before it in its sequence: the cache of all positions up to there is the same. */
function follows(
  { program: { step }, views: { i32 } }: ExecutorContext,
  tables: number,
  token: number,
): boolean {
  const position = step.positions / 4 + token;
  if (i32[position] !== i32[position - 1]! + 1) return false;
  const table = tables / 4 + token * step.tableLength;
  const blocks = Math.floor(i32[position - 1]! / KV_BLOCK_TOKENS) + 1;
  for (let block = 0; block < blocks; block++) {
    if (i32[table + block] !== i32[table + block - step.tableLength]) return false;
  }
  return true;
}

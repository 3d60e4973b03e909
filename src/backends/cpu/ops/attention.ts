// attention: scores, softmax and mix, by kernels over the paged cache (attention-passes.ts).
//
// Four queries that look at the same keys and values go through the cache in one pass: four heads that share a KV head, or,
// of the heads that are left, one head of four tokens that follow one another (a prompt). Every query's result is the same
// bits either way: the kernels add in one order, and positions that a token does not attend to are never mixed into it.
//
// Which positions those are is a range (graph/attended.ts). Table entries of blocks that lie before it are never read: their
// blocks may be another sequence's by now.

import { bytesFor } from "../../../dtypes/dtype.ts";
import { attendedFrom, attendedTo } from "../../../graph/attended.ts";
import { KV_BLOCK_TOKENS } from "../../../graph/batch.ts";
import { type Executor, type ExecutorContext, rowCount } from "../executor.ts";
import type { Attention } from "./attention-instruction.ts";
import { lengthOf, makePasses, WIDE_QUERIES } from "./attention-passes.ts";
import type { InstructionDef, LowerNode } from "./op.ts";

export const lowerAttention: LowerNode<"attention"> = (c, n): Attention | string => {
  const dtype = c.kvDType;
  const kvType = dtype.name;
  if (!c.hasKernel(`attn_scores_${kvType}`)) return `no kernel for a ${kvType} cache`;
  const unit = Math.max(4, dtype.blockElems);
  for (const size of [n.headDim, n.vHeadDim]) {
    if (size % unit !== 0) return `heads of ${size}, kernels take multiples of ${unit}`;
  }
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
    vHeadDim: n.vHeadDim,
    headBytes: bytesFor(dtype, n.headDim),
    vHeadBytes: bytesFor(dtype, n.vHeadDim),
    rowBytes,
    tables,
    scale: n.scale,
    window: n.window,
    causal: n.causal,
    lengths: n.causal ? undefined : c.lengths(),
    softcap: n.softcap,
    sinks: n.sinks && c.vector(n.sinks),
  };
};

export const attention: InstructionDef<Attention> = {
  access: "barrier",
  kernels: ({ kvType, softcap }) => {
    const parts = ["attn_scores", "attn_scores4", "attn_mix", "attn_mix4"];
    const rows = softcap === undefined ? ["softmax"] : ["softmax", "softcap"];
    return [...rows, ...parts.map((part) => `${part}_${kvType}`)];
  },
  code: ({ headDim, vHeadDim }) => [headDim, vHeadDim],
  execute,
};

/** Chunks are (token, KV head). The first of four tokens does what is done for all four. */
function execute(i: Attention, c: ExecutorContext): Executor {
  const sharing = i.heads / i.kvHeads;
  const wideHeads = sharing - (sharing % WIDE_QUERIES);
  const passes = makePasses(i, c);
  return {
    chunks: () => rowCount(c, "tokens") * i.kvHeads,
    run: (chunk) => {
      const token = Math.floor(chunk / i.kvHeads);
      const kvHead = chunk % i.kvHeads;
      const first = token * i.heads + kvHead * sharing;
      for (let head = 0; head < wideHeads; head += WIDE_QUERIES) {
        passes.fourHeads(token, kvHead, first + head);
      }
      if (wideHeads === sharing) return;
      const inFour = isInFour(i, c, token);
      if (inFour && token % WIDE_QUERIES !== 0) return;
      const pass = inFour ? passes.fourTokens : passes.oneHead;
      for (let head = wideHeads; head < sharing; head++) {
        pass(token, kvHead, first + head);
      }
    },
  };
}

/** The four tokens of which this is one (0 to 3, 4 to 7, ...) follow one another in one sequence, and have positions in common. */
function isInFour(i: Attention, c: ExecutorContext, token: number): boolean {
  const first = token - (token % WIDE_QUERIES);
  const last = first + WIDE_QUERIES - 1;
  if (last >= rowCount(c, "tokens")) return false;
  const position = c.views.i32[c.program.batch.positions / 4 + first]!;
  const from = attendedFrom(i, position);
  for (let next = first + 1; next <= last; next++) {
    if (!follows(c, i.tables, next, from)) return false;
  }
  return (
    attendedFrom(i, position + WIDE_QUERIES - 1) < attendedTo(i, position, lengthOf(i, c, first))
  );
}

/** The token before is the one before it in its sequence: the cache of all positions from `from` up to there is the same. */
function follows(
  { program: { batch }, views: { i32 } }: ExecutorContext,
  tables: number,
  token: number,
  from: number,
): boolean {
  const position = batch.positions / 4 + token;
  if (i32[position] !== i32[position - 1]! + 1) return false;
  const table = tables / 4 + token * batch.tableLength;
  const blocks = Math.floor(i32[position - 1]! / KV_BLOCK_TOKENS) + 1;
  for (let block = Math.floor(from / KV_BLOCK_TOKENS); block < blocks; block++) {
    if (i32[table + block] !== i32[table + block - batch.tableLength]) return false;
  }
  return true;
}

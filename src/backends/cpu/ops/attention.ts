// attention: scores, softmax and mix, by kernels over the paged cache (attention-passes.ts); for many tokens of a sequence, over
// rows of it that are widened first (attention-prefill.ts).
//
// Otherwise four queries that attend to the same keys and values share a pass over the cache: four heads that share a KV head, or, of
// the remaining heads, one head of four neighbouring tokens (prefill). A query's result has the same bits either way: the
// kernels add in the same order, and positions that a token does not attend to never contribute to it.
//
// A token attends to a range of positions (graph/attended.ts). Table entries of blocks before that range are never read: those
// blocks may belong to another sequence by now.

import { bytesFor } from "../../../dtypes/dtype.ts";
import { dtypeByName } from "../../../dtypes/table.ts";
import { attendedFrom, attendedTo } from "../../../graph/attended.ts";
import { KV_BLOCK_TOKENS } from "../../../graph/batch.ts";
import { mixesWidened } from "../../../kernels/ops/attention/kv-widen.ts";
import { type Executor, type ExecutorContext, rowCount } from "../executor.ts";
import type { Attention } from "./attention-instruction.ts";
import { lengthOf, makePasses, WIDE_QUERIES } from "./attention-passes.ts";
import { makeMany, manyKernels, manyScratchBytes, tokensOfChunk } from "./attention-prefill.ts";
import type { InstructionDef, LowerNode } from "./op.ts";

export const lowerAttention: LowerNode<"attention"> = (c, n): Attention | string => {
  const { keys, values } = c.cache(n.state);
  const [kType, vType] = [dtypeByName(keys.type)!, dtypeByName(values.type)!];
  for (const [kernel, dtype, size] of [
    ["attn_scores", kType, n.headDim],
    ["attn_mix", vType, n.vHeadDim],
  ] as const) {
    if (!c.hasKernel(`${kernel}_${dtype.name}`)) return `no kernel for a ${dtype.name} cache`;
    const unit = Math.max(4, dtype.blockElems);
    if (size % unit !== 0) return `heads of ${size}, kernels take multiples of ${unit}`;
  }
  return {
    op: "attention",
    q: c.address(n.q),
    out: c.address(n.out),
    keys,
    values,
    heads: n.heads,
    kvHeads: n.kvHeads,
    headDim: n.headDim,
    vHeadDim: n.vHeadDim,
    headBytes: bytesFor(kType, n.headDim),
    vHeadBytes: bytesFor(vType, n.vHeadDim),
    scale: n.scale,
    window: n.window,
    chunked: n.chunked,
    causal: n.causal,
    lengths: n.causal ? undefined : c.lengths(),
    softcap: n.softcap,
    sinks: n.sinks && c.vector(n.sinks),
    alibi: n.alibi && c.vector(n.alibi),
    bias: n.bias && c.vector(n.bias),
    buckets: n.buckets && c.vector(n.buckets),
    distances: n.buckets?.shape[0] ?? 0,
    many:
      c.rows >= WIDE_QUERIES && mixesWidened(vType.name)
        ? c.scratch(manyScratchBytes(n))
        : undefined,
  };
};

export const attention: InstructionDef<Attention> = {
  access: "barrier",
  kernels: ({ keys, values, softcap, many }) => {
    const rows = softcap === undefined ? ["softmax"] : ["softmax", "softcap"];
    const scores = [`attn_scores_${keys.type}`, `attn_scores4_${keys.type}`];
    const mix = [`attn_mix_${values.type}`, `attn_mix4_${values.type}`];
    return [...rows, ...scores, ...mix, ...(many ? manyKernels(keys.type, values.type) : [])];
  },
  code: ({ headDim, vHeadDim }) => [headDim, vHeadDim],
  execute,
};

/**
 * Chunks are some neighbouring rows of the batch with one KV head. Those of a KV head follow one another, so that its keys and
 * values stay in a cache.
 */
function execute(i: Attention, c: ExecutorContext): Executor {
  const { alone, inFours } = makeFew(i, c);
  const many = i.many && makeMany(i, c, i.many);
  const rowsOf = (tokens: number) => (many ? tokensOfChunk(i, c.program, tokens) : 1);
  return {
    chunks: () => {
      const tokens = rowCount(c, "tokens");
      return Math.ceil(tokens / rowsOf(tokens)) * i.kvHeads;
    },
    run: (chunk) => {
      const tokens = rowCount(c, "tokens");
      const rows = rowsOf(tokens);
      const chunksOfHead = Math.ceil(tokens / rows);
      const kvHead = Math.floor(chunk / chunksOfHead);
      const from = (chunk % chunksOfHead) * rows;
      if (!many || rows === 1) {
        inFours(from, kvHead);
        return;
      }
      const to = Math.min(tokens, from + rows);
      for (let token = from; token < to; ) {
        const count = neighbours(i, c, token, to);
        const inMany = count - (count % WIDE_QUERIES);
        if (inMany > 0) many(token, inMany, kvHead);
        for (let next = token + inMany; next < token + count; next++) alone(next, kvHead);
        token += count;
      }
    },
  };
}

type OfToken = (token: number, kvHead: number) => void;

/** A token with a KV head: alone, or the first of four for all of them. */
function makeFew(i: Attention, c: ExecutorContext): Record<"alone" | "inFours", OfToken> {
  const sharing = i.heads / i.kvHeads;
  const wideHeads = sharing - (sharing % WIDE_QUERIES);
  const passes = makePasses(i, c);
  const attend = (token: number, kvHead: number, others: "oneHead" | "fourTokens" | undefined) => {
    const first = token * i.heads + kvHead * sharing;
    for (let head = 0; head < wideHeads; head += WIDE_QUERIES) {
      passes.fourHeads(token, kvHead, first + head);
    }
    if (others === undefined) return;
    for (let head = wideHeads; head < sharing; head++) {
      passes[others](token, kvHead, first + head);
    }
  };
  return {
    alone: (token, kvHead) => attend(token, kvHead, "oneHead"),
    inFours: (token, kvHead) => {
      const inFour = wideHeads < sharing && isInFour(i, c, token);
      const isFirst = token % WIDE_QUERIES === 0;
      attend(token, kvHead, inFour ? (isFirst ? "fourTokens" : undefined) : "oneHead");
    },
  };
}

/** Whether this token's four (0 to 3, 4 to 7, ...) follow one another in one sequence, and attend to common positions. */
function isInFour(i: Attention, c: ExecutorContext, token: number): boolean {
  const first = token - (token % WIDE_QUERIES);
  const after = first + WIDE_QUERIES;
  if (after > rowCount(c, "tokens") || neighbours(i, c, first, after) < WIDE_QUERIES) return false;
  const position = c.views.i32[c.program.batch.positions / 4 + first]!;
  return (
    attendedFrom(i, position + WIDE_QUERIES - 1) < attendedTo(i, position, lengthOf(i, c, first))
  );
}

/** The number of rows of the batch, from `first` on and before `end`, that follow one another in one sequence. */
function neighbours(i: Attention, c: ExecutorContext, first: number, end: number): number {
  const from = attendedFrom(i, c.views.i32[c.program.batch.positions / 4 + first]!);
  let next = first + 1;
  while (next < end && follows(c, i.keys.tables, next, from)) next++;
  return next - first;
}

/** Whether the row before is the token before it in its sequence: both then read the same cache from `from` up to there. */
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

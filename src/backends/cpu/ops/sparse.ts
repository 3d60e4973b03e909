// index_scores, top_k and sparse_attention, in plain TypeScript: positions lie anywhere in the cache, so that rows are read one by one.
// They are computed only beyond the context that such models attend to as a whole.

import { bytesFor } from "../../../dtypes/dtype.ts";
import { dtypeByName } from "../../../dtypes/table.ts";
import { KV_BLOCK_TOKENS } from "../../../graph/batch.ts";
import { chooseLargest } from "../../../graph/reference-index.ts";
import { softmaxInPlace } from "../../../graph/route.ts";
import { type Executor, type ExecutorContext, rowCount } from "../executor.ts";
import type { CacheRows, InstructionDef, LowerNode } from "./op.ts";

export interface IndexScores {
  readonly op: "index_scores";
  readonly q: number;
  readonly weights: number;
  readonly out: number;
  readonly keys: CacheRows;
  readonly values: CacheRows;
  readonly heads: number;
  /** Values of a head's first half, and of its second. */
  readonly half: number;
  readonly context: number;
}

export interface TopK {
  readonly op: "top_k";
  readonly x: number;
  readonly out: number;
  readonly context: number;
  readonly most: number;
}

export interface SparseAttention {
  readonly op: "sparse_attention";
  readonly q: number;
  readonly chosen: number;
  readonly out: number;
  readonly keys: CacheRows;
  readonly values: CacheRows;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vHeadDim: number;
  readonly most: number;
  readonly scale: number;
}

export const lowerIndexScores: LowerNode<"index_scores"> = (c, n): IndexScores => ({
  op: "index_scores",
  q: c.address(n.q),
  weights: c.address(n.weights),
  out: c.address(n.out),
  ...c.cache(n.state),
  heads: n.heads,
  half: n.q.cols / n.heads / 2,
  context: n.out.cols,
});

export const lowerTopK: LowerNode<"top_k"> = (c, n): TopK => ({
  op: "top_k",
  x: c.address(n.x),
  out: c.address(n.out),
  context: n.x.cols,
  most: n.out.cols,
});

export const lowerSparseAttention: LowerNode<"sparse_attention"> = (c, n): SparseAttention => ({
  op: "sparse_attention",
  q: c.address(n.q),
  chosen: c.address(n.chosen),
  out: c.address(n.out),
  ...c.cache(n.state),
  heads: n.heads,
  kvHeads: n.kvHeads,
  headDim: n.headDim,
  vHeadDim: n.vHeadDim,
  most: n.chosen.cols,
  scale: n.scale,
});

export const indexScores: InstructionDef<IndexScores> = {
  access: "barrier",
  kernels: () => [],
  code: "wasm",

  execute(i, c) {
    const { f32 } = c.views;
    const { heads, half, context } = i;
    const [first, last] = [rowReader(i.keys, half, c), rowReader(i.values, half, c)];
    return perToken(c, (token, position) => {
      const out = i.out / 4 + token * context;
      const weights = i.weights / 4 + token * heads;
      const q = i.q / 4 + token * heads * 2 * half;
      for (let p = 0; p <= position; p++) {
        const [key, rest] = [first(token, p), last(token, p)];
        let sum = 0;
        for (let head = 0; head < heads; head++) {
          const at = q + head * 2 * half;
          const score = dotOf(f32, at, key, 0, half) + dotOf(f32, at + half, rest, 0, half);
          sum += Math.max(score, 0) * f32[weights + head]!;
        }
        f32[out + p] = sum;
      }
      f32.fill(0, out + position + 1, out + context);
    });
  },
};

export const topK: InstructionDef<TopK> = {
  access: "barrier",
  kernels: () => [],
  code: "wasm",

  execute(i, c) {
    const { f32 } = c.views;
    return perToken(c, (token, position) => {
      const x = i.x / 4 + token * i.context;
      const out = i.out / 4 + token * i.most;
      chooseLargest(f32, x, position + 1, f32, out, i.most);
    });
  },
};

export const sparseAttention: InstructionDef<SparseAttention> = {
  access: "barrier",
  kernels: () => [],
  code: "wasm",

  execute(i, c) {
    const { f32 } = c.views;
    const { heads, kvHeads, headDim, vHeadDim, most } = i;
    const keyOf = rowReader(i.keys, kvHeads * headDim, c);
    const rowOf = rowReader(i.values, kvHeads * vHeadDim, c);
    const scores = new Float32Array(heads * most);
    const sharing = heads / kvHeads;
    return perToken(c, (token, position) => {
      const count = Math.min(position + 1, most);
      const chosen = i.chosen / 4 + token * most;
      const q = i.q / 4 + token * heads * headDim;
      const out = i.out / 4 + token * heads * vHeadDim;
      for (let n = 0; n < count; n++) {
        const key = keyOf(token, f32[chosen + n]!);
        for (let head = 0; head < heads; head++) {
          const at = Math.floor(head / sharing) * headDim;
          scores[head * most + n] = dotOf(f32, q + head * headDim, key, at, headDim) * i.scale;
        }
      }
      for (let head = 0; head < heads; head++) softmaxInPlace(scores, head * most, count);
      f32.fill(0, out, out + heads * vHeadDim);
      for (let n = 0; n < count; n++) {
        const value = rowOf(token, f32[chosen + n]!);
        for (let head = 0; head < heads; head++) {
          const [at, to] = [Math.floor(head / sharing) * vHeadDim, out + head * vHeadDim];
          const weight = scores[head * most + n]!;
          for (let col = 0; col < vHeadDim; col++) f32[to + col]! += weight * value[at + col]!;
        }
      }
    });
  },
};

function perToken(c: ExecutorContext, run: (token: number, position: number) => void): Executor {
  const { i32 } = c.views;
  const positions = c.program.batch.positions / 4;
  return {
    chunks: () => rowCount(c, "tokens"),
    run: (token) => run(token, i32[positions + token]!),
  };
}

/** Reads the row of a position of a token's sequence, which is valid until the next one is read. */
function rowReader(
  { type, at, rowBytes, tables }: CacheRows,
  cols: number,
  { program: { batch }, views: { i32, u8 } }: ExecutorContext,
): (token: number, position: number) => Float32Array {
  const dtype = dtypeByName(type)!;
  const row = new Float32Array(cols);
  const blocks = bytesFor(dtype, cols) / dtype.blockBytes;
  return (token, position) => {
    const entry = tables / 4 + token * batch.tableLength + Math.floor(position / KV_BLOCK_TOKENS);
    const cacheRow = i32[entry]! * KV_BLOCK_TOKENS + (position % KV_BLOCK_TOKENS);
    dtype.dequantize(u8, at + cacheRow * rowBytes, row, 0, blocks);
    return row;
  };
}

function dotOf(a: Float32Array, aAt: number, b: Float32Array, bAt: number, count: number): number {
  let sum = 0;
  for (let i = 0; i < count; i++) sum += a[aAt + i]! * b[bAt + i]!;
  return sum;
}

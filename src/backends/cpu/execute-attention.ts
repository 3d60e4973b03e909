// The attention instruction: scores, softmax and mix, by kernels over the paged cache.

import { KV_BLOCK_TOKENS } from "../../graph/step.ts";
import { type Executor, type ExecutorContext, rowCount } from "./executor.ts";
import type { InstructionOf } from "./program.ts";

/** Query heads that the wide attention kernels take at once. */
export const WIDE_HEADS = 4;

/**
 * Chunks are (token, KV head): the query heads that share a KV head read the same keys and values, four of them in one
 * pass where there are as many.
 */
export function makeAttention(i: InstructionOf<"attention">, c: ExecutorContext): Executor {
  const { softmax } = c.kernels;
  const [scores1, mix1] = [
    c.kernels[`attn_scores_${i.kvType}`]!,
    c.kernels[`attn_mix_${i.kvType}`]!,
  ];
  const [scores4, mix4] = [
    c.kernels[`attn_scores4_${i.kvType}`]!,
    c.kernels[`attn_mix4_${i.kvType}`]!,
  ];
  const { step } = c.program;
  const sharing = i.heads / i.kvHeads;
  const { keys, values, rowBytes, headDim, scale } = i;
  const headStride = headDim * 4;
  const scoreStride = c.program.scoresLength * 4;
  const scores = c.program.scores + c.thread * WIDE_HEADS * scoreStride;
  return {
    chunks: () => rowCount(c, "tokens") * i.kvHeads,
    run: (chunk) => {
      const token = Math.floor(chunk / i.kvHeads);
      const kvHead = chunk % i.kvHeads;
      const length = c.views.i32[step.positions / 4 + token]! + 1;
      const blocks = Math.floor(length / KV_BLOCK_TOKENS);
      const last = length % KV_BLOCK_TOKENS;
      const table = step.tables + token * step.tableLength * 4;
      const offset = kvHead * i.headBytes;
      const first = (token * i.heads + kvHead * sharing) * headStride;
      let head = 0;
      for (; head + WIDE_HEADS <= sharing; head += WIDE_HEADS) {
        const at = first + head * headStride;
        // biome-ignore format: a kernel's parameters in their order
        scores4(i.q + at, keys, table, scores, blocks, last, rowBytes, offset, headDim, scale, headStride, scoreStride);
        for (let row = 0; row < WIDE_HEADS; row++) {
          softmax!(scores + row * scoreStride, scores + row * scoreStride, length);
        }
        // biome-ignore format: a kernel's parameters in their order
        mix4(scores, values, table, i.out + at, blocks, last, rowBytes, offset, headDim, scoreStride, headStride);
      }
      for (; head < sharing; head++) {
        const at = first + head * headStride;
        scores1(i.q + at, keys, table, scores, blocks, last, rowBytes, offset, headDim, scale);
        softmax!(scores, scores, length);
        mix1(scores, values, table, i.out + at, blocks, last, rowBytes, offset, headDim);
      }
    },
  };
}

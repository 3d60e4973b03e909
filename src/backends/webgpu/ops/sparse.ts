// index_scores, top_k and sparse_attention on the GPU.

import { indexScoresKernel, sparseAttentionKernel, topKKernel } from "../wgsl/sparse.ts";
import { headsFit } from "./attention.ts";
import { always, type GpuOp } from "./op.ts";

export const indexScores: GpuOp<"index_scores"> = always((node, { kv, batch }) =>
  indexScoresKernel(node, kv, batch),
);

export const topK: GpuOp<"top_k"> = always((node, { batch }) => topKKernel(node, batch));

export const sparseAttention: GpuOp<"sparse_attention"> = {
  supports: headsFit,
  lower: (node, { kv, batch }) => [sparseAttentionKernel(node, kv, batch)],
};

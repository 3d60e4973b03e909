// rope, kv_write and attention on the GPU.

import { attentionKernel } from "../wgsl/attention.ts";
import {
  attentionMatricesKernel,
  hasMatrixAttention,
  subgroupsFor,
} from "../wgsl/attention-matrices.ts";
import { attentionSubgroupsKernel, hasSubgroups } from "../wgsl/attention-subgroups.ts";
import { kvWriteKernel } from "../wgsl/kv-write.ts";
import { ropeKernel } from "../wgsl/rope.ts";
import { always, type GpuOp } from "./op.ts";

/** The largest head that fits the workgroup memory of every device. */
const MOST_HEAD_VALUES = 2048;

export const rope: GpuOp<"rope"> = {
  supports: ({ headDim }) => headDim % 2 === 0 || `heads of ${headDim} values cannot be paired`,
  lower: (node, { batch }) => [ropeKernel(node, batch)],
};

export const kvWrite: GpuOp<"kv_write"> = always((node, { kv, batch }) =>
  kvWriteKernel(node, kv, batch),
);

/** Whether kernels take heads of these sizes. */
export function headsFit({
  headDim,
  vHeadDim,
}: {
  readonly headDim: number;
  readonly vHeadDim: number;
}): true | string {
  for (const size of [headDim, vHeadDim]) {
    if (size % 4 !== 0) return `heads of ${size} values; they must be a multiple of 4`;
    if (size > MOST_HEAD_VALUES) return `heads of ${size} values; at most ${MOST_HEAD_VALUES}`;
  }
  return true;
}

export const attention: GpuOp<"attention"> = {
  supports: headsFit,
  lower(node, context) {
    const { kv, batch, exchange, promptAttentionSize: size, matrices, smallBatch } = context;
    const any =
      size > 0 && hasSubgroups(node, kv)
        ? attentionSubgroupsKernel(node, kv, batch, exchange, size)
        : attentionKernel(node, kv, batch);
    const isWanted = context.matrixAttention && !context.wide;
    if (!matrices || !isWanted || !hasMatrixAttention(node, kv, matrices)) return [any];
    // Batches of many tokens are on matrix units with their matmuls, smaller ones have the bits of single tokens. Tokens that
    // other users generate beside a prompt are not: a tile of matrices would compute one sequence after the other.
    const { most } = smallBatch;
    const minRows = most + 1;
    const subgroups = subgroupsFor(node.headDim, matrices.bytes);
    const onMatrices = attentionMatricesKernel(node, kv, batch, matrices.calls, minRows, subgroups);
    return [
      { ...any, maxRows: most },
      { ...any, minRows, part: "short" },
      { ...onMatrices, part: "long", inHalves: true },
    ];
  },
};

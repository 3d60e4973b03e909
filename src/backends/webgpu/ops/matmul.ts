// matmul on the GPU: kernels for few tokens, and kernels for many tokens, which read activations that were rounded before.

import type { NodeOf } from "../../../graph/graph.ts";
import type { Kernel } from "../wgsl/kernel.ts";
import { matmulKernel } from "../wgsl/matmul.ts";
import { type FusedMatmul, fusedMatmulKernel, laneDotOf } from "../wgsl/matmul-few.ts";
import { hasMatrices, matmulMatricesKernels } from "../wgsl/matmul-matrices.ts";
import { MATVEC_TOKENS, matvecKernel } from "../wgsl/matvec.ts";
import {
  fitsHalves,
  roundKernel,
  roundsActivations,
  roundsToHalves,
} from "../wgsl/round-activations.ts";
import type { GpuOp, LowerContext } from "./op.ts";
import { readable } from "./readable.ts";

export const matmul: GpuOp<"matmul"> = {
  supports: ({ weight }) => readable(weight.dtype),

  lower(node, context) {
    const { weight, x } = node;
    const own = context.weights.parts.get(weight.name)!;
    // The kernels for half floats stage them as such; the others read floats.
    const isWide = context.wide && roundsToHalves(weight);
    const isTuned = !isWide && laneDotOf(weight, context.workgroupBytes) !== undefined;
    const matrices = isWide ? undefined : context.matrices;
    const onMatrices = matrices && hasMatrices(node, matrices) && fitsHalves(weight);
    const few = isTuned
      ? fusedMatmulKernels({ x, matmuls: [node] }, context)
      : own.map((_, part) => matvecKernel(node, own, part));
    const many = own.flatMap((_, part) =>
      onMatrices
        ? matmulMatricesKernels(node, own, part, matrices)
        : [matmulKernel(node, own, part)],
    );
    if (!onMatrices) {
      return [...roundOnce(node, isTuned ? MATVEC_TOKENS + 1 : 1, false, context), ...few, ...many];
    }
    const once = isTuned ? [] : roundOnce(node, 1, false, context);
    return [...once, ...few, ...roundOnce(node, MATVEC_TOKENS + 1, true, context), ...many];
  },
};

/** Rounds activations, unless a matmul before (as q before k and v) has rounded the same ones. */
export function roundOnce(
  { x, weight }: Pick<NodeOf<"matmul">, "x" | "weight">,
  minRows: number,
  halves: boolean,
  { rounded, wide }: Pick<LowerContext, "rounded" | "wide">,
): Kernel[] {
  const { activation } = weight.dtype;
  if (!roundsActivations(weight)) return [];
  const isThere = rounded.value === x && rounded.activation === activation;
  if (isThere && rounded.minRows! <= minRows && rounded.halves === halves) return [];
  Object.assign(rounded, { value: x, activation, minRows, halves });
  const kernel = roundKernel(x, weight, halves, wide && roundsToHalves(weight));
  return [{ ...kernel, minRows, preparedBytes: halves ? 2 : 4 }];
}

/** The kernels of a fused matmul, one for each part of the weights. */
export function fusedMatmulKernels(matmul: FusedMatmul, context: LowerContext): Kernel[] {
  const { weights } = context;
  const { name } = matmul.matmuls[0]!.weight;
  const own = matmul.matmuls.length > 1 ? [weights.stacks.get(name)!] : weights.parts.get(name)!;
  return own.map((part, number) => fusedMatmulKernel(matmul, part, number, context));
}

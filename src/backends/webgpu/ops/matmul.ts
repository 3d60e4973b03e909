// matmul on the GPU: kernels for few tokens, and kernels for many tokens, which read activations that were rounded before.

import type { NodeOf } from "../../../graph/graph.ts";
import type { WeightPart } from "../weight-layout.ts";
import type { Kernel } from "../wgsl/kernel.ts";
import { matmulKernel } from "../wgsl/matmul.ts";
import { type FusedMatmul, fusedMatmulKernel, laneDotOf } from "../wgsl/matmul-gemv.ts";
import { matmulMatricesKernels } from "../wgsl/matmul-matrices.ts";
import { isSmall, smallBatchKernels, smallKernel } from "../wgsl/matmul-small-batch.ts";
import { hasMatrices } from "../wgsl/matrix-shapes.ts";
import { MATVEC_TOKENS, matvecKernel } from "../wgsl/matvec.ts";
import { prepareKernel } from "../wgsl/prepare-activations.ts";
import {
  fitsHalves,
  roundKernel,
  roundsActivations,
  roundsToHalves,
} from "../wgsl/round-activations.ts";
import { SUBGROUP } from "../wgsl/subgroups.ts";
import type { GpuOp, LowerContext, Rounded } from "./op.ts";
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
    const onMatrices = matrices && hasMatrices(weight, matrices) && fitsHalves(weight);
    const few = isTuned
      ? fusedMatmulKernels([{ x, matmuls: [node] }], context)
      : own.map((_, part) => matvecKernel(node, own, part));
    // Kernels for few tokens prepare activations themselves, where they are tuned.
    const least = (isTuned ? context.smallBatch.most : MATVEC_TOKENS) + 1;
    if (isTuned && isSmall(weight)) {
      return [
        ...few,
        ...own.map((part, number) => smallKernel(node, part, number, context, least)),
      ];
    }
    if (!onMatrices) {
      const many = own.map((_, part) => ({ ...matmulKernel(node, own, part), minRows: least }));
      return [...roundOnce(node, isTuned ? least : 1, false, context), ...few, ...many];
    }
    const once = isTuned ? [] : roundOnce(node, 1, false, context);
    const many = own
      .flatMap((part, number) =>
        matmulMatricesKernels({ x, matmuls: [node] }, part, number, matrices, least),
      )
      .map((kernel) => ({ ...kernel, inHalves: true }));
    return [...once, ...few, ...roundOnce(node, least, true, context), ...many];
  },
};

/** Rounds activations, unless a matmul before (as q before k and v) has rounded the same ones. */
export function roundOnce(
  { x, weight }: Pick<NodeOf<"matmul">, "x" | "weight">,
  minRows: number,
  halves: boolean,
  { rounded, wide }: Pick<LowerContext, "rounded" | "wide">,
  form: string = halves ? "halves" : "floats",
): Kernel[] {
  const { activation } = weight.dtype;
  if (!roundsActivations(weight)) return [];
  if (isRounded(rounded, { value: x, activation, minRows, form })) return [];
  const kernel = roundKernel(x, weight, halves, wide && roundsToHalves(weight));
  return [{ ...kernel, minRows, preparedBytes: halves ? 2 : 4 }];
}

/** Whether `wanted` is in the buffer of rounded activations already; otherwise it will be, after the next kernel. */
export function isRounded(rounded: Rounded, wanted: Required<Omit<Rounded, "gathered">>): boolean {
  const { value, activation, form, minRows } = rounded;
  const isSame = value === wanted.value && activation === wanted.activation && form === wanted.form;
  if (isSame && minRows! <= wanted.minRows!) return true;
  Object.assign(rounded, wanted, { gathered: undefined });
  return false;
}

/** The kernels of fused matmuls that read the same activations: for one token, and for several. */
export function fusedMatmulKernels(fused: readonly FusedMatmul[], context: LowerContext): Kernel[] {
  const single = fused.flatMap((matmul) =>
    partsOf(matmul, context).map((part, number) =>
      fusedMatmulKernel(matmul, part, number, context),
    ),
  );
  const activations = new Set(fused.map(({ matmuls }) => matmuls[0]!.weight.dtype.activation));
  const several = [...activations].flatMap((activation) => {
    const same = fused.filter(({ matmuls }) => matmuls[0]!.weight.dtype.activation === activation);
    return [prepareFor(same[0]!, context), ...same.flatMap((matmul) => severalOf(matmul, context))];
  });
  return [...single, ...several];
}

/** Kernels for batches of more tokens, on matrix units; undefined: there are none. */
export function fusedMatricesKernels(
  fused: readonly FusedMatmul[],
  context: LowerContext,
): Kernel[] | undefined {
  const { matrices, smallBatch } = context;
  if (!matrices || fused.length === 0) return undefined;
  const weights = fused.map(({ matmuls }) => matmuls[0]!.weight);
  const fits =
    fused.every(({ matmuls }) => hasMatrices(matmuls[0]!.weight, matrices)) &&
    weights.every(fitsHalves);
  if (!fits) return undefined;
  const least = smallBatch.most + 1;
  const activations = new Set(weights.map(({ dtype }) => dtype.activation));
  return [...activations].flatMap((activation) => {
    const same = fused.filter(({ matmuls }) => matmuls[0]!.weight.dtype.activation === activation);
    return [
      prepareFor(same[0]!, context, true),
      ...same.flatMap((matmul) =>
        partsOf(matmul, context).flatMap((part, number) =>
          matmulMatricesKernels(matmul, part, number, matrices, least),
        ),
      ),
    ];
  });
}

function severalOf(matmul: FusedMatmul, context: LowerContext): Kernel[] {
  return partsOf(matmul, context).flatMap((part, number) =>
    smallBatchKernels(matmul, part, number, context),
  );
}

function prepareFor(matmul: FusedMatmul, context: LowerContext, halves = false): Kernel {
  const { most } = context.smallBatch;
  const { weight, out, x } = matmul.matmuls[0]!;
  const { rows } = partsOf(matmul, context)[0]!;
  const { subgroups } = context.shapeFor(rows, x.cols, weight.dtype.name);
  return prepareKernel(matmul, weight, {
    ...context,
    size: subgroups * SUBGROUP,
    rows: out.rows,
    minRows: halves ? most + 1 : 2,
    maxRows: halves ? Infinity : most,
    halves,
  });
}

function partsOf({ matmuls }: FusedMatmul, { weights }: LowerContext): readonly WeightPart[] {
  const { name } = matmuls[0]!.weight;
  return matmuls.length > 1 ? [weights.stacks.get(name)!] : weights.parts.get(name)!;
}

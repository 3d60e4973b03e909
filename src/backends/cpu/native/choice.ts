// Matmuls as machine code: only by variants that have code. What is chosen (by default, or as it was tuned) estimates
// which tiles fit the registers; the lowering knows. A variant that it refuses is replaced before anything is laid out, and
// the sentence is told.

import type { Kernel } from "../../../kernels/ir/kernel.ts";
import { splitKnobs } from "../../../kernels/knobs.ts";
import {
  acceptsProblem,
  type ChooseMatmul,
  type MatmulProblem,
  type MatmulVariant,
  matmulVariants,
  variantById,
} from "../../../kernels/matmul-variants.ts";
import { layoutFor } from "../../../kernels/ops/packed/packing.ts";
import { packingOf } from "../../../kernels/ops/packed/packings.ts";
import { floatTypeOf } from "../memory/float-panels.ts";
import { blockKernels, floatKernels, type VariantKernels } from "../ops/matmul-kernels.ts";
import type { NativeKernels } from "./native.ts";

type NativeCompiler = Pick<NativeKernels, "target" | "lower">;

/** Why a variant has no code for weights of this type: the lowering's sentence; undefined: it has. */
export type RefusalOf = (dtype: string, variant: MatmulVariant) => string | undefined;

/** Models are laid out several times before they fit, and the same code is asked for each time. */
const remembered = new WeakMap<object, RefusalOf>();

export function refusals(native: NativeCompiler): RefusalOf {
  const known = remembered.get(native) ?? remembering(native);
  remembered.set(native, known);
  return known;
}

function remembering(native: NativeCompiler): RefusalOf {
  const known = new Map<string, string | undefined>();
  return (dtype, variant) => {
    const key = `${dtype} ${variant.id}`;
    if (!known.has(key)) known.set(key, refusalOf(native, dtype, variant));
    return known.get(key);
  };
}

function refusalOf(
  { target, lower }: NativeCompiler,
  dtype: string,
  variant: MatmulVariant,
): string | undefined {
  const packing = packingOf(dtype);
  const made = packing
    ? blockKernels(dtype, layoutFor(packing, target), variant)
    : floatKernels(floatTypeOf(dtype)!, target, variant);
  for (const kernel of kernelsIn(made)) {
    const code = lower(kernel);
    if (typeof code === "string") return code;
  }
  return undefined;
}

function kernelsIn({ vector, vectorStreams, vectorHalf, matrix }: VariantKernels): Kernel[] {
  const ofTiles = matrix.flatMap(({ kernel, inStreams }) =>
    inStreams ? [kernel, inStreams] : [kernel],
  );
  // The widest first: it is the one that is refused.
  return [...ofTiles.reverse(), vectorStreams, ...(vectorHalf ? [vectorHalf] : []), vector];
}

/** The same choice with variants that have code in place of those that have none. */
export function choiceWithCode(
  choose: ChooseMatmul,
  refusal: RefusalOf,
  target: NativeKernels["target"],
): ChooseMatmul {
  return (problems, maxTokens, threads) => {
    const choice = choose(problems, maxTokens, threads);
    const notes = [...choice.notes];
    const variants = choice.variants.map((variant) => {
      const reason = firstRefusal(problems, variant, refusal);
      if (reason === undefined) return variant;
      const instead = replacement(problems, variant, refusal, target);
      notes.push(
        `${problems[0]!.dtype}: ${variant.id} is refused (${reason}); ${instead.id} instead`,
      );
      return instead;
    });
    return { ...choice, variants, notes };
  };
}

function firstRefusal(
  problems: readonly MatmulProblem[],
  variant: MatmulVariant,
  refusal: RefusalOf,
): string | undefined {
  return problems
    .map(({ dtype }) => refusal(dtype, variant))
    .find((reason) => reason !== undefined);
}

/**
 * The same as usual where its knobs are what does not fit; or the one with the most tokens that is no wider; or the smallest
 * of all, which whoever lowers it will refuse by itself.
 */
function replacement(
  problems: readonly MatmulProblem[],
  { tokens, shared, knobs, id }: MatmulVariant,
  refusal: RefusalOf,
  target: NativeKernels["target"],
): MatmulVariant {
  const narrower = matmulVariants(target)
    .filter((one) => one.tokens <= tokens && one.shared === shared)
    .sort((a, b) => b.tokens - a.tokens || a.streams - b.streams);
  const fits = (one: MatmulVariant) =>
    problems.every((problem) => acceptsProblem(one, problem, target) === true) &&
    firstRefusal(problems, one, refusal) === undefined;
  const usual = knobs && variantById(splitKnobs(id).rest, target);
  if (usual && fits(usual)) return usual;
  return narrower.find(fits) ?? narrower.at(-1)!;
}

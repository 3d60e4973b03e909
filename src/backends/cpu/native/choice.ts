// Replaces matmul variants that machine code refuses. The choice (by default, or tuned) only estimates which register tiles
// fit; the lowering knows. A refused variant is replaced before anything is laid out, and the reason is noted.

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

/** Why a variant has no machine code for weights of this type, in the lowering's words; undefined: it has. */
export type RefusalOf = (dtype: string, variant: MatmulVariant) => string | undefined;

/** A model may be laid out several times before it fits, with the same questions each time. */
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

function kernelsIn({
  vector,
  vectorStreams,
  vectorHalf,
  matrix,
  unpack,
}: VariantKernels): Kernel[] {
  const ofTiles = matrix.flatMap(({ kernel, inStreams }) =>
    inStreams ? [kernel, inStreams] : [kernel],
  );
  // The widest first: it is the most likely to be refused.
  const others = [vectorHalf, unpack].filter((kernel) => kernel !== undefined);
  return [...ofTiles.reverse(), vectorStreams, ...others, vector];
}

/** The same choice, with variants that have code instead of those that have none. */
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
 * The same variant without knobs, if that fits; or the one with the most tokens that is no wider; or the smallest of all,
 * which the lowering may refuse, too.
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

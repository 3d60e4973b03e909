// The search space of tuning: the shapes of a model's matmuls, the numbers of tokens, and the thoroughness. The ways to
// compute a matmul come from the table of variants (kernels/matmul-variants.ts), not from here.

import { floatTypeOf } from "../backends/cpu/memory/float-panels.ts";
import { byName } from "../base/by-name.ts";
import { UsageError } from "../base/errors.ts";
import { bytesFor, type DType } from "../dtypes/dtype.ts";
import { allDTypes, dtypeByName } from "../dtypes/table.ts";
import type { MatmulProblem } from "../kernels/matmul-variants.ts";
import { packingOf } from "../kernels/ops/packed/packings.ts";
import { namedShapes, shapeNamed } from "../limits/configs.ts";
import type { ModelShape } from "../limits/shape.ts";

export type TuneMode = "quick" | "normal" | "full";

/** A kind of matmul, and the number of them for a token: one per layer, or more. */
export interface CountedProblem extends MatmulProblem {
  readonly count: number;
}

/** The properties of a tensor that tell which matmul it is part of. */
export interface TensorFacts {
  readonly name: string;
  /** [rows, columns], or [experts, rows, columns]. */
  readonly shape: readonly number[];
  readonly dtype: DType;
}

/**
 * The distinct matmuls of a model, from its tensors, and the number of matrices of each kind. An embedding table counts
 * if it is also the output matrix.
 */
export function countedProblems(tensors: Iterable<TensorFacts>): CountedProblem[] {
  const all = matricesOf(tensors).map(problemOf);
  const keys = all.map(keyOf);
  return distinct(all).map((problem) => ({
    ...problem,
    count: keys.filter((key) => key === keyOf(problem)).length,
  }));
}

function matricesOf(tensors: Iterable<TensorFacts>): TensorFacts[] {
  const all = [...tensors];
  const hasOutput = all.some(({ name }) => name === "output.weight");
  return all.filter(
    ({ name, shape }) =>
      shape.length >= 2 && name.endsWith(".weight") && !(hasOutput && name === "token_embd.weight"),
  );
}

function problemOf({ shape, dtype }: TensorFacts): MatmulProblem {
  return { dtype: dtype.name, n: shape.at(-2)!, k: shape.at(-1)! };
}

/** The distinct matmuls of a model of this shape with weights of one type, and the number of each. */
export function problemsOfShape(shape: ModelShape, dtype: string): CountedProblem[] {
  const { embed, feedForward, heads, kvHeads, headDim, vocabSize, layers } = shape;
  const sizes: readonly (readonly [n: number, k: number, count: number])[] = [
    [heads * headDim, embed, layers], // queries
    [kvHeads * headDim, embed, 2 * layers], // keys, values
    [embed, heads * headDim, layers], // attention's output
    [feedForward, embed, 2 * layers], // gate, up
    [embed, feedForward, layers], // down
    [vocabSize, embed, 1], // logits
  ];
  const all = sizes.map(([n, k, count]) => ({ dtype, n, k, count }));
  return distinct(all).map((problem) => ({
    ...problem,
    count: all.reduce((sum, one) => sum + (keyOf(one) === keyOf(problem) ? one.count : 0), 0),
  }));
}

/** The names for which Llama's shapes are meant: those of version 2, or of version 1 where 2 has no such size. */
const llamaSizes: Readonly<Record<string, string>> = byName({
  "7b": "llama-2-7b",
  "13b": "llama-2-13b",
  "30b": "llama-30b",
  "65b": "llama-65b",
  "70b": "llama-2-70b",
});

/** "7b" is Llama's; other names are those of `lantern limits --list`. */
export function shapeByName(name: string): ModelShape {
  const wanted = name.toLowerCase();
  const found = shapeNamed(llamaSizes[wanted] ?? name);
  if (found) return found.shape;
  const near = namedShapes.map(({ id }) => id).filter((id) => id.includes(wanted));
  const names = near.length > 0 ? near : namedShapes.map(({ id }) => id);
  throw new UsageError(
    `shapes: got "${name}", expected ${Object.keys(llamaSizes).join(", ")} or a name such as ${names.slice(0, 6).join(", ")} ("lantern limits --list" lists all)`,
  );
}

/** Whether there are kernels with variants for this type of weights. */
export function isTunable(dtype: string): boolean {
  return packingOf(dtype) !== undefined || floatTypeOf(dtype) !== undefined;
}

/** Checks that rows of this type can have that length. */
export function checkedProblem<P extends MatmulProblem>(problem: P): P {
  const dtype = dtypeByName(problem.dtype);
  if (!dtype || !isTunable(problem.dtype)) {
    const names = allDTypes().flatMap(({ name }) => (isTunable(name) ? [name] : []));
    throw new UsageError(`type: got "${problem.dtype}", expected one of ${names.join(", ")}`);
  }
  if (problem.k % dtype.blockElems !== 0) {
    throw new UsageError(
      `type: ${problem.dtype} has blocks of ${dtype.blockElems} values, but a matrix has rows of ${problem.k}`,
    );
  }
  return problem;
}

/** The numbers of tokens that were asked for, ascending, or those of the mode. */
export function tokensToTune(options: {
  readonly mode?: TuneMode | undefined;
  readonly mStep?: number | undefined;
  readonly mNum?: number | undefined;
  readonly tokens?: readonly number[] | undefined;
}): number[] {
  const { mode = "normal", mStep = 8, mNum = 16, tokens } = options;
  return tokens ? [...new Set(tokens)].sort((a, b) => a - b) : tokenCounts(mode, mStep, mNum);
}

/** Numbers of tokens to measure: small ones, where variants differ most, then regular steps. */
function tokenCounts(mode: TuneMode, step: number, count: number): number[] {
  const steps = Array.from({ length: count }, (_, i) => (i + 1) * step);
  // Up to four tokens each has a kernel of its own, 12 fill the widest register tile, 128 are a batch of a prompt.
  const few =
    mode === "quick" ? [1, 2, 3, 4, 8, 12, 16, 32, 128] : [1, 2, 3, 4, 6, 8, 12, ...steps];
  return [...new Set(few)].sort((a, b) => a - b);
}

/** Size of weights that no cache holds; a quick tune takes less, and may be wrong on machines with very large caches. */
export const STREAM_BYTES: Readonly<Record<TuneMode, number>> = {
  quick: 96 << 20,
  normal: 96 << 20,
  full: 256 << 20,
};

export function roundsOf(mode: TuneMode): number {
  return { quick: 5, normal: 7, full: 9 }[mode];
}

/** For a quick tune: the shape with the most bytes of each type, over all layers; others are estimated from it. */
export function largestOfEachType(problems: readonly CountedProblem[]): CountedProblem[] {
  const size = ({ n, k, count }: CountedProblem) => n * k * count;
  const largest = new Map<string, CountedProblem>();
  for (const problem of problems) {
    const known = largest.get(problem.dtype);
    if (!known || size(problem) > size(known)) largest.set(problem.dtype, problem);
  }
  return [...largest.values()];
}

/** The types with enough of the weights' bytes to be worth tuning. */
export function withoutRareTypes(
  problems: readonly CountedProblem[],
  leastShare: number,
): CountedProblem[] {
  const bytes = ({ dtype, n, k, count }: CountedProblem) =>
    bytesFor(dtypeByName(dtype)!, n * k) * count;
  const total = problems.reduce((sum, problem) => sum + bytes(problem), 0);
  const ofType = (dtype: string) =>
    problems.reduce((sum, problem) => sum + (problem.dtype === dtype ? bytes(problem) : 0), 0);
  return problems.filter(({ dtype }) => ofType(dtype) >= leastShare * total);
}

/** A quick tune skips types with less than this fraction of the weights. */
export const RARE_SHARE = 0.05;

/** The types that a quick tune measures, and without which a model does not count as tuned. */
export function typesToTune(problems: readonly CountedProblem[]): string[] {
  const tunable = problems.filter(({ dtype }) => isTunable(dtype));
  return [...new Set(withoutRareTypes(tunable, RARE_SHARE).map(({ dtype }) => dtype))];
}

function distinct<P extends MatmulProblem>(problems: readonly P[]): P[] {
  const byKey = new Map(problems.map((one) => [keyOf(one), one]));
  return [...byKey.values()];
}

function keyOf({ dtype, n, k }: MatmulProblem): string {
  return `${dtype} ${n} ${k}`;
}

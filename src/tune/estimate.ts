// Estimates the time of a matmul from measurements: interpolated between numbers of tokens, scaled between shapes and
// thread counts. Pure arithmetic, used by choose.ts.

import { plural } from "../base/plural.ts";
import type { MatmulProblem } from "../kernels/matmul-variants.ts";
import type { StageTimes, TuneFile, TuneGroup } from "./tune-file.ts";

export interface Estimate extends StageTimes {
  /** Why it is a guess rather than an interpolation; empty if it is not. */
  readonly stretched: string;
}

/** A measured group that stands for a problem, and the factor for its times. */
export interface Basis {
  readonly group: TuneGroup;
  readonly initFactor: number;
  readonly computeFactor: number;
  readonly stretched: string;
}

/** The closest group to a problem: same type; then the nearest thread count, then the nearest shape. */
export function basisFor(
  file: TuneFile,
  problem: MatmulProblem,
  threads: number,
): Basis | undefined {
  const sameType = file.groups.filter((group) => group.dtype === problem.dtype);
  if (sameType.length === 0) return undefined;
  const apart = (a: number, b: number) => Math.abs(Math.log(a / b));
  const distance = (group: TuneGroup) =>
    100 * apart(group.threads, threads) + apart(group.n, problem.n) + apart(group.k, problem.k);
  const group = sameType.reduce((a, b) => (distance(b) < distance(a) ? b : a));
  // Threads beyond the number of cores share them.
  const cores = (count: number) => Math.min(count, file.cores);
  const byThreads = cores(group.threads) / cores(threads);
  const isShape = group.n === problem.n && group.k === problem.k;
  const reasons = [
    ...(isShape ? [] : [`from ${group.n} x ${group.k}`]),
    ...(group.threads === threads ? [] : [`from ${plural(group.threads, "thread")}`]),
  ];
  return {
    group,
    initFactor: problem.k / group.k,
    computeFactor: ((problem.n * problem.k) / (group.n * group.k)) * byThreads,
    stretched: reasons.join(", "),
  };
}

/** Times of a profile for m tokens; undefined if it was not measured on both sides of m. */
export function estimate(basis: Basis, profile: number, m: number): Estimate | undefined {
  const { lines } = basis.group;
  const last = lines.length - 1;
  const above = lines.findIndex((line) => line.m >= m);
  const high = above < 0 ? last : above;
  const isExact = lines[high]?.m === m;
  const low = isExact ? high : Math.max(0, high - 1);
  const [from, to] = [lines[low]?.times[profile], lines[high]?.times[profile]];
  if (!from || !to) return undefined;
  const span = lines[high]!.m - lines[low]!.m;
  const share = span === 0 ? 0 : (m - lines[low]!.m) / span;
  const between = (a: number, b: number) => Math.max(0, a + share * (b - a));
  const beyond = above < 0 ? `beyond ${lines[last]!.m} tokens` : "";
  return {
    init: between(from.init, to.init) * basis.initFactor,
    compute: between(from.compute, to.compute) * basis.computeFactor,
    stretched: [basis.stretched, beyond].filter((text) => text !== "").join(", "),
  };
}

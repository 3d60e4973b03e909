// Estimates the time of a matmul from measurements: interpolated between numbers of tokens, scaled between shapes and
// thread counts. Beyond the most measured tokens an estimate is a guess, so it is never below the roofline. Pure
// arithmetic, used by choose.ts.

import type { Device } from "../api/rates.ts";
import { plural } from "../base/plural.ts";
import { bitsPerWeight, bytesFor } from "../dtypes/dtype.ts";
import { dtypeByName } from "../dtypes/table.ts";
import { opsAt } from "../limits/model-cost.ts";
import { limitOf, noOps } from "../limits/roofline.ts";
import type { Experts, StageTimes, TuneFile, TuneGroup, TuneProblem } from "./tune-file.ts";

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
  /** The least microseconds of the problem at m tokens on this machine; undefined: its limits are not known. */
  readonly leastUs?: ((m: number) => number) | undefined;
}

/** The limits of this machine with some number of threads. */
export type DeviceAt = (threads: number) => Pick<Device, "bytesPerSecond" | "opsPerSecond">;

/** The roofline of a matmul: its weights are read once, and every weight is a multiply and an add per token. */
export function leastMicroseconds(
  { dtype: name, n, k, experts }: TuneProblem,
  m: number,
  device: ReturnType<DeviceAt>,
): number {
  const dtype = dtypeByName(name)!;
  const ops = opsAt(bitsPerWeight(dtype), "best");
  // Of experts, at least those of one token are read.
  const used = experts?.used ?? 1;
  const work = { bytes: used * bytesFor(dtype, n * k), ...noOps, [ops]: 2 * n * k * m * used };
  return 1e6 * limitOf(work, device).seconds;
}

/** The closest group to a problem: same type; then the nearest thread count, then the nearest shape. */
export function basisFor(
  file: TuneFile,
  problem: TuneProblem,
  threads: number,
  deviceAt?: DeviceAt,
): Basis | undefined {
  const sameType = file.groups.filter(
    (group) => group.dtype === problem.dtype && isSimilar(group.experts, problem.experts),
  );
  if (sameType.length === 0) return undefined;
  const apart = (a: number, b: number) => Math.abs(Math.log(a / b));
  const distance = (group: TuneGroup) =>
    100 * apart(group.threads, threads) + apart(group.n, problem.n) + apart(group.k, problem.k);
  const group = sameType.reduce((a, b) => (distance(b) < distance(a) ? b : a));
  // Threads beyond the number of cores share them.
  const cores = (count: number) => Math.min(count, file.cores);
  const byThreads = cores(group.threads) / cores(threads);
  const isShape = group.n === problem.n && group.k === problem.k;
  const byExperts = (problem.experts?.used ?? 1) / (group.experts?.used ?? 1);
  const reasons = [
    ...(isShape ? [] : [`from ${group.n} x ${group.k}`]),
    ...(group.threads === threads ? [] : [`from ${plural(group.threads, "thread")}`]),
  ];
  return {
    group,
    initFactor: problem.k / group.k,
    computeFactor: ((problem.n * problem.k) / (group.n * group.k)) * byThreads * byExperts,
    stretched: reasons.join(", "),
    leastUs: deviceAt && ((m) => leastMicroseconds(problem, m, deviceAt(threads))),
  };
}

/** Experts stand for experts of which a token uses the same fraction, and a matrix for a matrix. */
function isSimilar(a: Experts | undefined, b: Experts | undefined): boolean {
  if (!a || !b) return a === b;
  return a.used * b.count === b.used * a.count;
}

/** Times of a profile for m tokens; undefined if it was not measured on both sides of m. */
export function estimate(basis: Basis, profile: number, m: number): Estimate | undefined {
  const { lines } = basis.group;
  const last = lines.length - 1;
  const above = lines.findIndex((line) => line.m >= m);
  const isBeyond = above < 0;
  const high = isBeyond ? last : above;
  const isExact = lines[high]?.m === m;
  const low = isExact ? high : isBeyond ? lineOfHalf(basis.group) : Math.max(0, high - 1);
  const [from, to] = [lines[low]?.times[profile], lines[high]?.times[profile]];
  if (!from || !to) return undefined;
  const span = lines[high]!.m - lines[low]!.m;
  const share = span === 0 ? 0 : (m - lines[low]!.m) / span;
  const between = (a: number, b: number) => Math.max(0, a + share * (b - a));
  const init = between(from.init, to.init) * basis.initFactor;
  const compute = between(from.compute, to.compute) * basis.computeFactor;
  const beyond = isBeyond ? `beyond ${lines[last]!.m} tokens` : "";
  const least = (isBeyond && basis.leastUs?.(m)) || 0;
  const bounded = compute < least ? "at the limit of this machine" : "";
  return {
    init,
    compute: Math.max(compute, least),
    stretched: [basis.stretched, beyond, bounded].filter((text) => text !== "").join(", "),
  };
}

/**
 * The line from which times are extrapolated beyond the last: that of half as many tokens. Between the last two lines,
 * noise would be a large part of the difference.
 */
function lineOfHalf({ lines }: TuneGroup): number {
  const half = (lines.at(-1)?.m ?? 0) / 2;
  return Math.max(
    0,
    lines.findLastIndex((line) => line.m <= half),
  );
}

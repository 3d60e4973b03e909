// Summary of a tune file for people: the fastest profile of each shape by number of tokens, where another takes over,
// the gain over the default, and the effect of more threads.

import { median } from "../base/measure.ts";
import { defaultVariant } from "../kernels/matmul-variants.ts";
import { analyzeLayers, type LayersAnalysis } from "./layer-choose.ts";
import { type SleepCost, sleepCosts } from "./sleep-cost.ts";
import {
  DEFAULT_VARIANT,
  problemText,
  type TuneFile,
  type TuneGroup,
  type TuneProblem,
  type TuneProfile,
} from "./tune-file.ts";
import { isGpuFile, targetOfFeatures } from "./tune-target.ts";

export interface TunePoint {
  readonly m: number;
  /** The fastest and the default: profile and microseconds. */
  readonly best: { readonly profile: number; readonly us: number };
  readonly usual: { readonly profile: number; readonly us: number } | undefined;
  /** Operations per second of the fastest: a multiply and an add are two. */
  readonly opsPerSecond: number;
}

export interface Crossover {
  /** From this number of tokens on... */
  readonly m: number;
  /** ...this profile is faster than the other. */
  readonly to: number;
  readonly from: number;
}

export interface GroupAnalysis {
  readonly group: TuneGroup;
  readonly points: readonly TunePoint[];
  readonly crossovers: readonly Crossover[];
}

/** The same shape with several thread counts. */
export interface ThreadsEffect extends TuneProblem {
  readonly m: number;
  /** Ascending; speed-up over the first. */
  readonly counts: readonly {
    readonly threads: number;
    readonly us: number;
    readonly gain: number;
  }[];
}

export interface TuneAnalysis {
  readonly groups: readonly GroupAnalysis[];
  readonly threads: readonly ThreadsEffect[];
  /** The speed of the tuned choice relative to the default's: at the median of all points, and at most. */
  readonly gain: { readonly median: number; readonly most: number };
  /** The time to wake a thread; absent: not measured. */
  readonly notify?: TuneFile["notify"];
  /** Layers in one dispatch, on a GPU. */
  readonly layers: readonly LayersAnalysis[];
  /** The extra time of a matmul with sleeping threads, by number of threads. */
  readonly sleeping: readonly SleepCost[];
}

export function analyzeTuneFile(file: TuneFile): TuneAnalysis {
  const usual = usualProfile(file.profiles, file.features);
  const groups = file.groups.map((group): GroupAnalysis => {
    const points = group.lines.flatMap((_, line) => pointOf(group, line, usual));
    return { group, points, crossovers: crossoversOf(points) };
  });
  const gains = groups
    .flatMap(({ points }) => points)
    .flatMap(({ best, usual: slow }) => (slow ? [slow.us / best.us] : []));
  return {
    groups,
    threads: threadsEffects(groups),
    gain: { median: gains.length > 0 ? median(gains) : 1, most: Math.max(1, ...gains) },
    ...(file.notify && { notify: file.notify }),
    layers: analyzeLayers(file),
    sleeping: sleepCosts(file),
  };
}

/** The default profile on the file's machine: its features tell the number of registers. */
function usualProfile(
  profiles: readonly TuneProfile[],
  features: string,
): (group: TuneGroup, m: number) => number {
  const target = targetOfFeatures(features);
  // In a GPU's file, and for experts, the backend's own choice is a profile.
  const own = profiles.findIndex(({ variant }) => variant === DEFAULT_VARIANT);
  const isGpu = isGpuFile({ features });
  return ({ dtype, experts }, m) => {
    if (isGpu || experts) return own;
    const { id } = defaultVariant(dtype, m, target);
    return profiles.findIndex(({ variant, idle }) => variant === id && idle === "spin");
  };
}

function pointOf(
  group: TuneGroup,
  line: number,
  usual: (group: TuneGroup, m: number) => number,
): TunePoint[] {
  const { m, times } = group.lines[line]!;
  const timed = times.flatMap((time, profile) =>
    time ? [{ profile, us: time.init + time.compute }] : [],
  );
  if (timed.length === 0) return [];
  const best = timed.reduce((a, b) => (b.us < a.us ? b : a));
  const standard = timed.find(({ profile }) => profile === usual(group, m));
  const used = group.experts?.used ?? 1;
  const opsPerSecond = (2 * group.n * group.k * m * used) / (best.us / 1e6);
  // Variants that do the same for this number of tokens have the same time: then the default is the best.
  const isSame = standard?.us === best.us;
  return [{ m, best: isSame ? standard! : best, usual: standard, opsPerSecond }];
}

function crossoversOf(points: readonly TunePoint[]): Crossover[] {
  return points.flatMap(({ m, best }, i) => {
    const from = points[i - 1]?.best.profile;
    return from === undefined || from === best.profile ? [] : [{ m, from, to: best.profile }];
  });
}

function threadsEffects(groups: readonly GroupAnalysis[]): ThreadsEffect[] {
  const shapes = new Map<string, GroupAnalysis[]>();
  for (const one of groups) {
    const key = problemText(one.group);
    shapes.set(key, [...(shapes.get(key) ?? []), one]);
  }
  return [...shapes.values()].flatMap((same) => {
    if (same.length < 2) return [];
    const sorted = same.toSorted((a, b) => a.group.threads - b.group.threads);
    const { dtype, n, k, experts } = sorted[0]!.group;
    return sorted[0]!.points.flatMap(({ m, best }) => {
      const counts = sorted.flatMap(({ group, points }) => {
        const us = points.find((point) => point.m === m)?.best.us;
        return us === undefined ? [] : [{ threads: group.threads, us, gain: best.us / us }];
      });
      return counts.length < 2 ? [] : [{ dtype, n, k, ...(experts && { experts }), m, counts }];
    });
  });
}

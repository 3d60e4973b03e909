// Measures some points of a tune file again to check its predictions. Points are between the measured numbers of
// tokens if possible, so that the interpolation is checked too.
//
// Points are measured as in tuning: round after round through all of them, for some seconds; the lower quartile
// counts. A machine has slow and fast moments (other programs, other guests of the same processor) that last longer
// than ten rounds of one point: measured one after the other, each point would only show its own moment.

import { AbortedError } from "../base/errors.ts";
import { type MatmulVariant, variantById } from "../kernels/matmul-variants.ts";
import { type Basis, estimate } from "./estimate.ts";
import { MatmulTimes, untilCompiled } from "./measure.ts";
import type { TuneTestPoint } from "./options.ts";
import type { TuneEnvironment, TuneWatch } from "./run-tune.ts";
import { profileText, type TuneFile, type TuneGroup } from "./tune-file.ts";
import { targetOfFeatures } from "./tune-target.ts";

const WARM_UP_MS = 250;
const LEAST_ROUNDS = 9;

export interface CheckPlan {
  readonly points: number;
  /** How long rounds continue: longer than a slow moment of the machine. */
  readonly leastMs: number;
  /** The size of weights that stream from memory, as in the file. */
  readonly streamBytes: number;
  /** Points are measured together as long as their threads are not more than this. */
  readonly mostThreads: number;
}

interface Point {
  readonly group: TuneGroup;
  readonly profile: number;
  readonly variant: MatmulVariant;
  readonly m: number;
}

export async function checkPoints(
  file: TuneFile,
  plan: CheckPlan,
  environment: TuneEnvironment,
  { signal, onProgress }: TuneWatch,
): Promise<TuneTestPoint[]> {
  const batches = inBatches(choosePoints(file, plan.points), plan.mostThreads);
  const results: TuneTestPoint[] = [];
  for (const [index, points] of batches.entries()) {
    const run = new PointsRun(points, plan, environment, (share, now) => {
      if (signal?.aborted) throw new AbortedError("the test of a tune file");
      onProgress?.((index + share) / batches.length, now);
    });
    const measured = await run.measure();
    for (const [at, point] of points.entries()) {
      const { group, profile, m } = point;
      const { dtype, n, k, threads } = group;
      const { init, compute } = estimate(basisOf(group), profile, m)!;
      const place = { dtype, n, k, threads, m, profile: profileText(file.profiles[profile]!) };
      results.push({ ...place, predicted: init + compute, measured: measured[at]! });
    }
  }
  return results;
}

/** Uses a group as the basis of its own estimates. */
function basisOf(group: TuneGroup): Basis {
  return { group, initFactor: 1, computeFactor: 1, stretched: "" };
}

function inBatches(points: readonly Point[], mostThreads: number): Point[][] {
  const batches: Point[][] = [];
  let threads = mostThreads;
  for (const point of points) {
    threads += point.group.threads;
    if (threads > mostThreads) {
      batches.push([]);
      threads = point.group.threads;
    }
    batches.at(-1)!.push(point);
  }
  return batches;
}

/** Points spread evenly over groups and lines; for each, the profile that would be chosen. */
function choosePoints(file: TuneFile, count: number): Point[] {
  const target = targetOfFeatures(file.features);
  const all = file.groups.flatMap((group) =>
    group.lines.flatMap(({ m }, line): Point[] => {
      const next = group.lines[line + 1]?.m ?? m;
      const middle = Math.floor((m + next) / 2);
      const profile = bestProfile(file, group, middle);
      const variant =
        profile === undefined ? undefined : variantById(file.profiles[profile]!.variant, target);
      return variant ? [{ group, profile: profile!, variant, m: middle }] : [];
    }),
  );
  const step = Math.max(1, all.length / count);
  return Array.from({ length: Math.min(count, all.length) }, (_, i) => all[Math.floor(i * step)]!);
}

function bestProfile(file: TuneFile, group: TuneGroup, m: number): number | undefined {
  const basis = basisOf(group);
  let best: { profile: number; us: number } | undefined;
  for (const [profile, { level, idle }] of file.profiles.entries()) {
    const times = level === 3 && idle === "spin" ? estimate(basis, profile, m) : undefined;
    const us = times && times.init + times.compute;
    if (us !== undefined && (best === undefined || us < best.us)) best = { profile, us };
  }
  return best?.profile;
}

/** Some points, all open, measured in turn. */
class PointsRun {
  readonly #points: readonly Point[];
  readonly #plan: CheckPlan;
  readonly #environment: TuneEnvironment;
  readonly #report: (share: number, now: string) => void;
  readonly #benches: MatmulTimes[] = [];

  /** `report` is called with the progress before every step; an error it throws ends the run. */
  constructor(
    points: readonly Point[],
    plan: CheckPlan,
    environment: TuneEnvironment,
    report: (share: number, now: string) => void,
  ) {
    this.#points = points;
    this.#plan = plan;
    this.#environment = environment;
    this.#report = report;
  }

  /** Microseconds of each point. */
  async measure(): Promise<number[]> {
    try {
      for (const [index, point] of this.#points.entries()) await this.#warmUp(point, index);
      await untilCompiled();
      return await this.#rounds();
    } finally {
      for (const bench of this.#benches) bench.dispose();
    }
  }

  async #warmUp({ group, variant, m }: Point, index: number): Promise<void> {
    const { dtype, n, k, threads } = group;
    const bench = await MatmulTimes.open({
      problem: group,
      variants: [variant],
      tokens: [m],
      threads,
      whole: false,
      streamBytes: this.#plan.streamBytes,
      startThread: () => this.#environment.startThread(),
      native: this.#environment.native,
    });
    this.#benches.push(bench);
    const started = performance.now();
    while (performance.now() - started < WARM_UP_MS) {
      await this.#environment.breathe();
      this.#report(
        (index / this.#points.length) * 0.3,
        `${dtype} ${n} x ${k}, M = ${m}, ${variant.id}`,
      );
      await bench.measure(0, m, "spin");
    }
  }

  async #rounds(): Promise<number[]> {
    const times: number[][] = this.#points.map(() => []);
    const { leastMs } = this.#plan;
    const started = performance.now();
    for (let round = 0; ; round++) {
      const passed = performance.now() - started;
      if (round >= LEAST_ROUNDS && passed >= leastMs) break;
      for (const [index, { m }] of this.#points.entries()) {
        await this.#environment.breathe();
        const share = Math.min(1, passed / leastMs, round / LEAST_ROUNDS);
        this.#report(0.3 + 0.7 * share, `round ${round + 1} of ${this.#points.length} points`);
        await this.#benches[index]!.measure(0, m, "spin"); // wakes its threads
        const { init, compute } = await this.#benches[index]!.measure(0, m, "spin");
        times[index]!.push(init + compute);
      }
    }
    return times.map((all) => all.sort((a, b) => a - b)[(all.length - 1) >> 2]!);
  }
}

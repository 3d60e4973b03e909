// Measures some points of a tune file again to check its predictions, and whether its choices are faster than the
// default. Points are between the measured numbers of tokens if possible, so that the interpolation is checked too.
//
// Points are measured as in tuning: round after round through all of them, for some seconds; the lower quartile
// counts. A machine has slow and fast moments (other programs, other guests of the same processor) that last longer
// than ten rounds of one point: measured one after the other, each point would only show its own moment.

import { AbortedError } from "../base/errors.ts";
import { loadWatch } from "../base/machine-load.ts";
import { takeRounds } from "../base/measure.ts";
import {
  defaultVariant,
  effectiveVariant,
  type MatmulVariant,
} from "../kernels/matmul-variants.ts";
import { tunedChoice } from "./choose.ts";
import { judge, total, typical, type Verdict } from "./confirm.ts";
import { type Basis, estimate } from "./estimate.ts";
import { MatmulTimes, untilCompiled } from "./measure.ts";
import type { TuneTestPoint } from "./options.ts";
import type { TuneEnvironment, TuneWatch } from "./run-tune.ts";
import { profileText, type StageTimes, type TuneFile, type TuneGroup } from "./tune-file.ts";
import { targetOfFeatures } from "./tune-target.ts";

const WARM_UP_MS = 250;
const LEAST_ROUNDS = 9;
/** Rounds that others disturbed do not count, unless there are more. */
const MOST_REPEATS = 30;
const REWARM_UPS = 3;

export interface CheckPlan {
  readonly points: number;
  /** The least duration of the rounds: longer than a slow moment of the machine. */
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
  /** The default, which is measured beside it; undefined: it is the choice. */
  readonly usual: MatmulVariant | undefined;
  readonly m: number;
}

/** The measured time of a point, in microseconds, and that of the choice beside the default. */
interface Measured {
  readonly us: number;
  readonly verdict: Verdict | undefined;
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
      const { us, verdict } = measured[at]!;
      results.push({
        ...place,
        predicted: init + compute,
        measured: us,
        ...(verdict && { overDefault: verdict.ratio, isSlower: verdict.isSlower }),
      });
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
  const all = file.groups.flatMap((group) =>
    group.lines.flatMap(({ m }, line): Point[] => {
      const next = group.lines[line + 1]?.m ?? m;
      const between = pointAt(file, group, Math.floor((m + next) / 2));
      return between.length > 0 ? between : pointAt(file, group, m);
    }),
  );
  const step = Math.max(1, all.length / count);
  return Array.from({ length: Math.min(count, all.length) }, (_, i) => all[Math.floor(i * step)]!);
}

/** A model's choice for m tokens, if the file predicts its time. */
function pointAt(file: TuneFile, group: TuneGroup, m: number): Point[] {
  const target = targetOfFeatures(file.features);
  const { variants, byTokens } = tunedChoice(file, target)([group], m, group.threads);
  const chosen = variants[byTokens[m]!]!;
  const variant = effectiveVariant(chosen, m, target);
  const standard = effectiveVariant(defaultVariant(group.dtype, m, target), m, target);
  const profile = file.profiles.findIndex(
    ({ level, idle, variant: id }) => level === 3 && idle === "spin" && id === chosen.id,
  );
  if (profile < 0 || !estimate(basisOf(group), profile, m)) return [];
  const usual = variant.id === standard.id ? undefined : standard;
  return [{ group, profile, variant, usual, m }];
}

/** Some points, all open, measured alternately. */
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

  async measure(): Promise<Measured[]> {
    try {
      for (const [index, point] of this.#points.entries()) await this.#warmUp(point, index);
      await untilCompiled();
      return await this.#rounds();
    } finally {
      for (const bench of this.#benches) bench.dispose();
    }
  }

  async #warmUp({ group, variant, usual, m }: Point, index: number): Promise<void> {
    const { dtype, n, k, threads } = group;
    const bench = await MatmulTimes.open({
      problem: group,
      variants: usual ? [variant, usual] : [variant],
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
      await this.#environment.yieldThread();
      this.#report(
        (index / this.#points.length) * 0.3,
        `${dtype} ${n} x ${k}, M = ${m}, ${variant.id}`,
      );
      for (const at of usual ? [0, 1] : [0]) await bench.measure(at, m, "spin");
    }
  }

  async #rounds(): Promise<Measured[]> {
    const samples = this.#points.map((): Samples => ({ own: [], before: [], after: [] }));
    const { leastMs } = this.#plan;
    const started = performance.now();
    const passed = () => performance.now() - started;
    await takeRounds({
      rounds: (done) => done >= LEAST_ROUNDS && passed() >= leastMs,
      watch: loadWatch(this.#environment.cpuTimes),
      mostRepeats: MOST_REPEATS,
      measure: async (round) => {
        const taken: (() => void)[] = [];
        const share = Math.min(1, passed() / leastMs, round / LEAST_ROUNDS);
        for (const [index, { m, usual }] of this.#points.entries()) {
          this.#report(0.3 + 0.7 * share, `round ${round + 1} of ${this.#points.length} points`);
          const measure = async (at: number) => {
            await this.#environment.yieldThread();
            return await this.#benches[index]!.measure(at, m, "spin");
          };
          const { own, before, after } = samples[index]!;
          // Wakes its threads, and brings its weights as far into the caches as they were when it was tuned: all others have
          // read theirs meanwhile.
          for (let i = 0; i < REWARM_UPS; i++) await measure(0);
          const first = usual && (await measure(1));
          const times = await measure(0);
          const second = usual && (await measure(1));
          taken.push(() => {
            own.push(times);
            if (first && second) before.push(first) && after.push(second);
          });
        }
        return taken;
      },
      keep: (taken) => {
        for (const take of taken) take();
      },
    });
    return samples.map(({ own, before, after }) => ({
      us: total(typical(own)!),
      verdict: before.length > 0 ? judge([own], before, after).verdicts[0] : undefined,
    }));
  }
}

/** The times of a point, and of the default before and after it. */
interface Samples {
  readonly own: StageTimes[];
  readonly before: StageTimes[];
  readonly after: StageTimes[];
}

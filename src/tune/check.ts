// Measures some points of a tune file again: do its predictions hold? Points are between the measured numbers of tokens
// where there is room, so that the interpolation is tested too.

import { AbortedError } from "../base/errors.ts";
import { type MatmulVariant, variantById } from "../kernels/matmul-variants.ts";
import type { TuneTestPoint } from "../tune.ts";
import { estimate } from "./estimate.ts";
import { ProductBench, untilCompiled } from "./measure.ts";
import type { TuneEnvironment, TuneWatch } from "./run-tune.ts";
import { STREAM_BYTES } from "./space.ts";
import { profileText, type TuneFile, type TuneGroup } from "./tune-file.ts";

const WARM_UP_MS = 250;
const ROUNDS = 9;

interface Point {
  readonly group: TuneGroup;
  readonly profile: number;
  readonly variant: MatmulVariant;
  readonly m: number;
}

export async function checkPoints(
  file: TuneFile,
  count: number,
  environment: TuneEnvironment,
  { signal, onProgress }: TuneWatch,
): Promise<TuneTestPoint[]> {
  const points = choosePoints(file, count);
  const results: TuneTestPoint[] = [];
  for (const point of points) {
    const { dtype, n, k, threads } = point.group;
    const profile = profileText(file.profiles[point.profile]!);
    onProgress?.(
      results.length / points.length,
      `${dtype} ${n} x ${k}, M = ${point.m}, ${profile}`,
    );
    await environment.breathe();
    if (signal?.aborted) throw new AbortedError("the test of a tune file");
    const basis = { group: point.group, initFactor: 1, computeFactor: 1, stretched: "" };
    const { init, compute } = estimate(basis, point.profile, point.m)!;
    const measured = await measurePoint(point, environment);
    const place = { dtype, n, k, threads, m: point.m };
    results.push({ ...place, profile, predicted: init + compute, measured });
  }
  return results;
}

/** Evenly over the groups and their lines; of each, the profile that would be chosen. */
function choosePoints(file: TuneFile, count: number): Point[] {
  const all = file.groups.flatMap((group) =>
    group.lines.flatMap(({ m }, line): Point[] => {
      const next = group.lines[line + 1]?.m ?? m;
      const middle = Math.floor((m + next) / 2);
      const profile = bestProfile(file, group, middle);
      const variant =
        profile === undefined ? undefined : variantById(file.profiles[profile]!.variant);
      return variant ? [{ group, profile: profile!, variant, m: middle }] : [];
    }),
  );
  const step = Math.max(1, all.length / count);
  return Array.from({ length: Math.min(count, all.length) }, (_, i) => all[Math.floor(i * step)]!);
}

function bestProfile(file: TuneFile, group: TuneGroup, m: number): number | undefined {
  const basis = { group, initFactor: 1, computeFactor: 1, stretched: "" };
  let best: { profile: number; us: number } | undefined;
  for (const [profile, { level, idle }] of file.profiles.entries()) {
    const times = level === 3 && idle === "spin" ? estimate(basis, profile, m) : undefined;
    const us = times && times.init + times.compute;
    if (us !== undefined && (best === undefined || us < best.us)) best = { profile, us };
  }
  return best?.profile;
}

/** As tuning does it: the lower quartile of some rounds. */
async function measurePoint(point: Point, environment: TuneEnvironment): Promise<number> {
  const { group, variant, m } = point;
  const bench = await ProductBench.open({
    problem: group,
    variants: [variant],
    tokens: [m],
    threads: group.threads,
    whole: false,
    streamBytes: STREAM_BYTES.normal,
    startThread: () => environment.startThread(),
  });
  try {
    const started = performance.now();
    while (performance.now() - started < WARM_UP_MS) {
      await bench.measure(0, m, "spin");
      await environment.breathe();
    }
    await untilCompiled();
    const times: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const { init, compute } = await bench.measure(0, m, "spin");
      times.push(init + compute);
    }
    return times.sort((a, b) => a - b)[(ROUNDS - 1) >> 2]!;
  } finally {
    bench.dispose();
  }
}

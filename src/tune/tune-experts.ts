// Measures a matmul over experts on the CPU, as the backend computes it by default: the pairs of an expert are the tokens of
// a dense matmul, whose variants are tuned by themselves. The times tell which device is faster, not which variant. Part of
// run-tune.ts.

import { AbortedError } from "../base/errors.ts";
import { measure } from "../base/measure.ts";
import { typical } from "./confirm.ts";
import { MatmulTimes, type MatmulTimesOptions, untilCompiled } from "./measure.ts";
import {
  DEFAULT_VARIANT,
  type StageTimes,
  type TuneGroup,
  type TuneProblem,
  type TuneProfile,
} from "./tune-file.ts";

export interface ExpertsPlan extends Omit<MatmulTimesOptions, "variants"> {
  readonly problem: TuneProblem;
  readonly rounds: number;
  yieldThread(): Promise<void>;
}

const WARM_UPS = 3;

/** `profiles` grows by the backend's own choice. */
export async function tuneExperts(
  plan: ExpertsPlan,
  profiles: TuneProfile[],
  report: (share: number) => void,
  signal: AbortSignal | undefined,
): Promise<TuneGroup> {
  const { problem, tokens, threads, rounds } = plan;
  let samples: StageTimes[][];
  const bench = await MatmulTimes.open({ ...plan, variants: undefined });
  try {
    const measured = await measure({
      contestants: tokens,
      rounds,
      warmUps: WARM_UPS,
      onRound: async (round) => {
        report((WARM_UPS + round) / (WARM_UPS + rounds));
        if (round === 0) await untilCompiled();
      },
      run: async (m) => {
        await plan.yieldThread();
        if (signal?.aborted) throw new AbortedError("tuning");
        return await bench.measure(-1, m, "spin");
      },
    });
    samples = measured.samples;
  } finally {
    bench.dispose();
  }
  const own = defaultProfile(profiles);
  const lines = tokens.map((m, line) => {
    const times: (StageTimes | undefined)[] = profiles.map(() => undefined);
    times[own] = typical(samples[line]!);
    return { m, times };
  });
  return { ...problem, threads, lines };
}

/** The number of the profile for the backend's own choice, which is added if it is missing. */
function defaultProfile(profiles: TuneProfile[]): number {
  const known = profiles.findIndex(({ variant }) => variant === DEFAULT_VARIANT);
  if (known >= 0) return known;
  return profiles.push({ backend: "cpu", level: 3, variant: DEFAULT_VARIANT, idle: "spin" }) - 1;
}

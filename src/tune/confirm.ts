// Tells whether a candidate is really faster than the default: the last part of tuning a matmul, and the part that
// `tune test` runs again. Part of run-tune.ts, knobs.ts and check.ts.
//
// The fastest of forty candidates was often the luckiest. So the few best are measured afresh, alternating with the
// default, which is measured twice in every round: the difference of its two times is the noise of this machine at this
// moment. A candidate is confirmed if it is faster than both by more than the noise, and in most of the rounds. A machine that
// others use is noisy, and nothing is confirmed on it.

import { measure, quantile } from "../base/measure.ts";
import type { StageTimes } from "./tune-file.ts";

export interface ConfirmPlan {
  readonly rounds: number;
  readonly candidates: number;
  /** Measures a candidate by its number; -1: the default. */
  measure(candidate: number): Promise<StageTimes>;
}

/** A candidate beside the default. */
export interface Verdict {
  readonly times: StageTimes;
  /** Its time relative to the default's. */
  readonly ratio: number;
  readonly isFaster: boolean;
  readonly isSlower: boolean;
}

export interface Confirmation {
  /** The difference of the default's two times, as a fraction. */
  readonly noise: number;
  /** Microseconds of the default. */
  readonly usual: number;
  readonly verdicts: readonly Verdict[];
}

export async function confirm(plan: ConfirmPlan): Promise<Confirmation> {
  const candidates = Array.from({ length: plan.candidates }, (_, candidate) => candidate);
  const { samples } = await measure({
    contestants: [-1, ...candidates, -1], // the first and the last turn are the default's
    rounds: plan.rounds,
    run: (candidate) => plan.measure(candidate),
  });
  return judge(samples.slice(1, -1), samples[0]!, samples.at(-1)!);
}

/** From the times of all rounds: those of each candidate, and the two of the default. */
export function judge(
  candidates: readonly (readonly StageTimes[])[],
  first: readonly StageTimes[],
  second: readonly StageTimes[],
): Confirmation {
  const [one, other] = [total(typical(first)!), total(typical(second)!)];
  const [least, most] = [Math.min(one, other), Math.max(one, other)];
  const noise = most / least - 1;
  const usual = (one + other) / 2;
  const verdicts = candidates.map((samples): Verdict => {
    const times = typical(samples)!;
    const us = total(times);
    const isMost = (wins: (round: number, time: number) => boolean) =>
      2 * samples.filter((time, round) => wins(round, total(time))).length > samples.length;
    const faster = isMost((r, time) => time < Math.min(total(first[r]!), total(second[r]!)));
    const slower = isMost((r, time) => time > Math.max(total(first[r]!), total(second[r]!)));
    return {
      times,
      ratio: us / usual,
      isFaster: faster && us < least * (1 - noise),
      isSlower: slower && us > most * (1 + noise),
    };
  });
  return { noise, usual, verdicts };
}

export function total({ init, compute }: StageTimes): number {
  return init + compute;
}

/** The lower quartile by total time; its stages are from the same round. */
export function typical(times: readonly StageTimes[]): StageTimes | undefined {
  const quartile = quantile(times.map(total), 0.25);
  return times.find((one) => total(one) === quartile);
}

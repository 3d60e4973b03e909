// Whether a candidate is really faster than the default: the last part of tuning a matmul, and what `tune test` asks
// again. Part of run-tune.ts, knobs.ts and check.ts.
//
// The fastest of forty candidates was often the luckiest. So the few best are measured afresh, in turns with the default,
// which takes two turns in every round: how far its two times are apart is the noise of this machine at this moment. A
// candidate is confirmed if it is faster than both by more than the noise, and in most of the rounds. A machine that
// others use is noisy, and nothing is confirmed on it.

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
  /** By what fraction the default's two times differ. */
  readonly noise: number;
  /** Microseconds of the default. */
  readonly usual: number;
  readonly verdicts: readonly Verdict[];
}

/** Rounds in turns; every other round goes backwards, so that none always follows the same one. */
export async function confirm(plan: ConfirmPlan): Promise<Confirmation> {
  const last = plan.candidates + 1; // the turns 0 and `last` are the default's
  const samples = Array.from({ length: last + 1 }, (): StageTimes[] => []);
  for (let round = 0; round < plan.rounds; round++) {
    for (let i = 0; i <= last; i++) {
      const turn = round % 2 === 0 ? i : last - i;
      samples[turn]!.push(await plan.measure(turn === 0 || turn === last ? -1 : turn - 1));
    }
  }
  return judge(samples.slice(1, last), samples[0]!, samples[last]!);
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
  return [...times].sort((a, b) => total(a) - total(b))[(times.length - 1) >> 2];
}

/** The middle of some numbers; 0 if there are none. */
export function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0;
}

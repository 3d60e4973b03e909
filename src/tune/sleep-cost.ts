// The extra time of a matmul with threads that sleep at once instead of spinning. A sleeping thread has to be woken at every
// barrier, which takes as long for every variant. So the default and the candidates of the confirmation are measured both
// ways, and their differences stand for all other variants with the same number of threads; if they are gains, the cost of a
// wake-up does. Arithmetic only.

import { quantile } from "../base/measure.ts";
import { total } from "./confirm.ts";
import type { TuneFile } from "./tune-file.ts";

/** Microseconds; less than 0 where sleeping was faster. */
export interface SleepCost {
  readonly threads: number;
  /** The median, and the tenth and ninetieth percentiles of the differences. */
  readonly us: number;
  readonly low: number;
  readonly high: number;
  /** The number of profiles, shapes and numbers of tokens that were measured both ways. */
  readonly pairs: number;
}

/** By number of threads, ascending; none for a number with which nothing was measured both ways. */
export function sleepCosts({ groups, profiles }: TuneFile): SleepCost[] {
  // Profiles with sleeping threads, and their counterparts.
  const both = profiles.flatMap(({ backend, level, variant, idle }, sleep) => {
    const spin = profiles.findIndex(
      (one) =>
        one.backend === backend &&
        one.level === level &&
        one.variant === variant &&
        one.idle === "spin",
    );
    return idle === "sleep" && spin >= 0 ? [{ sleep, spin }] : [];
  });
  const counts = [...new Set(groups.map(({ threads }) => threads))].sort((a, b) => a - b);
  return counts.flatMap((threads) => {
    const lines = groups.flatMap((group) => (group.threads === threads ? group.lines : []));
    const differences = lines.flatMap(({ times }) =>
      both.flatMap(({ sleep, spin }) => {
        const [asleep, awake] = [times[sleep], times[spin]];
        return asleep && awake ? [total(asleep) - total(awake)] : [];
      }),
    );
    const at = (share: number) => quantile(differences, share);
    const pairs = differences.length;
    return pairs === 0 ? [] : [{ threads, us: at(0.5), low: at(0.1), high: at(0.9), pairs }];
  });
}

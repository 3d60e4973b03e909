// The profiles that challenge the default at one number of tokens: those that seemed faster, and the best with sleeping
// threads. A profile that is not confirmed (confirm.ts) loses its time, so that nothing can choose it. Part of run-tune.ts.

import { CLEARLY_FASTER } from "./choose.ts";
import { confirm, total } from "./confirm.ts";
import type { StageTimes } from "./tune-file.ts";

type Idle = "spin" | "sleep";

export interface Challenge<T> {
  /** Times with spinning threads of all that were not given up. */
  readonly known: ReadonlyMap<T, StageTimes>;
  /** One of them. */
  readonly usual: T;
  readonly rounds: number;
  /** Whether the default and its challengers are also measured with sleeping threads. */
  canSleep(one: T): boolean;
  /** The time of a wake-up, in microseconds: matmuls that are hardly longer are not measured asleep. */
  readonly notifyUs: number;
  measure(one: T, idle: Idle): Promise<StageTimes>;
}

export interface Challenged<T> {
  readonly spinning: ReadonlyMap<T, StageTimes>;
  readonly sleeping: ReadonlyMap<T, StageTimes>;
  /** undefined: nothing challenged the default. */
  readonly noise: number | undefined;
}

/** The most candidates that challenge the default. */
export const CHALLENGERS = 2;
/** Sleeping is not worth measuring where a wake-up takes more than this fraction of a matmul: it cannot win. */
const LARGEST_NOTIFY = 0.3;

export async function challengeDefault<T>(challenge: Challenge<T>): Promise<Challenged<T>> {
  const { known, usual, rounds, measure } = challenge;
  const standard = known.get(usual)!;
  const challengers = challengersOf(challenge);
  if (challengers.length === 0) return { spinning: known, sleeping: new Map(), noise: undefined };
  const {
    noise,
    usual: us,
    verdicts,
  } = await confirm({
    rounds,
    candidates: challengers.length,
    measure: (at) => measure(challengers[at]?.one ?? usual, challengers[at]?.idle ?? "spin"),
  });
  // Challengers that were not measured afresh are dropped with those that lost.
  const isPlain = ([, times]: readonly [T, StageTimes]) => !seemsFaster(times, standard);
  const result = { spin: new Map([...known].filter(isPlain)), sleep: new Map<T, StageTimes>() };
  // In the frame of the earlier rounds, which the other times of the line are from.
  const scale = total(standard) / us;
  for (const [at, { times, isFaster }] of verdicts.entries()) {
    const { one, idle } = challengers[at]!;
    const scaled = { init: times.init * scale, compute: times.compute * scale };
    if (isFaster || !seemsFaster(scaled, standard)) result[idle].set(one, scaled);
  }
  return { spinning: result.spin, sleeping: result.sleep, noise };
}

function challengersOf<T>({ known, usual, canSleep, notifyUs }: Challenge<T>): {
  one: T;
  idle: Idle;
}[] {
  const standard = known.get(usual)!;
  const faster = [...known]
    .filter(([, times]) => seemsFaster(times, standard))
    .sort(([, a], [, b]) => total(a) - total(b))
    .slice(0, CHALLENGERS)
    .map(([one]) => one);
  const asleep = [usual, ...faster].filter(
    (one) => canSleep(one) && notifyUs <= LARGEST_NOTIFY * total(known.get(one)!),
  );
  return [
    ...faster.map((one) => ({ one, idle: "spin" as const })),
    ...asleep.map((one) => ({ one, idle: "sleep" as const })),
  ];
}

/** Whether times would replace the default's. */
function seemsFaster(times: StageTimes, usual: StageTimes): boolean {
  return total(times) <= CLEARLY_FASTER * total(usual);
}

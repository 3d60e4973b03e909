// Alternating measurements, and the arithmetic on their results. Contestants alternate within a round, in the opposite order in
// every other round, so that a machine that becomes slower does so for all of them; the first rounds warm up; a round that others
// disturbed may be repeated. It has no clock: callers pass their clock, and a watch that knows the machine.

/** Names the disturbance of the time since `begin`; undefined: there was none. */
export interface RoundWatch {
  begin(): Promise<void> | void;
  disturbance(): Promise<string | undefined> | string | undefined;
}

export interface RoundsPlan<T> {
  /** The number of rounds that count; or whether `done` rounds are enough. */
  readonly rounds: number | ((done: number) => boolean);
  /** Rounds before the counted ones: code is compiled, and caches are filled. */
  readonly warmUps?: number;
  readonly watch?: RoundWatch | undefined;
  /** The number of disturbed rounds that are measured again; further ones count. */
  readonly mostRepeats?: number;
  /** Measures a round; below 0: a warm-up. */
  readonly measure: (round: number) => Promise<T> | T;
  /** Called with each round that is not measured again, warm-ups included. */
  readonly keep: (result: T, round: number) => Promise<void> | void;
}

/** Returns the disturbance of the last disturbed round that counts. */
export async function takeRounds<T>(plan: RoundsPlan<T>): Promise<string | undefined> {
  const { rounds, warmUps = 0, watch, measure, keep } = plan;
  const isEnough = typeof rounds === "number" ? (done: number) => done >= rounds : rounds;
  let repeats = plan.mostRepeats ?? 0;
  let disturbed: string | undefined;
  for (let round = -warmUps; round < 0 || !isEnough(round); ) {
    const counts = round >= 0;
    if (counts) await watch?.begin();
    const result = await measure(round);
    const disturbance = counts ? await watch?.disturbance() : undefined;
    if (disturbance !== undefined && repeats-- > 0) continue;
    disturbed = disturbance ?? disturbed;
    await keep(result, round++);
  }
  return disturbed;
}

export interface MeasurePlan<C, T>
  extends Pick<RoundsPlan<T>, "rounds" | "warmUps" | "watch" | "mostRepeats"> {
  readonly contestants: readonly C[];
  /** Measures one of them. Rounds below 0 warm up. */
  readonly run: (contestant: C, round: number) => Promise<T> | T;
  /** Called before each round: all contestants may get the same input. */
  readonly onRound?: (round: number) => Promise<void> | void;
}

export interface Measured<T> {
  /** The results of each contestant, in their order: one of each round. */
  readonly samples: T[][];
  /** The disturbance of rounds that count all the same. */
  readonly disturbed: string | undefined;
}

/** Measures all contestants alternately. */
export async function measure<C, T>(plan: MeasurePlan<C, T>): Promise<Measured<T>> {
  const { contestants, run, onRound } = plan;
  const samples = contestants.map((): T[] => []);
  const order = [...contestants.keys()];
  const disturbed = await takeRounds<T[]>({
    ...plan,
    measure: async (round) => {
      await onRound?.(round);
      const results: T[] = [];
      for (const at of round % 2 === 0 ? order : order.toReversed()) {
        results[at] = await run(contestants[at]!, round);
      }
      return results;
    },
    keep: (results, round) => {
      if (round >= 0) for (const [at, result] of results.entries()) samples[at]!.push(result);
    },
  });
  return { samples, disturbed };
}

/** NaN of no values. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = (sorted.length - 1) / 2;
  return (sorted[Math.floor(middle)]! + sorted[Math.ceil(middle)]!) / 2;
}

/** The smallest value that this share of all values does not exceed; NaN of no values. */
export function quantile(values: readonly number[], share: number): number {
  const rank = Math.ceil(share * values.length);
  return values.toSorted((a, b) => a - b)[Math.max(0, rank - 1)] ?? Number.NaN;
}

export interface Summary {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

export function summarize(values: readonly number[]): Summary {
  return { median: median(values), min: Math.min(...values), max: Math.max(...values) };
}

/** The median of the rounds' ratios of two contestants: neighbours in time run on the same state of the machine. */
export function medianRatio(values: readonly number[], others: readonly number[]): number {
  return median(values.map((value, round) => value / others[round]!));
}

// Tells which of two backends computes a matmul faster, by number of tokens: compares the tune files of the CPU and of a
// GPU, with the cost of moving data between them (device-profiles.ts).

import {
  type DeviceStages,
  deviceProfiles,
  matmulTimesOf,
  stagesTotal,
} from "./device-profiles.ts";
import {
  isSameProblem,
  problemText,
  type TuneFile,
  type TuneGroup,
  type TuneProblem,
} from "./tune-file.ts";

/** A shape that was measured on both. */
export interface BackendCrossing extends TuneProblem {
  /** The first backend's largest thread count. */
  readonly threads: number;
  /** Microseconds of the fastest profile of each, where both have one. */
  readonly points: readonly {
    readonly m: number;
    readonly first: number;
    readonly second: number;
    /** Stages of the profiles over both devices, by name; absent: not measured, or there is no such way. */
    readonly profiles: Readonly<Record<string, DeviceStages>>;
  }[];
  /** The numbers of tokens at which the faster backend changes; the first entry is for the fewest tokens. */
  readonly turns: readonly { readonly m: number; readonly faster: string }[];
  /**
   * For each profile besides the first backend's own: the number of tokens from which it is faster; absent: never within the
   * measured ones.
   */
  readonly crossovers: readonly { readonly profile: string; readonly m?: number }[];
}

/** `first`: the CPU's file, `second`: a GPU's. */
export function crossBackends(first: TuneFile, second: TuneFile): BackendCrossing[] {
  const names = [first, second].map(({ profiles }) => profiles[0]?.backend ?? "unknown");
  return widest(first).flatMap((group) => {
    const { dtype, n, k, experts, threads } = group;
    const problem = { dtype, n, k, ...(experts && { experts }) };
    const other = second.groups.find((one) => isSameProblem(one, group));
    if (!other) return [];
    const times = matmulTimesOf({ cpu: first, gpu: second, threads }, problem)!;
    // Interpolated between measured numbers of tokens, never extrapolated.
    const [least, most] = [
      Math.max(group.lines[0]?.m ?? 1, other.lines[0]?.m ?? 1),
      Math.min(group.lines.at(-1)?.m ?? 0, other.lines.at(-1)?.m ?? 0),
    ];
    const measured = times.measured.filter((m) => m >= least && m <= most);
    const points = measured.flatMap((m) => {
      const stages = times.stages(m);
      const [cpu, gpu] = stages;
      if (!cpu || !gpu) return [];
      const profiles = Object.fromEntries(
        deviceProfiles.flatMap(({ name }, i) => (stages[i] ? [[name, stages[i]]] : [])),
      );
      return [{ m, first: stagesTotal(cpu), second: stagesTotal(gpu), profiles }];
    });
    const winners = points.map((point) => ({
      m: point.m,
      faster: names[point.second < point.first ? 1 : 0]!,
    }));
    const turns = winners.filter(({ faster }, i) => faster !== winners[i - 1]?.faster);
    const crossovers = deviceProfiles.slice(1).map(({ name }, i) => {
      const isFaster = (m: number): boolean => {
        const stages = times.stages(m);
        const [cpu, one] = [stages[0], stages[i + 1]];
        return cpu !== undefined && one !== undefined && stagesTotal(one) < stagesTotal(cpu);
      };
      const m = crossover(
        points.map((point) => point.m),
        isFaster,
      );
      return { profile: name, ...(m !== undefined && { m }) };
    });
    return points.length > 0 ? [{ ...problem, threads, points, turns, crossovers }] : [];
  });
}

/** The smallest number of tokens from which on something holds at all measured ones, interpolated between two of them. */
export function crossover(
  measured: readonly number[],
  holds: (m: number) => boolean,
): number | undefined {
  const lastNot = measured.findLastIndex((m) => !holds(m));
  if (lastNot === measured.length - 1) return undefined;
  if (lastNot < 0) return measured[0];
  let [low, high] = [measured[lastNot]!, measured[lastNot + 1]!];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle;
  }
  return high;
}

/** For each shape, the group with the most threads. */
function widest({ groups }: TuneFile): TuneGroup[] {
  const byShape = new Map<string, TuneGroup>();
  for (const group of groups) {
    const key = problemText(group);
    const known = byShape.get(key);
    if (!known || group.threads > known.threads) byShape.set(key, group);
  }
  return [...byShape.values()];
}

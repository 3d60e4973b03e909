// Which of two backends computes a matmul faster, by number of tokens: compares two tune files.

import { basisFor, estimate } from "./estimate.ts";
import type { TuneFile, TuneGroup } from "./tune-file.ts";

/** A shape that was measured on both. */
export interface BackendCrossing {
  readonly dtype: string;
  readonly n: number;
  readonly k: number;
  /** The first backend's largest thread count. */
  readonly threads: number;
  /** Microseconds of the fastest profile of each, where both have one. */
  readonly points: readonly {
    readonly m: number;
    readonly first: number;
    readonly second: number;
  }[];
  /** The numbers of tokens at which the faster backend changes; the first entry is for the fewest tokens. */
  readonly turns: readonly { readonly m: number; readonly faster: string }[];
}

export function crossBackends(first: TuneFile, second: TuneFile): BackendCrossing[] {
  const names = [first, second].map(({ profiles }) => profiles[0]?.backend ?? "unknown");
  return widest(first).flatMap((group) => {
    const { dtype, n, k, threads } = group;
    const other = second.groups.find((one) => one.dtype === dtype && one.n === n && one.k === k);
    if (!other) return [];
    const measured = new Set([...group.lines, ...other.lines].map(({ m }) => m));
    const points = [...measured]
      .sort((a, b) => a - b)
      .flatMap((m) => {
        const times = { first: fastest(first, group, m), second: fastest(second, other, m) };
        return times.first === undefined || times.second === undefined
          ? []
          : [{ m, first: times.first, second: times.second }];
      });
    const winners = points.map((point) => ({
      m: point.m,
      faster: names[point.second < point.first ? 1 : 0]!,
    }));
    const turns = winners.filter(({ faster }, i) => faster !== winners[i - 1]?.faster);
    return points.length > 0 ? [{ dtype, n, k, threads, points, turns }] : [];
  });
}

/** For each shape, the group with the most threads. */
function widest({ groups }: TuneFile): TuneGroup[] {
  const byShape = new Map<string, TuneGroup>();
  for (const group of groups) {
    const key = `${group.dtype} ${group.n} ${group.k}`;
    const known = byShape.get(key);
    if (!known || group.threads > known.threads) byShape.set(key, group);
  }
  return [...byShape.values()];
}

/** Interpolated between measured numbers of tokens, never extrapolated. */
function fastest(file: TuneFile, group: TuneGroup, m: number): number | undefined {
  const { lines } = group;
  if (m < lines[0]!.m || m > lines.at(-1)!.m) return undefined;
  const basis = basisFor({ ...file, groups: [group] }, group, group.threads)!;
  const times = file.profiles.flatMap((_, profile) => {
    const found = estimate(basis, profile, m);
    return found ? [found.init + found.compute] : [];
  });
  return times.length > 0 ? Math.min(...times) : undefined;
}

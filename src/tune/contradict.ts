// Choices that a later measurement contradicts: a profile that turned out to be slower than the default loses its times
// around that number of tokens, so that the default is used there. Arithmetic on a tune file, for `lantern tune test`.

import type { TuneTestPoint } from "./options.ts";
import { profileText, type StageTimes, type TuneFile } from "./tune-file.ts";

/** The file without the times of profiles that are slower than the default; undefined: there are none. */
export function withoutContradicted(
  file: TuneFile,
  points: readonly TuneTestPoint[],
): TuneFile | undefined {
  const slower = points.filter(({ isSlower }) => isSlower);
  if (slower.length === 0) return undefined;
  const texts = file.profiles.map(profileText);
  const groups = file.groups.map((group) => {
    const { dtype, n, k, threads } = group;
    const ours = slower.filter(
      (point) =>
        point.dtype === dtype && point.n === n && point.k === k && point.threads === threads,
    );
    const lines = group.lines.map((line, at) => {
      // A point was estimated from the lines on both sides of it.
      const [below, above] = [group.lines[at - 1]?.m ?? 0, group.lines[at + 1]?.m ?? line.m + 1];
      const slow = ours
        .filter(({ m }) => m > below && m < above)
        .flatMap(({ profile }) => line.times[texts.indexOf(profile)] ?? []);
      // Variants that run the same kernel at this number of tokens have the same times.
      const isSlow = (time: StageTimes) =>
        slow.some(({ init, compute }) => time.init === init && time.compute === compute);
      return {
        ...line,
        times: line.times.map((time) => (time && !isSlow(time) ? time : undefined)),
      };
    });
    return { ...group, lines };
  });
  return { ...file, groups };
}

// Times that this machine cannot reach: less than reading the weights once and computing the products take at its peak rates
// (src/machine). Such a time is an error of the measurement or of the file, and would win every comparison; it is left out and
// named, and the rest of the file stays. The processor only; arithmetic only.

import type { MachineMeasurement } from "../api/rates.ts";
import { plural } from "../base/plural.ts";
import { dtypeByName } from "../dtypes/table.ts";
import { deviceAt } from "../limits/device.ts";
import { total } from "./confirm.ts";
import { type DeviceAt, leastMicroseconds } from "./estimate.ts";
import { problemText, profileText, type TuneFile, type TuneGroup } from "./tune-file.ts";

/**
 * Peak rates are measured, too, and a virtual machine is half as fast again at one moment as at another. A quick measurement is
 * half a second of one moment.
 */
const RATES_MAY_BE = { normal: 1.5, quick: 2 } as const;

/** The most that this machine can do with some number of threads, with weights in its fastest measured cache. */
export function peakOf(machine: MachineMeasurement): DeviceAt {
  const more = RATES_MAY_BE[machine.quick ? "quick" : "normal"];
  return (threads) => {
    const { bytesPerSecond, opsPerSecond } = deviceAt(machine, threads, 0);
    const { f32, f16 = f32, int8 = f16 } = opsPerSecond;
    return {
      bytesPerSecond: bytesPerSecond * more,
      opsPerSecond: { f32: f32 * more, f16: f16 * more, int8: int8 * more },
    };
  };
}

/** A group without the times that are above the roofline, and a sentence for each of these. */
export function withinRoofline(
  group: TuneGroup,
  profiles: TuneFile["profiles"],
  peak: DeviceAt,
): { group: TuneGroup; refused: string[] } {
  const refused: string[] = [];
  if (!dtypeByName(group.dtype)) return { group, refused };
  const device = peak(group.threads);
  const lines = group.lines.map((line) => {
    const least = leastMicroseconds(group, line.m, device);
    const times = line.times.map((time, at) => {
      if (!time || total(time) >= least) return time;
      const where = `${problemText(group)}, ${plural(group.threads, "thread")}, ${plural(line.m, "token")}`;
      refused.push(
        `${where}, ${profileText(profiles[at]!)}: got ${total(time).toFixed(1)} us, expected at least ${least.toFixed(1)}, which this machine's peak rates allow`,
      );
      return undefined;
    });
    return { ...line, times };
  });
  return { group: refused.length === 0 ? group : { ...group, lines }, refused };
}

/** The same for a whole file, which then lists the times that were left out. */
export function fileWithinRoofline(file: TuneFile, peak: DeviceAt): TuneFile {
  const checked = file.groups.map((group) => withinRoofline(group, file.profiles, peak));
  const refused = checked.flatMap((one) => one.refused);
  if (refused.length === 0) return file;
  return { ...file, groups: checked.map(({ group }) => group), refused };
}

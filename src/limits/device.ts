// A machine's speed as numbers: bytes read and operations computed per second. From a data sheet (devices.ts) or
// measured (by src/machine). The rest of this folder computes with it.

import type { Device, MachineMeasurement, RatePoint } from "../api/rates.ts";

/**
 * A register holds half as many half floats as bytes: no processor multiplies half floats at more than half of its
 * int8 rate.
 */
const bytesPerHalf = 2;

/**
 * The measured machine as a device with a given number of threads, interpolated between measured ones. `setBytes` is
 * the size of the data that
 * the work reads repeatedly (a model's weights); without it, everything is read from memory. Bytes are multiplied in
 * AMX tiles if there are any.
 * have (not measured here): a limit may be too high, never too low.
 */
export function deviceAt(
  machine: MachineMeasurement,
  threads: number,
  setBytes: number = Number.POSITIVE_INFINITY,
): Device {
  const int8Ops = machine.int8TileOps ?? machine.int8Ops;
  const tiles = machine.int8TileOps ? ", int8 in AMX tiles" : "";
  const f32 = rateAt(machine.f32Ops, threads);
  const int8 = Math.max(f32, rateAt(int8Ops, threads));
  return {
    id: "this",
    name: machine.cpu,
    memoryBytes: machine.memoryBytes,
    bytesPerSecond: rateAt(readsOf(machine, setBytes), threads),
    opsPerSecond: { f32, f16: Math.max(f32, int8 / bytesPerHalf), int8 },
    f16From: int8 / bytesPerHalf > f32 ? "derived: half of int8" : "derived: as f32",
    source: `measured ${machine.quick ? "quickly " : ""}${machine.measuredAt.slice(0, 10)}, ${threads} thread${threads === 1 ? "" : "s"}${tiles}`,
    ...(machine.quick && { quick: true }),
  };
}

/** Sets up to this many times the largest measured one may still be partly in a cache. */
const partlyCached = 4;

/**
 * The rates of the largest measured set that is not larger (or else the smallest): a limit may be too high, never too
 * low.
 */
function readsOf(machine: MachineMeasurement, setBytes: number): readonly RatePoint[] {
  const sets = machine.cachedReads ?? [];
  const memoryFrom = partlyCached * (sets.at(-1)?.setBytes ?? 0);
  if (setBytes >= memoryFrom) return machine.readBytes;
  return (sets.findLast((set) => set.setBytes <= setBytes) ?? sets[0]!).readBytes;
}

/** Beyond the last point the last rate applies: more threads than cores are not faster. */
function rateAt(points: readonly RatePoint[], threads: number): number {
  const above = points.findIndex((point) => point.threads >= threads);
  if (above < 0) return points.at(-1)!.perSecond;
  if (above === 0) return points[0]!.perSecond;
  const [low, high] = [points[above - 1]!, points[above]!];
  const share = (threads - low.threads) / (high.threads - low.threads);
  return low.perSecond + share * (high.perSecond - low.perSecond);
}

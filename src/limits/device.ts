// A machine's speed as numbers: bytes read and operations computed per second. From a data sheet (devices.ts) or
// measured (by src/machine; this file only has the types). The rest of this folder computes with it.

/** A machine or an accelerator, at one number of threads. A multiply and an add are two operations. */
export interface Device {
  readonly id: string;
  /** For display: "NVIDIA GeForce RTX 4090". */
  readonly name: string;
  /** undefined where it is not known. */
  readonly memoryBytes: number | undefined;
  readonly bytesPerSecond: number;
  /**
   * Peak rates by the type of the factors; a type without an entry runs at the rate of the next wider one. tf32:
   * float32 values that matrix units round, if these are faster than f32.
   */
  readonly opsPerSecond: {
    readonly f32: number;
    readonly tf32?: number;
    readonly f16?: number;
    readonly int8?: number;
  };
  /** How the f16 rate was derived from others; absent: it is as `source` says. */
  readonly f16From?: string;
  /** Origin of the numbers, for display: "data sheet", "measured 2026-11-15, 2 threads". */
  readonly source: string;
  /** Of a quick measurement, so not exact. */
  readonly quick?: boolean;
}

/** A rate at some number of threads. */
export interface RatePoint {
  readonly threads: number;
  readonly perSecond: number;
}

/** How fast a set of this size is read repeatedly: caches hold all or part of it. */
export interface CachedReads {
  readonly setBytes: number;
  readonly readBytes: readonly RatePoint[];
}

/** This machine, measured: every rate by number of threads, ascending, from 1 to all cores. */
export interface MachineMeasurement {
  /** What was measured; a file of another identity is stale. */
  readonly cpu: string;
  readonly cores: number;
  readonly memoryBytes: number | undefined;
  /** How the measuring kernels were lowered: "WebAssembly SIMD, relaxed (dot4 unsigned)". */
  readonly lowering: string;
  /** Reads from memory: of a set much larger than any cache. */
  readonly readBytes: readonly RatePoint[];
  /**
   * Reads of smaller sets, ascending: a small model runs from caches, and memory is not its limit. Absent: not
   * measured.
   */
  readonly cachedReads?: readonly CachedReads[];
  readonly f32Ops: readonly RatePoint[];
  /** With vector instructions. */
  readonly int8Ops: readonly RatePoint[];
  /** The same with AMX tiles. Absent: there are none. */
  readonly int8TileOps?: readonly RatePoint[];
  /** ISO date and time. */
  readonly measuredAt: string;
  /** Measured in half a second: until there is a better one. */
  readonly quick?: boolean;
}

/**
 * A register holds half as many half floats as bytes: no processor multiplies half floats at more than half of its
 * int8 rate.
 */
const bytesPerHalf = 2;

/**
 * The measured machine as a device with some number of threads, interpolated between measured ones. `setBytes` is what
 * the work reads repeatedly (a model's weights); without it everything is read from memory. Bytes are multiplied in
 * AMX tiles if there are any. Half floats count at half the rate of bytes, which processors with half-float arithmetic
 * have (it is not measured): a limit may be too high, never too low.
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

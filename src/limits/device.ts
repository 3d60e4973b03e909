// What a machine can do, as numbers: bytes it reads and operations it computes per second. From a data sheet (devices.ts)
// or measured here (src/machine measures, this file only describes). The rest of this folder is arithmetic on it.

/** A machine or an accelerator, at one number of threads. A multiply and an add are two operations. */
export interface Device {
  readonly id: string;
  /** For people: "NVIDIA GeForce RTX 4090". */
  readonly name: string;
  /** undefined where nobody says. */
  readonly memoryBytes: number | undefined;
  readonly bytesPerSecond: number;
  /**
   * Peak rates, by the type of the factors; a type without an entry runs at the next wider one's rate. tf32: of float32
   * values that matrix units round on the way, where these are faster than f32.
   */
  readonly opsPerSecond: {
    readonly f32: number;
    readonly tf32?: number;
    readonly f16?: number;
    readonly int8?: number;
  };
  /** Where the numbers come from, for people: "data sheet", "measured 2026-11-15, 2 threads". */
  readonly source: string;
}

/** A rate at some number of threads. */
export interface RatePoint {
  readonly threads: number;
  readonly perSecond: number;
}

/** How fast something of this size is read over and over: caches hold part of it, or all. */
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
  /** What the measuring kernels were lowered to: "WebAssembly SIMD, relaxed (dot4 unsigned)". */
  readonly lowering: string;
  /** From memory: much more than any cache holds. */
  readonly readBytes: readonly RatePoint[];
  /** From smaller sets, ascending; a small model runs from caches, and memory is not its limit. Absent: not measured. */
  readonly cachedReads?: readonly CachedReads[];
  readonly f32Ops: readonly RatePoint[];
  /** In vectors. */
  readonly int8Ops: readonly RatePoint[];
  /** The same in AMX tiles. Absent: there are none. */
  readonly int8TileOps?: readonly RatePoint[];
  /** ISO date and time. */
  readonly measuredAt: string;
}

/** A register holds half as many half floats as bytes; no processor multiplies them at more than half of its int8 rate. */
const bytesPerHalf = 2;

/**
 * The measured machine as a device, at a number of threads; between two measured ones, in proportion. `setBytes` is what
 * the work reads over and over (a model's weights); without it everything is read from memory. Bytes are multiplied in tile
 * registers where there are any, and half floats at half of the rate of bytes, which processors with arithmetic on them
 * have (nobody measures it here): a limit may be too high, never too low.
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
    source: `measured ${machine.measuredAt.slice(0, 10)}, ${threads} thread${threads === 1 ? "" : "s"}${tiles}`,
  };
}

/** Sets up to this many times the largest measured one may still be in a cache, in part. */
const partlyCached = 4;

/** The largest measured set that is not larger (else the smallest): a limit may be too high, never too low. */
function readsOf(machine: MachineMeasurement, setBytes: number): readonly RatePoint[] {
  const sets = machine.cachedReads ?? [];
  const memoryFrom = partlyCached * (sets.at(-1)?.setBytes ?? 0);
  if (setBytes >= memoryFrom) return machine.readBytes;
  return (sets.findLast((set) => set.setBytes <= setBytes) ?? sets[0]!).readBytes;
}

/** Beyond the last point the last rate holds: more threads than cores compute no faster. */
function rateAt(points: readonly RatePoint[], threads: number): number {
  const above = points.findIndex((point) => point.threads >= threads);
  if (above < 0) return points.at(-1)!.perSecond;
  if (above === 0) return points[0]!.perSecond;
  const [low, high] = [points[above - 1]!, points[above]!];
  const share = (threads - low.threads) / (high.threads - low.threads);
  return low.perSecond + share * (high.perSecond - low.perSecond);
}

// Public types for speeds: the rates of a device, the work of a generation, and a speed against its limit. Types only; src/limits
// computes with them.

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
  /** The derivation of the f16 rate from others; absent: it is as `source` says. */
  readonly f16From?: string;
  /** Origin of the numbers, for display: "data sheet", "measured 2026-11-15, 2 threads". */
  readonly source: string;
  /** Whether it is a quick measurement, so not exact. */
  readonly quick?: boolean;
}

/** A rate at some number of threads. */
export interface RatePoint {
  readonly threads: number;
  readonly perSecond: number;
}

/** The speed of reading a set of this size repeatedly: caches hold all or part of it. */
export interface CachedReads {
  readonly setBytes: number;
  readonly readBytes: readonly RatePoint[];
}

/** This machine, measured: every rate by number of threads, ascending, from 1 to all cores. */
export interface MachineMeasurement {
  /** The measured processor; a file of another identity is stale. */
  readonly cpu: string;
  readonly cores: number;
  readonly memoryBytes: number | undefined;
  /** The lowering of the measuring kernels: "WebAssembly SIMD, relaxed (dot4 unsigned)". */
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

/** Bytes to move and operations to compute. A multiply and an add are two operations. */
export interface Work {
  readonly bytes: number;
  /** Operations on floats. */
  readonly floatOps: number;
  /** Operations on half floats: matmuls of f16 and bf16 weights, attention to a cache of these. */
  readonly halfOps: number;
  /** Operations on 8-bit integers: matmuls of quantized weights. */
  readonly int8Ops: number;
}

/** The work of both phases of a generation. */
export interface PhaseWork {
  readonly prompt: Work;
  readonly generation: Work;
  /** The same for each part of a model that is split over two backends, in order. */
  readonly parts?: readonly Pick<PhaseWork, "prompt" | "generation">[];
}

/** A measured speed against the limit of a device. */
export interface SpeedLimit {
  /** The resource that limits the speed: reading memory, arithmetic, or reading weights that stay on disk. */
  readonly resource: "bandwidth" | "arithmetic" | "disk";
  /** The most that the device allows. */
  readonly tokensPerSecond: number;
  /** The fraction of it that was reached: 0.78. */
  readonly fraction: number;
  /** Use of the limiting resource, and its maximum: bytes or operations per second. */
  readonly achievedPerSecond: number;
  readonly possiblePerSecond: number;
}

/** Both phases of a generation; undefined if none was computed. */
export interface SpeedLimits {
  readonly prompt: SpeedLimit | undefined;
  readonly generation: SpeedLimit | undefined;
  /** They rest on a quick measurement, so they are not exact. */
  readonly quick?: boolean;
}

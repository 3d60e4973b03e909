// A measured GPU as numbers, and as a Device for limits. src/machine measures; this file only describes.

import type { Device } from "../api/rates.ts";

/** This machine's GPU, measured. A multiply and an add are two operations. */
export interface GpuMeasurement {
  /** The adapter's full description; a measurement of another adapter or driver does not apply. */
  readonly adapter: string;
  readonly name: string;
  readonly isSoftware: boolean;
  /** Reads from memory: of a set much larger than any cache. */
  readonly readBytesPerSecond: number;
  /** Reads of sets that a cache may hold, ascending. */
  readonly cachedReads: readonly { readonly setBytes: number; readonly bytesPerSecond: number }[];
  readonly f32OpsPerSecond: number;
  /** If shaders have half floats. */
  readonly f16OpsPerSecond: number | undefined;
  /** Four products of 8-bit numbers at once, if WGSL has them. */
  readonly int8OpsPerSecond: number | undefined;
  /** Half floats on matrix units with float sums, if there are any. */
  readonly matrixOpsPerSecond: number | undefined;
  /** Between the host and the GPU; undefined: measured before that was part of it. */
  readonly link: GpuLink | undefined;
  /** ISO date and time. */
  readonly measuredAt: string;
  /** In half a second: less exact. */
  readonly quick?: boolean;
}

/** The way between the host and a GPU. */
export interface GpuLink {
  readonly uploadBytesPerSecond: number;
  readonly downloadBytesPerSecond: number;
  /** The time of commands that compute nothing, and of a result of four bytes. */
  readonly roundTripSeconds: number;
}

/** Sets up to this many times the largest measured one may still be partly in a cache. */
const partlyCached = 4;

/**
 * The GPU as a device. Prompts are multiplied on matrix units if there are any, for any type of the weights, so
 * each peak is that of the fastest units that may compute it. A limit may be too high, never too low.
 */
export function gpuDevice(
  gpu: GpuMeasurement,
  setBytes: number = Number.POSITIVE_INFINITY,
): Device {
  const { f32OpsPerSecond, f16OpsPerSecond = 0, int8OpsPerSecond = 0 } = gpu;
  const { matrixOpsPerSecond = 0 } = gpu;
  const f32 = Math.max(f32OpsPerSecond, matrixOpsPerSecond);
  return {
    id: "this-gpu",
    name: gpu.name,
    memoryBytes: undefined, // WebGPU does not report it
    bytesPerSecond: readsOf(gpu, setBytes),
    opsPerSecond: {
      f32,
      f16: Math.max(f32, f16OpsPerSecond),
      int8: Math.max(f32, int8OpsPerSecond),
    },
    ...(gpu.quick && { quick: true }),
    source: `measured ${gpu.quick ? "quickly " : ""}${gpu.measuredAt.slice(0, 10)}${gpu.isSoftware ? ", a software adapter" : ""}`,
  };
}

function readsOf({ cachedReads, readBytesPerSecond }: GpuMeasurement, setBytes: number): number {
  const memoryFrom = partlyCached * (cachedReads.at(-1)?.setBytes ?? 0);
  if (setBytes >= memoryFrom) return readBytesPerSecond;
  const set = cachedReads.findLast((each) => each.setBytes <= setBytes) ?? cachedReads[0]!;
  return Math.max(set.bytesPerSecond, readBytesPerSecond);
}

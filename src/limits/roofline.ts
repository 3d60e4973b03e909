// The speed of light for a piece of work: it cannot take less time than moving its bytes, nor less than computing its
// operations. The longer of the two binds.

import type { Device } from "./device.ts";

/** What must be moved and computed. A multiply and an add are two operations. */
export interface Work {
  readonly bytes: number;
  /** Operations on floats (float32 on a CPU). */
  readonly floatOps: number;
  /** Operations on 8-bit integers: products of quantized weights. */
  readonly int8Ops: number;
}

export interface Limit {
  readonly resource: "bandwidth" | "arithmetic";
  /** The least time that the work can take. */
  readonly seconds: number;
  readonly bandwidthSeconds: number;
  readonly arithmeticSeconds: number;
}

export function limitOf(work: Work, device: Device): Limit {
  const { f32, f16, int8 } = device.opsPerSecond;
  const bandwidthSeconds = work.bytes / device.bytesPerSecond;
  const arithmeticSeconds = work.floatOps / f32 + work.int8Ops / (int8 ?? f16 ?? f32);
  return {
    resource: bandwidthSeconds >= arithmeticSeconds ? "bandwidth" : "arithmetic",
    seconds: Math.max(bandwidthSeconds, arithmeticSeconds),
    bandwidthSeconds,
    arithmeticSeconds,
  };
}

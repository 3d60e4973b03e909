// The roofline: work cannot take less time than moving its bytes, nor less than computing its operations. The longer
// of the two is the limit.

import type { Device, Work } from "../api/rates.ts";

/** The kinds of operations, each with its own rate. */
export type Ops = Pick<Work, "floatOps" | "halfOps" | "int8Ops">;

export const noOps: Ops = { floatOps: 0, halfOps: 0, int8Ops: 0 };

/** A sum of operations, kind by kind. */
export function opsSum(...terms: readonly (readonly [times: number, ops: Ops])[]): Ops {
  const sum = (key: keyof Ops): number =>
    terms.reduce((all, [times, ops]) => all + times * ops[key], 0);
  return { floatOps: sum("floatOps"), halfOps: sum("halfOps"), int8Ops: sum("int8Ops") };
}

export interface Limit {
  readonly resource: "bandwidth" | "arithmetic";
  /** The least time that the work can take. */
  readonly seconds: number;
  readonly bandwidthSeconds: number;
  readonly arithmeticSeconds: number;
}

export function limitOf(
  work: Work,
  device: Pick<Device, "bytesPerSecond" | "opsPerSecond">,
): Limit {
  const { f32, f16, int8 } = device.opsPerSecond;
  const bandwidthSeconds = work.bytes / device.bytesPerSecond;
  const arithmeticSeconds =
    work.floatOps / f32 + work.halfOps / (f16 ?? f32) + work.int8Ops / (int8 ?? f16 ?? f32);
  return {
    resource: bandwidthSeconds >= arithmeticSeconds ? "bandwidth" : "arithmetic",
    seconds: Math.max(bandwidthSeconds, arithmeticSeconds),
    bandwidthSeconds,
    arithmeticSeconds,
  };
}

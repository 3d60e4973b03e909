// A measured GPU as text: the same rows for "lantern devices" and "lantern machine".

import type { GpuMeasurement } from "../../src/index.ts";
import { bytesText } from "./text.ts";

/** Name, number, unit: only measured rates. */
export function gpuRateRows(gpu: GpuMeasurement): string[][] {
  const rates: readonly (readonly [string, number | undefined, string])[] = [
    ["reading from memory", gpu.readBytesPerSecond, "GB/s"],
    ...gpu.cachedReads.map(
      ({ setBytes, bytesPerSecond }) =>
        [`reading the same ${bytesText(setBytes)}`, bytesPerSecond, "GB/s"] as const,
    ),
    ["F32 multiply-add", gpu.f32OpsPerSecond, "GFLOPS"],
    ["F16 multiply-add", gpu.f16OpsPerSecond, "GFLOPS"],
    ["int8 dot product", gpu.int8OpsPerSecond, "GOPS"],
    ["F16 on matrix units", gpu.matrixOpsPerSecond, "GFLOPS"],
    ["copying to the GPU", gpu.link?.uploadBytesPerSecond, "GB/s"],
    ["copying from the GPU", gpu.link?.downloadBytesPerSecond, "GB/s"],
  ];
  const rows = rates
    .filter(([, rate]) => rate !== undefined)
    .map(([name, rate, unit]) => [name, (rate! / 1e9).toFixed(1), unit]);
  if (!gpu.link) return rows;
  return [...rows, ["a batch of nothing", (gpu.link.roundTripSeconds * 1e6).toFixed(1), "us"]];
}

/** "2026-11-15 05:10 UTC" */
export function dateText(iso: string): string {
  return `${iso.slice(0, 10)} ${iso.slice(11, 16)} UTC`;
}

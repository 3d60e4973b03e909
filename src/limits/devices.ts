// Devices whose limits can be computed by name: one line each, from the makers' data sheets. This machine is not among
// them: src/machine measures it (device.ts has the types).
//
// Arithmetic peaks are dense (no structured sparsity), of the whole device. f32 is that of the vector units; f16 and
// int8 are those of the matrix units if there are any, with the fastest type of sums (on GeForce cards f16 sums, which
// programs use, are twice as fast as f32 ones). Memory is the largest that is sold. A giga is 10^9, except where a
// line says otherwise.

import type { Device } from "../api/rates.ts";
import { byName } from "../base/by-name.ts";
import { UsageError } from "../base/errors.ts";

interface Row {
  readonly name: string;
  /** GiB; undefined if it depends on the configuration. */
  readonly gib?: number;
  /** GB/s */
  readonly bandwidth: number;
  /** TFLOPS and TOPS. */
  readonly f32: number;
  readonly tf32?: number;
  readonly f16?: number;
  readonly int8?: number;
  readonly source?: string;
  /** The size of a kilo in this line: 1000 unless it says 1024. */
  readonly kilo?: 1000 | 1024;
}

// The maker does not publish TFLOPS of these chips; they are computed from cores and clock.
const estimated = "bandwidth from the data sheet, arithmetic estimated from cores and clock";
// The published tables that docs/use/limits.md names use 1008 GB/s and 82.58 TFLOPS in powers of 1024, which is 7% and 10%
// too high.
const binary = "data sheet, read in powers of 1024";

const rows: Readonly<Record<string, Row>> = byName({
  rtx3090: {
    name: "NVIDIA GeForce RTX 3090",
    gib: 24,
    bandwidth: 936,
    f32: 35.58,
    f16: 142,
    int8: 284,
  },
  rtx4090: {
    name: "NVIDIA GeForce RTX 4090",
    gib: 24,
    bandwidth: 1008,
    f32: 82.58,
    f16: 330.3,
    int8: 660.6,
  },
  "rtx4090-article": {
    name: "NVIDIA GeForce RTX 4090, as the article reads its data sheet",
    gib: 24,
    bandwidth: 1008,
    f32: 82.58,
    f16: 330.3,
    int8: 660.6,
    kilo: 1024,
    source: binary,
  },
  rtx5090: {
    name: "NVIDIA GeForce RTX 5090",
    gib: 32,
    bandwidth: 1792,
    f32: 104.8,
    f16: 419,
    int8: 838,
  },
  t4: { name: "NVIDIA T4", gib: 16, bandwidth: 320, f32: 8.1, f16: 65, int8: 130 },
  l4: { name: "NVIDIA L4", gib: 24, bandwidth: 300, f32: 30.3, tf32: 60, f16: 121, int8: 242 },
  "a100-80gb": {
    name: "NVIDIA A100 SXM 80 GB",
    gib: 80,
    bandwidth: 2039,
    f32: 19.5,
    tf32: 156,
    f16: 312,
    int8: 624,
  },
  "h100-sxm": {
    name: "NVIDIA H100 SXM",
    gib: 80,
    bandwidth: 3350,
    f32: 67,
    tf32: 494.7,
    f16: 989,
    int8: 1979,
  },
  h200: {
    name: "NVIDIA H200",
    gib: 141,
    bandwidth: 4800,
    f32: 67,
    tf32: 494.7,
    f16: 989,
    int8: 1979,
  },
  mi300x: {
    name: "AMD Instinct MI300X",
    gib: 192,
    bandwidth: 5300,
    f32: 163.4,
    tf32: 653.7,
    f16: 1307,
    int8: 2614,
  },
  rx7900xtx: { name: "AMD Radeon RX 7900 XTX", gib: 24, bandwidth: 960, f32: 61.4, f16: 122.8 },
  m1: { name: "Apple M1", gib: 16, bandwidth: 68, f32: 2.6 },
  "m1-pro": { name: "Apple M1 Pro", gib: 32, bandwidth: 200, f32: 5.2 },
  "m1-max": { name: "Apple M1 Max", gib: 64, bandwidth: 400, f32: 10.4 },
  "m1-ultra": { name: "Apple M1 Ultra", gib: 128, bandwidth: 800, f32: 21 },
  m2: { name: "Apple M2", gib: 24, bandwidth: 100, f32: 3.6 },
  "m2-pro": { name: "Apple M2 Pro", gib: 32, bandwidth: 200, f32: 6.8 },
  "m2-max": { name: "Apple M2 Max", gib: 96, bandwidth: 400, f32: 13.6 },
  "m2-ultra": { name: "Apple M2 Ultra", gib: 192, bandwidth: 800, f32: 27.2 },
  m3: { name: "Apple M3", gib: 24, bandwidth: 100, f32: 3.6, source: estimated },
  "m3-pro": { name: "Apple M3 Pro", gib: 36, bandwidth: 150, f32: 6.4, source: estimated },
  "m3-max": { name: "Apple M3 Max", gib: 128, bandwidth: 400, f32: 14.3, source: estimated },
  m4: { name: "Apple M4", gib: 32, bandwidth: 120, f32: 4.3, source: estimated },
  "m4-pro": { name: "Apple M4 Pro", gib: 64, bandwidth: 273, f32: 8.6, source: estimated },
  "m4-max": { name: "Apple M4 Max", gib: 128, bandwidth: 546, f32: 17.2, source: estimated },
  // The measured bandwidth, not the 83.2 GB/s of its data sheet.
  "ryzen-7950x": {
    name: "AMD Ryzen 9 7950X",
    bandwidth: 67,
    f32: 2.735,
    f16: 5.47, // bf16 dot products
    int8: 10.94, // byte dot products
    source: "bandwidth as measured by others, arithmetic from cores and clock",
  },
  "raspberry-pi-5": {
    name: "Raspberry Pi 5",
    gib: 16,
    bandwidth: 17.1,
    f32: 0.1536,
    f16: 0.3072,
    int8: 0.6144,
    source: "bandwidth from the data sheet, arithmetic from 4 cores at 2.4 GHz",
  },
});

export const devices: readonly Device[] = Object.entries(rows).map(([id, row]) => {
  const giga = (row.kilo ?? 1000) ** 3;
  const tera = (row.kilo ?? 1000) ** 4;
  return {
    id,
    name: row.name,
    memoryBytes: row.gib === undefined ? undefined : row.gib * 1024 ** 3,
    bytesPerSecond: row.bandwidth * giga,
    opsPerSecond: {
      f32: row.f32 * tera,
      ...(row.tf32 !== undefined && { tf32: row.tf32 * tera }),
      ...(row.f16 !== undefined && { f16: row.f16 * tera }),
      ...(row.int8 !== undefined && { int8: row.int8 * tera }),
    },
    source: row.source ?? "data sheet",
  };
});

/** By id or name, ignoring case and separators: "rtx4090", "RTX 4090", "H100 SXM". */
export function deviceNamed(name: string): Device | undefined {
  const wanted = plain(name);
  return (
    devices.find(({ id }) => plain(id) === wanted) ??
    devices.find((device) => plain(device.name).endsWith(wanted) && wanted.length > 1)
  );
}

function plain(name: string): string {
  return name.toLowerCase().replace(/[\s_-]/g, "");
}

/** The type of the factors whose peak an estimate uses. */
export type Rate = Exclude<keyof Device["opsPerSecond"], "tf32">;

/**
 * The device as if all arithmetic ran at the peak of one type; a type without an entry runs at the rate of the next
 * wider one.
 */
export function deviceAtRate(device: Device, rate: Rate): Device {
  const { f32, f16 = f32, int8 = f16 } = device.opsPerSecond;
  const peaks: Readonly<Record<string, number>> = { f32, f16, int8 };
  const peak = peaks[rate];
  if (peak === undefined) {
    throw new UsageError(
      `rate: got "${String(rate)}", expected one of ${Object.keys(peaks).join(", ")}`,
    );
  }
  return { ...device, opsPerSecond: { f32: peak, f16: peak, int8: peak } };
}

/** The device as the best program uses it: floats on the matrix units, too. */
export function withMatrixUnits(device: Device): Device {
  const { f32, tf32 = f32, ...shorter } = device.opsPerSecond;
  return { ...device, opsPerSecond: { f32: tf32, ...shorter } };
}

/** Operations that the device computes while it reads a byte: work with fewer is limited by bandwidth. */
export function opsPerByte(device: Device, rate?: Rate): number {
  const rated = rate === undefined ? device : deviceAtRate(device, rate);
  return rated.opsPerSecond.f32 / device.bytesPerSecond;
}

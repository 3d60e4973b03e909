// Measured GPUs as a small JSON file (format: docs/inside/machine-file.md): one entry per adapter. Text in, text out: the platform
// knows where the file is. A file in another format is refused with a sentence, not an error.

import type { GpuMeasurement } from "../limits/gpu-device.ts";

/** Version of the format and of the method. */
const GPU_FILE_VERSION = 1;

/** A measurement in the form for other programs and for the file. */
export interface GpuJson {
  adapter: string;
  name: string;
  software: boolean;
  measured_at: string;
  /** Only of a quick measurement. */
  quick?: boolean;
  read_bytes_per_second: number;
  cached_reads: { set_bytes: number; read_bytes_per_second: number }[];
  f32_ops_per_second: number;
  f16_ops_per_second: number | null;
  int8_ops_per_second: number | null;
  matrix_ops_per_second: number | null;
  /** Not in files of older versions. */
  link?: {
    upload_bytes_per_second: number;
    download_bytes_per_second: number;
    round_trip_seconds: number;
  } | null;
}

/** All stored measurements, or why none can be used. */
export function gpusFromText(text: string): GpuMeasurement[] | { readonly refused: string } {
  let json: { lantern_gpu?: number; gpus?: unknown };
  try {
    json = (JSON.parse(text) ?? {}) as typeof json;
  } catch {
    return { refused: "it is not JSON" };
  }
  if (json.lantern_gpu !== GPU_FILE_VERSION) {
    return { refused: `it has version ${json.lantern_gpu}, expected ${GPU_FILE_VERSION}` };
  }
  const gpus = Array.isArray(json.gpus) ? (json.gpus as Partial<GpuJson>[]) : [null];
  return gpus.every(isRight)
    ? gpus.map(fromJson)
    : { refused: "a field of it is missing or wrong" };
}

export function gpusToText(gpus: readonly GpuMeasurement[]): string {
  const json = { lantern_gpu: GPU_FILE_VERSION, gpus: gpus.map(gpuMeasurementJson) };
  return `${JSON.stringify(json, undefined, 2)}\n`;
}

/** The list after this measurement replaces an older one of the same adapter. */
export function withGpu(gpus: readonly GpuMeasurement[], gpu: GpuMeasurement): GpuMeasurement[] {
  return [...gpus.filter(({ adapter }) => adapter !== gpu.adapter), gpu];
}

export function gpuMeasurementJson(gpu: GpuMeasurement): GpuJson {
  return {
    adapter: gpu.adapter,
    name: gpu.name,
    software: gpu.isSoftware,
    measured_at: gpu.measuredAt,
    ...(gpu.quick && { quick: true }),
    read_bytes_per_second: gpu.readBytesPerSecond,
    cached_reads: gpu.cachedReads.map(({ setBytes, bytesPerSecond }) => ({
      set_bytes: setBytes,
      read_bytes_per_second: bytesPerSecond,
    })),
    f32_ops_per_second: gpu.f32OpsPerSecond,
    f16_ops_per_second: gpu.f16OpsPerSecond ?? null,
    int8_ops_per_second: gpu.int8OpsPerSecond ?? null,
    matrix_ops_per_second: gpu.matrixOpsPerSecond ?? null,
    link: gpu.link
      ? {
          upload_bytes_per_second: gpu.link.uploadBytesPerSecond,
          download_bytes_per_second: gpu.link.downloadBytesPerSecond,
          round_trip_seconds: gpu.link.roundTripSeconds,
        }
      : null,
  };
}

function isRight(json: Partial<GpuJson> | null): json is GpuJson {
  if (typeof json !== "object" || json === null) return false;
  const { adapter, name, software, measured_at: date, cached_reads: sets } = json;
  const optional = [json.f16_ops_per_second, json.int8_ops_per_second, json.matrix_ops_per_second];
  return (
    typeof adapter === "string" &&
    typeof name === "string" &&
    typeof software === "boolean" &&
    typeof date === "string" &&
    ["undefined", "boolean"].includes(typeof json.quick) &&
    !Number.isNaN(Date.parse(date)) &&
    Array.isArray(sets) &&
    sets.every((set) => isRate(set?.set_bytes) && isRate(set.read_bytes_per_second)) &&
    isRate(json.read_bytes_per_second) &&
    isRate(json.f32_ops_per_second) &&
    optional.every((rate) => rate === null || isRate(rate)) &&
    isLink(json.link)
  );
}

function isLink(link: GpuJson["link"]): boolean {
  if (link === undefined || link === null) return true;
  const { upload_bytes_per_second: up, download_bytes_per_second: down } = link;
  return isRate(up) && isRate(down) && isRate(link.round_trip_seconds);
}

function isRate(value: unknown): boolean {
  return typeof value === "number" && Number.isFinite(value) && value > 0;
}

function fromJson(json: GpuJson): GpuMeasurement {
  return {
    adapter: json.adapter,
    name: json.name,
    isSoftware: json.software,
    readBytesPerSecond: json.read_bytes_per_second,
    cachedReads: json.cached_reads.map((set) => ({
      setBytes: set.set_bytes,
      bytesPerSecond: set.read_bytes_per_second,
    })),
    f32OpsPerSecond: json.f32_ops_per_second,
    f16OpsPerSecond: json.f16_ops_per_second ?? undefined,
    int8OpsPerSecond: json.int8_ops_per_second ?? undefined,
    matrixOpsPerSecond: json.matrix_ops_per_second ?? undefined,
    link: json.link
      ? {
          uploadBytesPerSecond: json.link.upload_bytes_per_second,
          downloadBytesPerSecond: json.link.download_bytes_per_second,
          roundTripSeconds: json.link.round_trip_seconds,
        }
      : undefined,
    measuredAt: json.measured_at,
    ...(json.quick && { quick: true }),
  };
}

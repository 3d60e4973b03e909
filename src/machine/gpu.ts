// This machine's GPU for backend "webgpu" and its limits: from a stored measurement, or measured now. A composition
// root like machine.ts, with the same rule: no generation fails or waits because of it.

import type { GpuInfo, GpuMeasureOptions } from "../api/api.ts";
import {
  findCheckedGpu,
  findGpu,
  GpuDevice,
  type GpuFacts,
  gpuIdentity,
} from "../backends/webgpu/device.ts";
import { messageOf, UsageError } from "../base/errors.ts";
import type { GpuMeasurement } from "../limits/gpu-device.ts";
import { currentPlatform } from "../platform/current.ts";
import type { Platform } from "../platform/platform.ts";

export { type GpuJson, gpuMeasurementJson } from "./gpu-file.ts";

const GPU_FILE = "gpu.json";

/** The GPU, or a sentence that says why there is none. */
export async function gpuInfo(): Promise<GpuInfo | string> {
  const platform = await currentPlatform();
  return await findCheckedGpu(await platform.gpu());
}

/** The measurement of this machine's GPU: the stored one of this adapter, or a new one, which takes some seconds. */
export async function gpuMeasurement(options: GpuMeasureOptions = {}): Promise<GpuMeasurement> {
  const { anew = false, quick = false, signal, onProgress, onNote } = options;
  const platform = await currentPlatform();
  const facts = await measurable(platform);
  if (quick && facts.isSoftware) {
    throw new UsageError(
      `this-gpu: "${facts.name}" runs on the CPU, where a measurement takes seconds: leave out quick`,
    );
  }
  const remembered = anew
    ? undefined
    : await rememberedGpu({ adapter: gpuIdentity(facts), quick, onNote });
  if (remembered) return remembered;
  const { measureGpu } = await import("./gpu-rates.ts");
  const gpu = await GpuDevice.open(await platform.gpu());
  try {
    const measured = await measureGpu(gpu, { quick, signal, onProgress });
    await remember(platform, measured, onNote);
    return measured;
  } finally {
    gpu.dispose();
  }
}

/** The facts of a GPU that is worth measuring; otherwise an error that says what to do. */
async function measurable(platform: Platform): Promise<GpuFacts> {
  const access = await platform.gpu();
  const facts = await findGpu(access);
  if (typeof facts === "string" || typeof access === "string") {
    throw new UsageError(
      `this-gpu: there is no GPU to measure: ${facts as string}. "lantern devices" shows what was found`,
    );
  }
  if (!facts.isSoftware || access.softwareOnly) return facts;
  throw new UsageError(
    `this-gpu: the only adapter is "${facts.name}", which runs on the CPU. LANTERN_GPU=software measures it anyway`,
  );
}

/**
 * The stored measurement of an adapter by the name in a model's info, or else of the GPU that would be used. undefined
 * if there is none, or if LANTERN_NO_LIMIT is set. Measures nothing, and opens no GPU if nothing is stored. `quick`: also
 * a quick one, which is good enough to compare a speed with and not to choose anything by.
 */
export async function rememberedGpu(
  options: { adapter?: string | undefined } & Pick<GpuMeasureOptions, "quick" | "onNote"> = {},
): Promise<GpuMeasurement | undefined> {
  const platform = await currentPlatform();
  if (platform.env("LANTERN_NO_LIMIT")) return undefined;
  const gpus = await readGpus(platform, options.onNote);
  if (gpus.length === 0) return undefined;
  const adapter = options.adapter ?? (await adapterHere(platform));
  return gpus.find((gpu) => gpu.adapter === adapter && (options.quick || !gpu.quick));
}

async function adapterHere(platform: Platform): Promise<string | undefined> {
  const facts = await findGpu(await platform.gpu());
  return typeof facts === "string" ? undefined : gpuIdentity(facts);
}

async function readGpus(
  platform: Platform,
  onNote: GpuMeasureOptions["onNote"],
): Promise<GpuMeasurement[]> {
  const files = platform.smallFiles();
  let refused: string;
  try {
    const text = await files.read(GPU_FILE);
    if (text === undefined) return [];
    const { gpusFromText } = await import("./gpu-file.ts");
    const found = gpusFromText(text);
    if (!("refused" in found)) return found;
    refused = found.refused;
  } catch (error) {
    refused = `it cannot be read (${messageOf(error)})`;
  }
  onNote?.(`${files.place(GPU_FILE)} is not used: ${refused}`);
  return [];
}

async function remember(
  platform: Platform,
  measured: GpuMeasurement,
  onNote: GpuMeasureOptions["onNote"],
): Promise<void> {
  const files = platform.smallFiles();
  try {
    const { gpusToText, withGpu } = await import("./gpu-file.ts");
    const others = await readGpus(platform, undefined);
    await files.write(GPU_FILE, gpusToText(withGpu(others, measured)));
  } catch (error) {
    onNote?.(
      `the measurement could not be saved in ${files.place(GPU_FILE)} (${messageOf(error)}), so it will be repeated next time`,
    );
  }
}

// The stored tune file of this machine: a small file in the user's cache folder. Reading it never makes a model fail:
// a file that cannot be used is reported, and the defaults are used.

import type { NativeKernels } from "../backends/cpu/native/native.ts";
import type { GpuFacts } from "../backends/webgpu/device.ts";
import { messageOf } from "../base/errors.ts";
import { rememberedMachine } from "../machine/machine.ts";
import type { Platform } from "../platform/platform.ts";
import type { DeviceAt } from "./estimate.ts";
import { gpuTuneIdentity } from "./gpu-profiles.ts";
import { identityOf } from "./identity.ts";
import type { TunedLayers } from "./layer-lines.ts";
import { mergeTuneFiles } from "./merge.ts";
import type { TuneOptions, TuneResult } from "./options.ts";
import { fileWithinRoofline, peakOf } from "./roofline.ts";
import { printTuneFile, type TuneFile, type TuneGroup, type TuneIdentity } from "./tune-file.ts";
import { GPU_TUNE_FILE, targetOfFeatures, tuneFileOf } from "./tune-target.ts";
import { usableFile } from "./use.ts";

/**
 * The file, a sentence why it is not used, or undefined if there is none. `native` makes the kernels; undefined: they
 * are WebAssembly.
 */
export async function rememberedTuning(
  platform: Platform,
  native: NativeKernels | undefined,
): Promise<TuneFile | string | undefined> {
  const machine = { cpu: platform.cpu(), cores: platform.cores };
  const found = await readTuning(platform, tuneFileOf(native?.target), () =>
    identityOf(machine, native),
  );
  return typeof found === "object" ? await reachable(found) : found;
}

/** The file without times that the processor cannot reach, as far as its peak rates were measured. */
export async function reachable(file: TuneFile): Promise<TuneFile> {
  const peak = await processorPeak();
  return peak ? fileWithinRoofline(file, peak) : file;
}

/** undefined: the machine was not measured. A quick measurement is enough: only times far beyond it are refused. */
export async function processorPeak(): Promise<DeviceAt | undefined> {
  const machine = await rememberedMachine({ quick: true });
  return machine && peakOf(machine);
}

/** The same for a GPU. */
export async function rememberedGpuTuning(
  platform: Platform,
  facts: GpuFacts,
): Promise<TuneFile | string | undefined> {
  return await readTuning(platform, GPU_TUNE_FILE, () => gpuTuneIdentity(facts));
}

async function readTuning(
  platform: Platform,
  file: string,
  here: () => TuneIdentity,
): Promise<TuneFile | string | undefined> {
  const files = platform.smallFiles();
  const name = files.place(file);
  try {
    const text = await files.read(file);
    return text === undefined ? undefined : usableFile(text, name, here());
  } catch (error) {
    return `${name} cannot be read: ${messageOf(error)}`;
  }
}

/** The head of a tune file, before its groups are measured. */
type TuneFileHead = Omit<TuneFile, "date" | "groups" | "layers">;

/** Receives measurements. */
export interface TuneSink {
  onGroup(group: TuneGroup): void | Promise<void>;
  onLayers(layers: TunedLayers): void;
  /** The file of all measurements so far. */
  file(): TuneFile;
}

/** Measures into a new file and stores it with `store`, also the finished part before an error or an abort. */
export async function measureInto(
  head: TuneFileHead,
  { remember = true, onMatrix }: Pick<TuneOptions, "remember" | "onMatrix">,
  measure: (sink: TuneSink) => Promise<unknown>,
  store: (file: TuneFile) => Promise<string>,
): Promise<TuneResult> {
  const groups: TuneGroup[] = [];
  const layers: TunedLayers[] = [];
  const file = (): TuneFile => ({
    ...head,
    date: new Date().toISOString(),
    groups,
    ...(layers.length > 0 && { layers }),
  });
  const keep = async (): Promise<string | undefined> => {
    // A function is asked when the times are there.
    const isKept = typeof remember === "function" ? remember() : remember;
    return isKept && groups.length + layers.length > 0 ? await store(file()) : undefined;
  };
  try {
    await measure({
      onGroup: async (group) => {
        groups.push(group);
        await onMatrix?.(file());
      },
      onLayers: (found) => void layers.push(found),
      file,
    });
  } catch (error) {
    await keep();
    throw error;
  }
  return { file: file(), place: await keep() };
}

/** Merges into the stored file; drops times of another machine or engine. Returns its path. */
export async function rememberTuning(
  platform: Platform,
  file: TuneFile,
  native: NativeKernels | undefined,
): Promise<string> {
  const older = await rememberedTuning(platform, native);
  return await writeTuning(platform, tuneFileOf(targetOfFeatures(file.features)), older, file);
}

export async function rememberGpuTuning(
  platform: Platform,
  file: TuneFile,
  facts: GpuFacts,
): Promise<string> {
  return await writeTuning(
    platform,
    GPU_TUNE_FILE,
    await rememberedGpuTuning(platform, facts),
    file,
  );
}

async function writeTuning(
  platform: Platform,
  name: string,
  older: TuneFile | string | undefined,
  file: TuneFile,
): Promise<string> {
  const merged = typeof older === "object" ? mergeTuneFiles(older, file) : file;
  const files = platform.smallFiles();
  await files.write(name, printTuneFile(merged));
  return files.place(name);
}

// The remembered tune file of this machine: a small file in the user's cache folder. Reading it never fails a model:
// what cannot be used is said, and the defaults are used.

import type { NativeKernels } from "./backends/cpu/native.ts";
import type { Platform } from "./platform/platform.ts";
import { identityOf } from "./tune/identity.ts";
import { mergeTuneFiles } from "./tune/merge.ts";
import { printTuneFile, type TuneFile } from "./tune/tune-file.ts";
import { targetOfFeatures, tuneFileOf } from "./tune/tune-target.ts";
import { usableFile } from "./tune/use.ts";

/**
 * The file, the sentence why it is not used, or undefined where there is none. `native` makes the kernels; undefined: they
 * are WebAssembly.
 */
export async function rememberedTuning(
  platform: Platform,
  native: NativeKernels | undefined,
): Promise<TuneFile | string | undefined> {
  const files = platform.smallFiles();
  const file = tuneFileOf(native?.target);
  const name = files.place(file);
  try {
    const text = await files.read(file);
    if (text === undefined) return undefined;
    const machine = { cpu: platform.cpu(), cores: platform.cores };
    return usableFile(text, name, identityOf(machine, native));
  } catch (error) {
    return `${name} cannot be read: ${error instanceof Error ? error.message : String(error)}`;
  }
}

/** Adds to what is remembered; what was of another machine or engine goes. Returns where it is. */
export async function rememberTuning(
  platform: Platform,
  file: TuneFile,
  native: NativeKernels | undefined,
): Promise<string> {
  const older = await rememberedTuning(platform, native);
  const merged = typeof older === "object" ? mergeTuneFiles(older, file) : file;
  const files = platform.smallFiles();
  const name = tuneFileOf(targetOfFeatures(file.features));
  await files.write(name, printTuneFile(merged));
  return files.place(name);
}

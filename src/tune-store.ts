// The remembered tune file of this machine: a small file in the user's cache folder. Reading it never fails a model:
// what cannot be used is said, and the defaults are used.

import type { Platform } from "./platform/platform.ts";
import { identityOf } from "./tune/identity.ts";
import { mergeTuneFiles } from "./tune/merge.ts";
import { printTuneFile, type TuneFile } from "./tune/tune-file.ts";
import { usableFile } from "./tune/use.ts";

const TUNE_FILE = "tune.txt";

/** The file, the sentence why it is not used, or undefined where there is none. */
export async function rememberedTuning(platform: Platform): Promise<TuneFile | string | undefined> {
  const files = platform.smallFiles();
  const name = files.place(TUNE_FILE);
  try {
    const text = await files.read(TUNE_FILE);
    if (text === undefined) return undefined;
    return usableFile(text, name, identityOf({ cpu: platform.cpu(), cores: platform.cores }));
  } catch (error) {
    return `${name} cannot be read: ${error instanceof Error ? error.message : String(error)}`;
  }
}

/** Adds to what is remembered; what was of another machine or engine goes. Returns where it is. */
export async function rememberTuning(platform: Platform, file: TuneFile): Promise<string> {
  const older = await rememberedTuning(platform);
  const merged = typeof older === "object" ? mergeTuneFiles(older, file) : file;
  const files = platform.smallFiles();
  await files.write(TUNE_FILE, printTuneFile(merged));
  return files.place(TUNE_FILE);
}

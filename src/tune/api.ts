// The public API of tuning. Backends and kernels are loaded when it is called: a page that only opens models never
// loads them here.

import { byName } from "../base/by-name.ts";
import { SourceError, UsageError } from "../base/errors.ts";
import { checkOptionNames, type OptionNames } from "../base/options.ts";
import { nativeHere } from "../machine/native.ts";
import { currentPlatform } from "../platform/current.ts";
import { analyzeTuneFile, type TuneAnalysis } from "./analyze.ts";
import { withoutContradicted } from "./contradict.ts";
import { type BackendCrossing, crossBackends } from "./cross-backends.ts";
import { deviceProfiles } from "./device-profiles.ts";
import {
  checkTuneOptions,
  type TuneOptions,
  type TuneResult,
  type TuneTestOptions,
  type TuneTestPoint,
} from "./options.ts";
import { tunePicture } from "./picture.ts";
import { parseTuneFile, printTuneFile, type TuneFile } from "./tune-file.ts";
import { isGpuFile, targetOfFeatures } from "./tune-target.ts";

export type { TuneOptions, TuneResult, TuneTestOptions, TuneTestPoint } from "./options.ts";
export { isTunePostponed, postponeTune, tunePostponedUntil } from "./postpone.ts";

/** The type of the weights, if shapes are tuned. */
const defaultType = "q4_0";

const tuneOptions: OptionNames<TuneOptions> = {
  backend: true,
  model: true,
  shapes: true,
  types: true,
  weights: true,
  threads: true,
  mStep: true,
  mNum: true,
  tokens: true,
  mode: true,
  native: true,
  missing: true,
  onMatrix: true,
  remember: true,
  signal: true,
  onProgress: true,
};

const testOptions: OptionNames<TuneTestOptions> = {
  file: true,
  points: true,
  signal: true,
  onProgress: true,
};

/** Measures the ways to compute a model's matmuls on this machine; blocks the calling thread meanwhile. */
export async function tune(options: TuneOptions): Promise<TuneResult> {
  const { tuner, checked } = await checkedTuner(options);
  return await tuner.measure(checked);
}

/** Rejects the options that tune() would reject, and measures nothing. */
export async function checkTune(options: TuneOptions): Promise<void> {
  const { tuner, checked } = await checkedTuner(options);
  await tuner.check(checked);
}

async function checkedTuner(options: TuneOptions): Promise<{ tuner: Tuner; checked: TuneOptions }> {
  checkOptionNames("tune()", options, tuneOptions);
  const { backend = "cpu", ...rest } = options;
  const load = tuners[backend];
  if (!load) {
    const names = Object.keys(tuners).join(", ");
    throw new UsageError(`tune: backend: got "${backend}", expected one of ${names}`);
  }
  checkTuneOptions(rest);
  const types = rest.model === undefined ? { types: rest.types ?? [defaultType] } : {};
  return { tuner: await load(), checked: { ...rest, ...types } };
}

/** The tuning of one backend. */
interface Tuner {
  check(options: TuneOptions): Promise<unknown>;
  measure(options: TuneOptions): Promise<TuneResult>;
}

/** One for each backend that has several ways to compute matmuls; loaded when it is used. */
const tuners: Readonly<Record<string, () => Promise<Tuner>>> = byName({
  cpu: async () => {
    const { measureTune, problemsToTune } = await import("./compose-matmul.ts");
    return { measure: measureTune, check: problemsToTune };
  },
  webgpu: async () => {
    const { checkGpuTune, measureGpuTune } = await import("./compose-gpu.ts");
    return { measure: measureGpuTune, check: checkGpuTune };
  },
});

/** The stored tune file of this machine's GPU, if it still applies; undefined: none. */
export async function rememberedGpuTune(): Promise<TuneFile | undefined> {
  const load = await import("./compose-gpu.ts");
  return await load.rememberedGpuTune();
}

/** The ways to compute a matmul with a CPU and a GPU, which compareTunes() gives the times of. */
export const tuneDeviceProfiles: readonly { readonly name: string; readonly about: string }[] =
  deviceProfiles;

/** Which of two backends computes a matmul faster, by number of tokens: the CPU's times, then a GPU's. */
export function compareTunes(first: TuneFile, second: TuneFile): BackendCrossing[] {
  if (isGpuFile(first) || !isGpuFile(second)) {
    const got = [first, second]
      .map((file) => (isGpuFile(file) ? "a GPU" : "the CPU"))
      .join(", then ");
    throw new UsageError(
      `tune: got times of ${got}, expected those of the CPU, then those of a GPU`,
    );
  }
  return crossBackends(first, second);
}

export async function testTune(options: TuneTestOptions): Promise<TuneTestPoint[]> {
  checkOptionNames("testTune()", options, testOptions);
  const { measureTuneTest } = await import("./compose-matmul.ts");
  return await measureTuneTest(options);
}

/**
 * The file without choices that turned out to be slower than the default; undefined: none was. `points` is the result
 * of testTune().
 */
export function correctedTune(
  file: TuneFile,
  points: readonly TuneTestPoint[],
): TuneFile | undefined {
  return withoutContradicted(file, points);
}

/** Stores times for the next open(), merged with those already stored. Returns where. */
export async function rememberTune(file: TuneFile): Promise<string> {
  const { rememberTuning } = await import("./store.ts");
  const platform = await currentPlatform();
  const isNative = targetOfFeatures(file.features).name !== "wasm";
  return await rememberTuning(platform, file, await nativeHere(platform, isNative));
}

/** The stored tune file of this machine, if it still applies. */
export async function rememberedTune(): Promise<TuneFile> {
  const { rememberedTuning } = await import("./store.ts");
  const platform = await currentPlatform();
  const found = await rememberedTuning(platform, await nativeHere(platform));
  if (typeof found === "object") return found;
  if (found !== undefined) throw new SourceError(found);
  throw new UsageError(
    'nothing was tuned on this machine yet. Run "lantern tune -m MODEL" first, or name a file',
  );
}

/** Types of a model's matmuls that were never tuned on this machine, without types of only a few small matrices. */
export async function untunedTypes(
  model: string | URL,
  options: Pick<TuneOptions, "weights"> = {},
): Promise<string[]> {
  checkOptionNames("untunedTypes()", options, { weights: true });
  const { typesWithoutTimes } = await import("./compose-matmul.ts");
  return await typesWithoutTimes(model, options);
}

/** The text of a tune file. */
export function tuneText(file: TuneFile): string {
  return printTuneFile(file);
}

/** Parses the result of tune(); `name` is for messages. */
export function readTune(text: string, name: string): TuneFile {
  return parseTuneFile(text, name);
}

export function analyzeTune(file: TuneFile): TuneAnalysis {
  return analyzeTuneFile(file);
}

/** An SVG chart: speed over number of tokens, for each shape and thread count. */
export function tuneSvg(file: TuneFile): string {
  return tunePicture(file);
}

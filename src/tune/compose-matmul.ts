// Tunes this machine's processor: chooses the matmuls, how they are measured, and stores the results. A composition
// root like open.ts; api.ts loads it when it is used.

import type { NativeKernels } from "../backends/cpu/native/native.ts";
import { UsageError } from "../base/errors.ts";
import { halfCandidates, tensorsAsHalves } from "../formats/half-weights.ts";
import type { ModelFile } from "../formats/model-file.ts";
import { modelMatmuls } from "../limits/model-matmuls.ts";
import { withModelFile } from "../load/model-file.ts";
import { nativeHere } from "../machine/native.ts";
import { measureNotify } from "../machine/notify.ts";
import { currentPlatform } from "../platform/current.ts";
import type { Platform } from "../platform/platform.ts";
import { checkPoints } from "./check.ts";
import { identityOf } from "./identity.ts";
import type { TuneOptions, TuneResult, TuneTestOptions, TuneTestPoint } from "./options.ts";
import { withinRoofline } from "./roofline.ts";
import { runTune, tuneProfiles } from "./run-tune.ts";
import {
  type CountedProblem,
  checkedProblem,
  countedProblems,
  isTunable,
  largestOfEachType,
  problemsOfShape,
  RARE_SHARE,
  roundsOf,
  STREAM_BYTES,
  shapeByName,
  tokensToTune,
  typesToTune,
  withoutRareTypes,
} from "./space.ts";
import { measureInto, processorPeak, rememberedTuning, rememberTuning } from "./store.ts";
import { problemText, type TuneFile, type TuneProblem } from "./tune-file.ts";
import { isGpuFile, targetFor, targetOfFeatures } from "./tune-target.ts";

/** The duration of measuring points of a file again: a machine's slow moments last a second or two. */
const testMs = 12_000;
const mostThreads = 64;

export async function measureTune(options: TuneOptions): Promise<TuneResult> {
  const { mode = "normal", threads, signal, onProgress } = options;
  const platform = await currentPlatform();
  const native = await nativeHere(platform, options.native);
  const wanted = await problemsToTune(options);
  const known = options.missing ? await typesWithTimes(platform, native) : new Set();
  const problems = wanted.filter(({ dtype }) => !known.has(dtype));
  const isQuick = mode === "quick";
  const profiles = tuneProfiles(!isQuick, targetFor(native));
  const notify =
    (isQuick ? await knownNotify(platform, native) : undefined) ??
    (await measureNotify(() => platform.startThread("measure")));
  const peak = await processorPeak();
  const notes: string[] = [];
  const result = await measureInto(
    {
      ...identityOf({ cpu: platform.cpu(), cores: platform.cores }, native),
      ...(notify && { notify }),
      profiles,
    },
    options,
    ({ onGroup }) =>
      runTune(
        {
          problems,
          threads: threads ?? (isQuick ? [platform.cores] : [...new Set([1, platform.cores])]),
          tokens: tokensToTune(options),
          rounds: roundsOf(mode),
          full: mode === "full",
          streamBytes: STREAM_BYTES[mode],
          knobsOfTiles: !isQuick,
          sleeping: !isQuick,
          notifyUs: notify?.us,
        },
        profiles,
        {
          startThread: () => platform.startThread("compute"),
          native,
          yieldThread: () => platform.yieldThread(),
          cpuTimes: () => platform.cpuTimes(),
        },
        {
          signal,
          onProgress,
          onGroup: async (measured) => {
            const { group, refused } = peak
              ? withinRoofline(measured, profiles, peak)
              : { group: measured, refused: [] };
            notes.push(...refused.map((text) => `Not stored: ${text}`));
            await onGroup(group);
          },
        },
      ),
    (file) => rememberTuning(platform, file, native),
  );
  return { ...result, ...(notes.length > 0 && { notes }) };
}

/** The stored cost of a wake-up, so that a quick tune does not start threads for it. */
async function knownNotify(
  platform: Platform,
  native: NativeKernels | undefined,
): Promise<TuneFile["notify"]> {
  const stored = await rememberedTuning(platform, native);
  return typeof stored === "object" ? stored.notify : undefined;
}

/** The matmuls of a model or of shapes; quick: the largest of each type. Experts decide devices, not kernels: not quick. */
export async function problemsToTune(options: TuneOptions): Promise<TuneProblem[]> {
  const all = await problemsOf(options);
  if (options.mode === "quick") return largestOfEachType(withoutRareTypes(all, RARE_SHARE));
  const { model } = options;
  const experts =
    model === undefined
      ? []
      : await withModelFile(model, (file) =>
          expertProblems({ ...file, tensors: heldTensors(file, options.weights) }),
        ).then((found) => found.filter(({ dtype }) => isTunable(dtype)));
  return [...all, ...experts];
}

/** The tensors as open() holds them. */
function heldTensors(
  file: Pick<ModelFile, "tensors">,
  weights: TuneOptions["weights"],
): ModelFile["tensors"] {
  return weights ? tensorsAsHalves(file, halfCandidates(file)) : file.tensors;
}

/** The distinct matmuls over experts of a model. */
function expertProblems(file: Pick<ModelFile, "tensors" | "metadata">): TuneProblem[] {
  const hasExperts = [...file.tensors.values()].some(({ shape }) => shape.length > 2);
  const all = hasExperts ? modelMatmuls(file).flatMap(({ matmuls }) => matmuls) : [];
  const byText = new Map(
    all.filter(({ experts }) => experts).map((one) => [problemText(one), one]),
  );
  return [...byText.values()];
}

export async function typesWithoutTimes(
  model: string | URL,
  options: Pick<TuneOptions, "weights">,
): Promise<string[]> {
  const platform = await currentPlatform();
  const types = typesToTune(await problemsOf({ model, ...options }));
  const known = await typesWithTimes(platform, await nativeHere(platform));
  return types.filter((dtype) => !known.has(dtype));
}

/** Without a stored file that is in use, there are none: all are measured again. */
async function typesWithTimes(
  platform: Platform,
  native: NativeKernels | undefined,
): Promise<ReadonlySet<string>> {
  const found = await rememberedTuning(platform, native);
  return new Set(typeof found === "object" ? found.groups.map(({ dtype }) => dtype) : []);
}

/** Measures some points of a file again and compares them with its predictions. */
export async function measureTuneTest(options: TuneTestOptions): Promise<TuneTestPoint[]> {
  const platform = await currentPlatform();
  return await checkPoints(
    options.file,
    {
      points: options.points ?? 12,
      leastMs: testMs,
      streamBytes: STREAM_BYTES.normal,
      mostThreads,
    },
    {
      startThread: () => platform.startThread("compute"),
      native: await nativeOf(options.file, platform),
      yieldThread: () => platform.yieldThread(),
      cpuTimes: () => platform.cpuTimes(),
    },
    options,
  );
}

/** Makes the kernels that the file's times are for. */
async function nativeOf(file: TuneFile, platform: Platform): Promise<NativeKernels | undefined> {
  if (isGpuFile(file)) {
    throw new UsageError(
      `tune: the times are those of the GPU ${file.cpu}, and only times of the CPU can be measured again`,
    );
  }
  const { name } = targetOfFeatures(file.features);
  const native = await nativeHere(platform, name !== "wasm");
  const here = native?.target.name ?? "wasm";
  if (name === here) return native;
  throw new UsageError(
    `tune: the times are those of kernels for ${name}, but this machine runs ${here}. Run "lantern tune" here`,
  );
}

async function problemsOf(options: TuneOptions): Promise<CountedProblem[]> {
  const { model, shapes, types = [], weights } = options;
  if (model !== undefined)
    return await withModelFile(model, (file) =>
      countedProblems(heldTensors(file, weights).values()).filter(({ dtype }) => isTunable(dtype)),
    );
  const shape = shapeByName(shapes ?? "7b");
  const names = [...new Set(types.map((type) => type.toLowerCase()))];
  return names.flatMap((type) => problemsOfShape(shape, type).map(checkedProblem));
}

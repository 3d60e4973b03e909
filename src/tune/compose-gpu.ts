// Tunes this machine's GPU: chooses the matmuls, then measures the model's layers in one dispatch, and stores the results. A composition root, like compose-matmul.ts for
// the processor; api.ts loads it when it is used.

import { findCheckedGpu, GpuDevice, type GpuFacts } from "../backends/webgpu/device.ts";
import { type Tuning, tuningFor } from "../backends/webgpu/tuning.ts";
import { AbortedError, UsageError } from "../base/errors.ts";
import { currentPlatform } from "../platform/current.ts";
import type { Platform } from "../platform/platform.ts";
import { tuneModelLayers } from "./compose-layers.ts";
import { problemsToTune } from "./compose-matmul.ts";
import { useGpuTuning } from "./gpu-choose.ts";
import { gpuTuneIdentity, gpuTuneProfiles } from "./gpu-profiles.ts";
import { runGpuTune } from "./gpu-tune.ts";
import { mergeTuneFiles } from "./merge.ts";
import type { TuneOptions, TuneResult } from "./options.ts";
import { STREAM_BYTES, tokensToTune } from "./space.ts";
import { measureInto, rememberedGpuTuning, rememberGpuTuning } from "./store.ts";
import type { TuneFile } from "./tune-file.ts";

const rounds = { quick: 2, normal: 3, full: 5 } as const;

export async function measureGpuTune(options: TuneOptions): Promise<TuneResult> {
  const { mode = "normal" } = options;
  const platform = await currentPlatform();
  const access = await platform.gpu();
  const facts = await tunable(platform);
  const problems = await problemsToTune(options);
  const openGpu = () => GpuDevice.open(access);
  const notes: string[] = [];
  const result = await measureInto(
    { ...gpuTuneIdentity(facts), profiles: gpuTuneProfiles() },
    options,
    async (sink) => {
      // The layers of a model take about as long as one of its matmuls.
      const hasLayers = options.model !== undefined && !facts.isSoftware;
      const parts = problems.length + (hasLayers ? 1 : 0);
      await runGpuTune(
        {
          problems,
          tokens: tokensToTune(options),
          rounds: rounds[mode],
          streamBytes: STREAM_BYTES[mode],
        },
        openGpu,
        () => platform.yieldThread(),
        {
          signal: options.signal,
          onProgress: (share, now) => options.onProgress?.((share * problems.length) / parts, now),
          onGroup: (group) => sink.onGroup(group),
        },
      );
      if (options.model === undefined) return;
      if (!hasLayers) {
        notes.push(softwareNote);
        return;
      }
      const found = await tuneModelLayers(
        {
          model: options.model,
          weights: options.weights,
          tuning: await tunedSoFar(platform, facts, sink.file()),
          rounds: rounds[mode],
          report: (share) => report(options, platform, (problems.length + share) / parts),
        },
        platform,
        facts,
        openGpu,
      );
      if (typeof found === "string") notes.push(untuned(found));
      else sink.onLayers(found);
    },
    (file) => rememberGpuTuning(platform, file, facts),
  );
  return { ...result, notes };
}

const untuned = (why: string): string => `Layers in one dispatch were not tuned: ${why}.`;

const softwareNote: string = untuned(
  "this adapter computes on the CPU, where compiling them takes minutes",
);

async function report(
  { signal, onProgress }: TuneOptions,
  platform: Platform,
  share: number,
): Promise<void> {
  await platform.yieldThread();
  if (signal?.aborted) throw new AbortedError("tuning");
  onProgress?.(share, "layers in one dispatch, GPU");
}

/** The matmuls that a model will have from now on. */
async function tunedSoFar(platform: Platform, facts: GpuFacts, file: TuneFile): Promise<Tuning> {
  const older = await rememberedGpuTuning(platform, facts);
  const merged = typeof older === "object" ? mergeTuneFiles(older, file) : file;
  return useGpuTuning(merged, facts).tuning ?? tuningFor(facts);
}

/** Rejects the options that measureGpuTune() would reject, and measures nothing. */
export async function checkGpuTune(options: TuneOptions): Promise<void> {
  await tunable(await currentPlatform());
  await problemsToTune(options);
}

/** The stored tune file of this machine's GPU, if it still applies; undefined: none. */
export async function rememberedGpuTune(): Promise<TuneFile | undefined> {
  const platform = await currentPlatform();
  const facts = await findCheckedGpu(await platform.gpu());
  if (typeof facts === "string") return undefined;
  const found = await rememberedGpuTuning(platform, facts);
  return typeof found === "object" ? found : undefined;
}

async function tunable(platform: Platform): Promise<GpuFacts> {
  const access = await platform.gpu();
  const facts = await findCheckedGpu(access);
  if (typeof facts === "string" || typeof access === "string") {
    throw new UsageError(
      `tune: there is no GPU to tune: ${facts as string}. "lantern devices" shows what was found`,
    );
  }
  if (!facts.isSoftware || access.softwareOnly) return facts;
  throw new UsageError(
    `tune: the only adapter is "${facts.name}", which runs on the CPU. LANTERN_GPU=software tunes it anyway`,
  );
}

// Tunes this machine's GPU: chooses the matmuls and stores the results. A composition root, like compose-matmul.ts for
// the processor; api.ts loads it when it is used.

import { findCheckedGpu, GpuDevice, type GpuFacts } from "../backends/webgpu/device.ts";
import { UsageError } from "../base/errors.ts";
import { currentPlatform } from "../platform/current.ts";
import type { Platform } from "../platform/platform.ts";
import { problemsToTune } from "./compose-matmul.ts";
import { gpuTuneIdentity, gpuTuneProfiles } from "./gpu-profiles.ts";
import { runGpuTune } from "./gpu-tune.ts";
import type { TuneOptions, TuneResult } from "./options.ts";
import { STREAM_BYTES, tokensToTune } from "./space.ts";
import { measureInto, rememberedGpuTuning, rememberGpuTuning } from "./store.ts";
import type { TuneFile } from "./tune-file.ts";

const rounds = { quick: 2, normal: 3, full: 5 } as const;

export async function measureGpuTune(options: TuneOptions): Promise<TuneResult> {
  const { mode = "normal", signal, onProgress } = options;
  const platform = await currentPlatform();
  const access = await platform.gpu();
  const facts = await tunable(platform);
  const problems = await problemsToTune(options);
  return await measureInto(
    { ...gpuTuneIdentity(facts), profiles: gpuTuneProfiles() },
    options,
    (onGroup) =>
      runGpuTune(
        {
          problems,
          tokens: tokensToTune(options),
          rounds: rounds[mode],
          streamBytes: STREAM_BYTES[mode],
        },
        () => GpuDevice.open(access),
        () => platform.breathe(),
        { signal, onProgress, onGroup },
      ),
    (file) => rememberGpuTuning(platform, file, facts),
  );
}

/** Rejects what measureGpuTune() would reject, and measures nothing. */
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

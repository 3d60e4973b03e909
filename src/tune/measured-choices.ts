// What measurements of this machine decide when a model is loaded: kernels and threads (tuning), and how much of a prompt
// goes into a batch in which others decode. The engine's thread loads this file when there is a measurement; a machine that
// was never measured pays nothing for it.

import type { NativeKernels } from "../backends/cpu/native/native.ts";
import type { GpuFacts } from "../backends/webgpu/device.ts";
import type { EngineOptions } from "../engine/engine.ts";
import type { ModelFile } from "../formats/model-file.ts";
import { deviceAt } from "../limits/device.ts";
import { graphModelCost } from "../limits/model-cost.ts";
import { turningPoints } from "../limits/prefill.ts";
import { rememberedMachine } from "../machine/machine.ts";
import { nativeHere } from "../machine/native.ts";
import { currentPlatform } from "../platform/current.ts";
import type { Platform } from "../platform/platform.ts";
import { type GpuTunedUse, useGpuTuning } from "./gpu-choose.ts";
import { problemsOfTensors } from "./space.ts";
import { rememberedGpuTuning, rememberedTuning } from "./store.ts";
import { targetFor } from "./tune-target.ts";
import { type TunedUse, useTuning } from "./use.ts";

/** What was measured of this model's matmuls. */
export async function measuredTuning(
  platform: Platform,
  file: Pick<ModelFile, "tensors">,
  threads: number | undefined,
  native: NativeKernels | undefined,
): Promise<TunedUse> {
  const problems = problemsOfTensors(file.tensors.values());
  const known = await rememberedTuning(platform, native);
  return useTuning(known, problems, targetFor(native), threads);
}

/** The threads that this model runs on here unless somebody asks for others; undefined: not tuned, all cores. */
export async function measuredThreads(
  file: Pick<ModelFile, "tensors">,
): Promise<number | undefined> {
  const platform = await currentPlatform();
  return (await measuredTuning(platform, file, undefined, await nativeHere(platform))).threads;
}

/** What was measured of the GPU's matmuls. */
export async function measuredGpuTuning(platform: Platform, facts: GpuFacts): Promise<GpuTunedUse> {
  return useGpuTuning(await rememberedGpuTuning(platform, facts), facts);
}

/** Fewer tokens at once would not fill the kernels' tiles. */
const SMALLEST_CHUNK = 8;

/**
 * Prompt tokens beside those who write: as many as are computed in the time that reading the weights takes, which is the
 * first turning point of this machine's limits. undefined: it was not measured.
 */
export async function measuredChunk(threads: number): Promise<EngineOptions["promptChunk"]> {
  const measured = await rememberedMachine();
  if (!measured) return undefined;
  // At the rate of vectors, which kernels come near to. By that of AMX tiles, which they are far from, a batch would have
  // several times as many tokens of the prompt, and those who write would wait for them. Half floats are computed as floats.
  const { int8TileOps: _, ...machine } = measured;
  const { opsPerSecond, ...rest } = deviceAt(machine, threads);
  const device = { ...rest, opsPerSecond: { ...opsPerSecond, f16: opsPerSecond.f32 } };
  return (graph, kvType) => {
    const cost = graphModelCost(graph, kvType, 0);
    const { points } = turningPoints(cost, device, "exact");
    return points[0] && Math.max(SMALLEST_CHUNK, points[0].tokens);
  };
}

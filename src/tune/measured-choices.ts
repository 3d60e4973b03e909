// Choices that this machine's measurements make when a model is loaded: kernels and threads (tuning), and the number of
// prompt tokens in a batch while others decode. The engine's thread loads this file only if there is a measurement.

import type { NativeKernels } from "../backends/cpu/native/native.ts";
import type { SideChoice } from "../backends/switch/divide-batch.ts";
import { type GpuFacts, gpuIdentity } from "../backends/webgpu/device.ts";
import { bytesFor } from "../dtypes/dtype.ts";
import type { KvDType } from "../dtypes/kv-types.ts";
import { dtypeByName } from "../dtypes/table.ts";
import type { ModelFile } from "../formats/model-file.ts";
import type { BatchShape } from "../graph/batch.ts";
import type { Graph } from "../graph/graph.ts";
import { deviceAt } from "../limits/device.ts";
import { gpuDevice } from "../limits/gpu-device.ts";
import { graphModelCost } from "../limits/model-cost.ts";
import { modelKvBytes } from "../limits/model-kv.ts";
import { graphMatmuls, modelMatmuls } from "../limits/model-matmuls.ts";
import { turningPoints } from "../limits/prefill.ts";
import { rememberedGpu } from "../machine/gpu.ts";
import { rememberedMachine } from "../machine/machine.ts";
import { nativeHere } from "../machine/native.ts";
import { currentPlatform } from "../platform/current.ts";
import type { Platform } from "../platform/platform.ts";
import { batchTimes } from "./batch-times.ts";
import type { DeviceAt } from "./estimate.ts";
import { checkGivenTune, type GivenTune } from "./given.ts";
import { type GpuTunedUse, useGpuTuning } from "./gpu-choose.ts";
import { gpuTuneIdentity } from "./gpu-profiles.ts";
import { linkTimes, transferTimes } from "./gpu-transfers.ts";
import { identityOf } from "./identity.ts";
import { estimateSides, explainSides } from "./sides.ts";
import { type CountedProblem, countedProblems, typesToTune } from "./space.ts";
import { reachable, rememberedGpuTuning, rememberedTuning } from "./store.ts";
import type { TuneFile } from "./tune-file.ts";
import { isGpuFile, targetFor } from "./tune-target.ts";
import { type TunedUse, useTuning } from "./use.ts";

/** The tuned choices for this model's matmuls. */
export async function measuredTuning(
  platform: Platform,
  file: Pick<ModelFile, "tensors">,
  threads: number | undefined,
  native: NativeKernels | undefined,
  given?: GivenTune,
  explained?: readonly number[],
): Promise<TunedUse> {
  const problems = countedProblems(file.tensors.values());
  const known = await cpuTuning(platform, native, given);
  const deviceAt = await machineLimits(problems);
  const use = useTuning(known, problems, targetFor(native), threads, { deviceAt, explained });
  const types = typeof known === "object" ? known.groups.map(({ dtype }) => dtype) : [];
  return { ...use, isTuned: typesToTune(problems).every((dtype) => types.includes(dtype)) };
}

/** This machine's limits by number of threads, for weights of these matmuls; undefined: it was not measured. */
async function machineLimits(problems: readonly CountedProblem[]): Promise<DeviceAt | undefined> {
  const machine = await rememberedMachine();
  if (!machine) return undefined;
  const bytes = problems.reduce(
    (sum, { dtype, n, k, count }) => sum + count * bytesFor(dtypeByName(dtype)!, n * k),
    0,
  );
  return (threads) => deviceAt(machine, threads, bytes);
}

/** The number of threads for this model here by default; undefined: not tuned, all cores. */
export async function measuredThreads(
  file: Pick<ModelFile, "tensors">,
): Promise<number | undefined> {
  const platform = await currentPlatform();
  return (await measuredTuning(platform, file, undefined, await nativeHere(platform))).threads;
}

/** The tuned choices for the GPU's matmuls. */
export async function measuredGpuTuning(
  platform: Platform,
  facts: GpuFacts,
  given?: GivenTune,
): Promise<GpuTunedUse> {
  return useGpuTuning(await gpuTuning(platform, facts, given), facts);
}

interface SidesOptions {
  readonly threads: number;
  readonly native: NativeKernels | undefined;
  /** The file that the user named, instead of the stored one of its device. */
  readonly given: GivenTune | undefined;
}

/** The CPU's times: those that were given, or the stored ones. */
async function cpuTuning(
  platform: Platform,
  native: NativeKernels | undefined,
  given: GivenTune | undefined,
): Promise<TuneFile | string | undefined> {
  const machine = { cpu: platform.cpu(), cores: platform.cores };
  return given && !isGpuFile(given.file)
    ? await reachable(checkGivenTune(given, identityOf(machine, native)))
    : await rememberedTuning(platform, native);
}

/** The same of the GPU. */
async function gpuTuning(
  platform: Platform,
  facts: GpuFacts,
  given: GivenTune | undefined,
): Promise<TuneFile | string | undefined> {
  return given && isGpuFile(given.file)
    ? checkGivenTune(given, gpuTuneIdentity(facts))
    : await rememberedGpuTuning(platform, facts);
}

/** Times of this model's batches here, as far as the tune file has them; undefined: it has none. */
export async function measuredBatches(
  platform: Platform,
  file: Pick<ModelFile, "tensors">,
  { threads, native, given }: SidesOptions,
): Promise<((graph: Graph) => BatchShape | undefined) | undefined> {
  const cpu = await cpuTuning(platform, native, given);
  if (cpu === undefined || typeof cpu === "string") return undefined;
  const limits = await machineLimits(countedProblems(file.tensors.values()));
  return (graph) => batchTimes(cpu, graphMatmuls(graph), threads, limits);
}

/** The side that computes each phase of this model, by the times of both; a sentence: the data that is missing for that. */
export async function measuredSides(
  platform: Platform,
  file: Pick<ModelFile, "tensors" | "metadata">,
  kvType: KvDType,
  { threads, native, given }: SidesOptions,
  facts: GpuFacts,
  promptTokens: number,
): Promise<{ choice: SideChoice; notes: string[] } | string> {
  const [cpu, gpu] = [
    await cpuTuning(platform, native, given),
    await gpuTuning(platform, facts, given),
  ];
  if (cpu === undefined || gpu === undefined) {
    return 'nothing was measured here ("lantern tune -m MODEL --backend cpu,webgpu")';
  }
  if (typeof cpu === "string") return cpu;
  if (typeof gpu === "string") return gpu;
  const measured = await rememberedGpu({ adapter: gpuIdentity(facts) });
  const transfers = transferTimes(gpu) ?? (measured?.link && linkTimes(measured.link));
  if (!transfers) {
    return 'the way to the GPU was not measured ("lantern tune -m MODEL --backend webgpu")';
  }
  const found = estimateSides({
    cpu,
    gpu,
    groups: modelMatmuls(file),
    threads,
    cpuLimits: await machineLimits(countedProblems(file.tensors.values())),
    gpuLimits: measured && (() => gpuDevice(measured)),
    transfers,
    kvTokenBytes: modelKvBytes(file, kvType),
    promptTokens,
  });
  if (typeof found === "string") return found;
  return { choice: found.choice, notes: explainSides(found) };
}

/** Fewer tokens would not fill the kernels' register tiles. */
const SMALLEST_CHUNK = 8;

/**
 * Prompt tokens in a batch while others decode: as many as are computed in the time that reading the weights takes,
 * which is the first turning point of this machine's limits. undefined: it was not measured.
 */
export async function measuredChunk(
  threads: number,
): Promise<((graph: Graph, kvType: KvDType) => number | undefined) | undefined> {
  const measured = await rememberedMachine();
  if (!measured) return undefined;
  // With the rate of vectors, which kernels come close to. With that of AMX tiles, which they are far from, a batch
  // would have several times as many prompt tokens, and decoding sequences would wait for them. Half floats are
  // computed as floats.
  const { int8TileOps: _, ...machine } = measured;
  const { opsPerSecond, ...rest } = deviceAt(machine, threads);
  const device = { ...rest, opsPerSecond: { ...opsPerSecond, f16: opsPerSecond.f32 } };
  return (graph, kvType) => {
    const cost = graphModelCost(graph, kvType, 0);
    const { points } = turningPoints(cost, device, "exact");
    return points[0] && Math.max(SMALLEST_CHUNK, points[0].tokens);
  };
}

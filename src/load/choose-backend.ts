// Chooses the backend for a model: the requested one, or the first of the table that can run here. If layers were
// requested on a GPU, it makes a split backend of two. For the composition roots that hold backends: threads/serve-engine.ts
// and tools/verify/compose.ts.

import type { Backend } from "../backends/backend.ts";
import { readOverrides } from "../backends/split/overrides.ts";
import { SplitBackend } from "../backends/split/split.ts";
import type { SideChoice } from "../backends/switch/divide-batch.ts";
import { SwitchBackend } from "../backends/switch/switch.ts";
import {
  allBackends,
  type BackendEntry,
  type BackendRequest,
  backendByName,
} from "../backends/table.ts";
import { findGpu, GpuDevice, type GpuFacts } from "../backends/webgpu/device.ts";
import { ModelError, UsageError } from "../base/errors.ts";
import { show } from "../base/show.ts";
import type { Platform } from "../platform/platform.ts";
import { whyNotAuto } from "./gpu-choice.ts";

export interface BackendChoice {
  /** A name of the table; undefined: the first that can run. */
  readonly backend: string | undefined;
  /** Layers on the GPU, the output counted as one; undefined: all with a GPU backend, else none. */
  readonly gpuLayers: number | "all" | "auto" | undefined;
  /** What a GPU computes where all layers are on both sides; undefined: gpuLayers decides. */
  readonly gpuFor?: "prompt" | "generation" | "auto" | undefined;
  /** Tensors that are elsewhere than their layer. */
  readonly overrideTensors?: readonly string[] | undefined;
  readonly cpuExperts?: number | "all" | undefined;
  /** Experts of each layer that lie in GPU memory at a time; undefined: all. */
  readonly expertSlots?: number | undefined;
}

export interface ChosenBackend {
  readonly backend: Backend;
  readonly usesGpu: boolean;
}

/** The tuned settings for a GPU, if it was tuned. */
export type TunedGpuLookup = (facts: GpuFacts) => Promise<BackendRequest["tunedGpu"]>;

/** Which side computes what, by measured times, and why; a sentence: why that is not known. */
export type MeasuredSides = (
  facts: GpuFacts,
  promptTokens: number,
) => Promise<{ readonly choice: SideChoice; readonly notes: readonly string[] } | string>;

/** What measurements of this machine say, where there are any. */
export interface MeasuredLookups {
  readonly tunedGpu?: TunedGpuLookup | undefined;
  readonly sides?: MeasuredSides | undefined;
}

/** Makes the backend; `request` is for the backend on the processor. */
export async function chooseBackend(
  choice: BackendChoice,
  request: BackendRequest,
  platform: Platform,
  measured: MeasuredLookups = {},
): Promise<ChosenBackend> {
  const names = allBackends().map(({ name }) => name);
  if (choice.backend !== undefined && !names.includes(choice.backend)) {
    throw new UsageError(
      `backend: got ${show(choice.backend)}, expected one of ${names.join(", ")}`,
    );
  }
  if (choice.gpuFor !== undefined && choice.gpuLayers !== undefined) {
    throw new UsageError(
      `gpuFor: got ${show(choice.gpuFor)} beside gpuLayers ${show(choice.gpuLayers)}. gpuFor has all layers on both sides: give one of them`,
    );
  }
  const overrides = readOverrides(choice);
  if (choice.gpuFor !== undefined && overrides.length > 0) {
    throw new UsageError(
      `gpuFor: got ${show(choice.gpuFor)} beside ${overrides[0]!.text}. gpuFor has all tensors on both sides: leave out gpuFor, or overrideTensors and cpuExperts`,
    );
  }
  const named = choice.backend === undefined ? undefined : backendByName(choice.backend);
  const isAuto = choice.gpuFor === "auto";
  const usesAll = named?.usesGpu || choice.gpuFor !== undefined;
  const usual = isAuto || overrides.length > 0 ? "auto" : 0;
  const layers = choice.gpuLayers ?? (usesAll && !isAuto ? "all" : usual);
  const device = named?.usesGpu ? named : allBackends().find(({ usesGpu }) => usesGpu);
  const hostName = named?.usesGpu ? undefined : named?.name;
  const needsGpu = layers !== 0 || overrides.some(({ side }) => side === "back");
  if (choice.expertSlots !== undefined && (!needsGpu || request.exact)) {
    const why = needsGpu ? "exact GPU kernels have no experts" : "nothing is on a GPU";
    throw new UsageError(
      `expertSlots: got ${show(choice.expertSlots)}, but ${why}. Give gpuLayers "all" and no exact, or leave out expertSlots`,
    );
  }
  if (!needsGpu || !device) return { backend: await host(hostName, request), usesGpu: false };
  if (request.exact) checkExact(hostName, request.level);
  const access = await platform.gpu();
  const softwareOnly = typeof access !== "string" && access.softwareOnly;
  const reason = layers === "auto" ? whyNotAuto(await findGpu(access), softwareOnly) : undefined;
  if (reason !== undefined) {
    const notes = [...(request.notes ?? []), `no layers on a GPU: ${reason}`];
    return { backend: await host(hostName, { ...request, notes }), usesGpu: false };
  }
  const gpu = await GpuDevice.open(access);
  const tunedGpu = await measured.tunedGpu?.(gpu.facts);
  const { expertSlots } = choice;
  const deviceRequest = { ...request, gpu, expertSlots, ...(tunedGpu && { tunedGpu }) };
  const both = {
    host: await host(hostName, { ...request, files: undefined, ram: undefined }), // each weight is read once, for both
    device: await made(device, deviceRequest),
  };
  if (choice.gpuFor === undefined) {
    return { backend: new SplitBackend({ ...both, layers, overrides }), usesGpu: true };
  }
  const { device: onGpu } = both;
  const sides = isAuto
    ? ((await measured.sides?.(gpu.facts, onGpu.batchTokens ?? 1)) ?? "nothing was measured here")
    : { choice: choice.gpuFor === "prompt" ? promptOnGpu : generationOnGpu, notes: [] };
  return takingTurns(both, sides);
}

const promptOnGpu: SideChoice = { prompt: 1, generation: 0 };
const generationOnGpu: SideChoice = { prompt: 0, generation: 1 };

/** Two backends where that was found to gain; otherwise one of them, and the other is disposed of. */
function takingTurns(
  both: { readonly host: Backend; readonly device: Backend },
  sides: Awaited<ReturnType<MeasuredSides>>,
): ChosenBackend {
  if (typeof sides === "string") {
    const notes = [`all layers on the GPU, for prompts and generated tokens: ${sides}`];
    return { backend: new SplitBackend({ ...both, layers: "auto", notes }), usesGpu: true };
  }
  const { choice, notes } = sides;
  if (choice.prompt !== choice.generation) {
    return { backend: new SwitchBackend({ ...both, choice, notes }), usesGpu: true };
  }
  const layers = choice.prompt === 1 ? "auto" : 0;
  return { backend: new SplitBackend({ ...both, layers, notes }), usesGpu: layers !== 0 };
}

/** Whose bits a GPU is to compute: those of the tiled kernels. Plain TypeScript and opt level 2 add up in other orders. */
function checkExact(hostName: string | undefined, level: BackendRequest["level"]): void {
  const other = hostName !== undefined && hostName !== "cpu";
  if (!other && level >= 3) return;
  const got = other ? `backend ${show(hostName)}` : `opt level ${level}`;
  throw new UsageError(
    `exact: a GPU can compute the bits of backend "cpu" at opt levels 3 and 4, got ${got}. Leave it out, or open the model without exact`,
  );
}

/** The requested backend, or the first of the table that can run on the processor. */
async function host(name: string | undefined, request: BackendRequest): Promise<Backend> {
  const refusals: string[] = [];
  for (const entry of allBackends()) {
    if (name !== undefined && entry.name !== name) continue;
    const answer = entry.available(request);
    if (answer === true) return await created(entry, request);
    refusals.push(`${entry.name}: ${answer}`);
  }
  throw new ModelError(`no backend can run here:\n  ${refusals.join("\n  ")}`);
}

async function made(entry: BackendEntry, request: BackendRequest): Promise<Backend> {
  const answer = entry.available(request);
  if (answer === true) return await created(entry, request);
  throw new ModelError(`backend "${entry.name}" cannot run here: ${answer}`);
}

async function created(entry: BackendEntry, request: BackendRequest): Promise<Backend> {
  await entry.ready?.();
  return entry.create(request);
}

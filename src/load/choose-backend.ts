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
import { streamFiles } from "../backends/webgpu/stream/stream-source.ts";
import { ModelError, OptionError, UsageError } from "../base/errors.ts";
import { show } from "../base/show.ts";
import type { Platform } from "../platform/platform.ts";
import { whyNotAuto } from "./gpu-choice.ts";
import {
  knownUseless,
  noOffload,
  type Offload,
  type OffloadKey,
  type OffloadWish,
  offloading,
  whyNoOffload,
} from "./offload.ts";

export interface BackendChoice {
  /** A name of the table; undefined: the first that can run. */
  readonly backend?: string | undefined;
  /** Layers on the GPU, the output counted as one; undefined: all with a GPU backend, else none. */
  readonly gpuLayers?: number | "all" | "auto" | undefined;
  /** No more than these on the GPU: it had no memory for one more. */
  readonly mostGpuLayers?: number | undefined;
  /** The GPU's phases if all layers are on both sides; undefined: gpuLayers decides. */
  readonly gpuFor?: "prompt" | "generation" | "auto" | undefined;
  /** Tensors that are elsewhere than their layer. */
  readonly overrideTensors?: readonly string[] | undefined;
  readonly cpuExperts?: number | "all" | undefined;
  /** Experts of each layer that lie in GPU memory at a time; undefined: all. */
  readonly expertSlots?: number | undefined;
  /** The share of the neurons of ReLU networks that is on the GPU; undefined or 0: none by itself. */
  readonly hotNeurons?: number | undefined;
  /** Notes on the split, for --explain. Decisions after the model is loaded are added to this list. */
  readonly splitNotes?: string[] | undefined;
  /** Whether a GPU computes prompts of layers on the processor; undefined: where that was measured to be faster. */
  readonly opOffload?: OffloadWish;
}

export interface ChosenBackend {
  readonly backend: Backend;
  /** Warnings about options that are not used as asked. Default: none. */
  readonly warnings?: readonly string[];
  readonly usesGpu: boolean;
  /** To be decided once the weights are there. */
  readonly offload?: Offload;
  /** Layers are on both sides, or may be. */
  readonly split?: SplitBackend;
}

/** The tuned settings for a GPU, if it was tuned. */
export type TunedGpuLookup = (facts: GpuFacts) => Promise<BackendRequest["tunedGpu"]>;

/** The work of each side, by measured times, and why; a sentence: why that is not known. */
export type MeasuredSides = (
  facts: GpuFacts,
  promptTokens: number,
) => Promise<{ readonly choice: SideChoice; readonly notes: readonly string[] } | string>;

/** The results of measurements on this machine, if there are any. */
export interface MeasuredLookups {
  readonly tunedGpu?: TunedGpuLookup | undefined;
  readonly sides?: MeasuredSides | undefined;
  /** The key of the model and the processor's kernels for stored times; undefined: nothing is measured. */
  readonly offloadKey?: Omit<OffloadKey, "layers"> | undefined;
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
    throw new OptionError("backend", choice.backend, `one of ${names.join(", ")}`);
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
  const hotNeurons = choice.hotNeurons || undefined;
  if (hotNeurons !== undefined && (choice.gpuFor !== undefined || request.exact)) {
    const why = request.exact
      ? "halves of a network add up in another order"
      : "gpuFor has all neurons on both sides";
    throw new UsageError(
      `hotNeurons: got ${show(hotNeurons)} beside ${request.exact ? "exact" : "gpuFor"}: ${why}. Leave out one of them`,
    );
  }
  const isAuto = choice.gpuFor === "auto";
  const usesAll = named?.usesGpu || choice.gpuFor !== undefined;
  const isCut = overrides.length > 0 || hotNeurons !== undefined;
  const usual = isAuto || isCut ? "auto" : 0;
  const layers = choice.gpuLayers ?? (usesAll && !isAuto ? "all" : usual);
  const device = named?.usesGpu ? named : allBackends().find(({ usesGpu }) => usesGpu);
  const hostName = named?.usesGpu ? undefined : named?.name;
  const isDemanded = choice.opOffload === true && choice.gpuFor === undefined;
  const needsGpu =
    isDemanded ||
    layers !== 0 ||
    hotNeurons !== undefined ||
    overrides.some(({ side }) => side === "back");
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
  // A GPU that had too little memory was taken before.
  const { mostGpuLayers: most } = choice;
  const reason =
    layers === "auto" && most === undefined
      ? whyNotAuto(await findGpu(access), softwareOnly)
      : undefined;
  if (reason !== undefined) {
    const notes = [...(request.notes ?? []), `no layers on a GPU: ${reason}`];
    const named = overrides.filter(({ side }) => side === "back").map(({ text }) => text);
    const asked = hotNeurons === undefined ? named : [...named, `hotNeurons ${hotNeurons}`];
    const warnings = asked.map(
      (one) => `${one}: no GPU can be used (${reason}), so the processor computes that, too`,
    );
    return { backend: await host(hostName, { ...request, notes }), usesGpu: false, warnings };
  }
  const gpu = await GpuDevice.open(access);
  const tunedGpu = await measured.tunedGpu?.(gpu.facts);
  const { expertSlots } = choice;
  const deviceRequest = { ...request, gpu, expertSlots, ...(tunedGpu && { tunedGpu }) };
  /** The GPU that computes prompts for the host; undefined: none, and `notes` say why. */
  const offloadFor = async (notes: string[]): Promise<Offload | undefined> => {
    const wish = choice.opOffload;
    const no = (why: string): undefined => {
      if (wish) throw noOffload(why);
      notes.push(`op offload: no: ${why}`);
    };
    if (layers === "all") return undefined;
    const why = whyNoOffload(wish, gpu.facts, request, isCut);
    if (why !== undefined) return no(why);
    const key = measured.offloadKey && { ...measured.offloadKey, layers };
    if (!key && !wish) return no("measurements of this machine are switched off");
    const useless = key && !wish ? await knownUseless(gpu.facts, key, platform) : undefined;
    if (useless !== undefined) return no(useless);
    // A device of its own: streamed weights do not wait for the commands of the other layers.
    const stream = streamFiles(request.files);
    const own = {
      ...deviceRequest,
      gpu: await GpuDevice.open(access),
      stream,
      expertSlots: undefined,
    };
    const helper = { host: both.host, device: await made(device, own) };
    return offloading(helper, wish, gpu.facts, key ?? unnamed, platform);
  };
  const both = {
    host: await host(hostName, { ...request, files: undefined, ram: undefined }), // each weight is read once, for both
    device: await made(device, deviceRequest),
  };
  if (choice.gpuFor === undefined) {
    const notes = choice.splitNotes ?? [];
    const offload = await offloadFor(notes);
    const host = offload?.backend ?? both.host;
    const backend = new SplitBackend({ ...both, host, layers, most, overrides, hotNeurons, notes });
    return { backend, usesGpu: true, split: backend, ...(offload && { offload }) };
  }
  const { device: onGpu } = both;
  const sides = isAuto
    ? ((await measured.sides?.(gpu.facts, onGpu.batchTokens ?? 1)) ?? "nothing was measured here")
    : { choice: choice.gpuFor === "prompt" ? promptOnGpu : generationOnGpu, notes: [] };
  return takingTurns(both, sides);
}

/** The key for a demanded offload: no time is looked up. */
const unnamed: OffloadKey = { model: "", cpu: "", threads: 0, kernels: "", layers: 0 };

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

/**
 * Checks that a GPU can compute the bits of the host's kernels: the tiled ones. Plain TypeScript and opt level 2 add up in other
 * orders.
 */
function checkExact(hostName: string | undefined, level: BackendRequest["level"]): void {
  const other = hostName !== undefined && hostName !== "cpu";
  if (!other && level >= 3) return;
  const got = other ? `backend ${show(hostName)}` : `opt level ${level}`;
  throw new UsageError(
    `exact: a GPU can compute the bits of \`backend: "cpu"\` at opt levels 3 and 4, got ${got}. Leave it out, or give \`exact: false\``,
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

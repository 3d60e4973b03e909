// Puts a model on the GPU and measures its layers in one dispatch (layer-tune.ts). Part of compose-gpu.ts.
//
// The whole model with its own weights: a large cache would hold a few layers, which a token of the model reads from memory.

import type { Backend } from "../backends/backend.ts";
import { backendByName } from "../backends/table.ts";
import type { GpuDevice, GpuFacts } from "../backends/webgpu/device.ts";
import { canRepeat } from "../backends/webgpu/layers.ts";
import { canWait, type GpuTuningControls, type Tuning } from "../backends/webgpu/tuning.ts";
import { asHalves } from "../formats/half-weights.ts";
import type { ModelFile } from "../formats/model-file.ts";
import type { Graph } from "../graph/graph.ts";
import { makePlan } from "../graph/plan.ts";
import { weightReader } from "../graph/weight-source.ts";
import { locate } from "../load/locate.ts";
import { withModelFile } from "../load/model-file.ts";
import { buildModel, DEFAULT_CONTEXT } from "../models/build.ts";
import type { Platform } from "../platform/platform.ts";
import type { TunedLayers } from "./layer-lines.ts";
import { layerCapacity, layerLimits, runLayerTune } from "./layer-tune.ts";
import type { TuneOptions } from "./options.ts";

export interface ModelLayersPlan {
  readonly model: string | URL;
  readonly weights?: TuneOptions["weights"] | undefined;
  /** The tuning of the model without layers in one dispatch. */
  readonly tuning: Tuning;
  readonly rounds: number;
  /** Called with the part that is done; throws if the work should stop. */
  report(share: number): Promise<void>;
}

/** The part of the time in which weights are read. */
const LOAD_SHARE = 0.2;
/** Tokens before those that are timed, where the model was trained for as many. */
const CONTEXTS: readonly [number, number] = [16, 512];

/** Measured layers, or a sentence why nothing was measured. */
export async function tuneModelLayers(
  plan: ModelLayersPlan,
  platform: Platform,
  facts: GpuFacts,
  openGpu: () => Promise<GpuDevice>,
): Promise<TunedLayers | string> {
  if (!canWait(facts)) return "this GPU's subgroups have fewer than 32 lanes";
  const { kind } = platform.describeSource(await locate(plan.model, platform));
  if (kind === "url") return "the model is not on this machine";
  return await withModelFile(plan.model, async (stored) => {
    const check = () => plan.report(0);
    const file = plan.weights
      ? (await asHalves(stored, { progress: () => {}, check })).file
      : stored;
    const { graph, config } = buildModel(file);
    if (!graph.outputs.logits) return "the model has no logits";
    if (!canRepeat(graph)) return "the model has recurrent state";
    const { context = DEFAULT_CONTEXT } = config;
    const [short, long] = CONTEXTS.map((tokens) => Math.max(1, Math.min(tokens, context - 1)));
    return await measureOn(await openGpu(), graph, file, [short!, long!], plan);
  });
}

async function measureOn(
  gpu: GpuDevice,
  graph: Graph,
  file: ModelFile,
  contexts: readonly [number, number],
  { tuning, rounds, report }: ModelLayersPlan,
): Promise<TunedLayers | string> {
  const entry = backendByName("webgpu")!;
  await entry.ready?.();
  gpu.layerGroups = 0; // retune() decides the kernels to compile
  const made = entry.create({ level: 3, threads: 1, startThread: undefined, gpu });
  const backend = made as Backend & GpuTuningControls;
  try {
    const refusal = graph.nodes.map((node) => backend.supports(node)).find((is) => is !== true);
    if (refusal) return refusal;
    const graphPlan = makePlan(graph, layerLimits);
    const room = layerCapacity(graph, contexts);
    if (backend.fits && !(await backend.fits(graphPlan, room))) {
      return "the model does not fit into the GPU's memory";
    }
    await backend.prepare(graphPlan, room);
    for (const [i, weight] of graph.weights.entries()) {
      await report((LOAD_SHARE * i) / graph.weights.length);
      await backend.upload(
        weight,
        weightReader(weight, async (name, target, at) => {
          await file.readTensor(file.tensors.get(name)!, target, at);
        }),
      );
    }
    const rest = (share: number) => report(LOAD_SHARE + (1 - LOAD_SHARE) * share);
    return await runLayerTune({ graph, backend, gpu, tuning, contexts, rounds, report: rest });
  } finally {
    backend.dispose();
    await backend.ended?.();
  }
}

// The composition root of verify(): opens the model's file, makes the reference and the requested backends, and calls
// the tool.

import type { ModelLocation } from "../../api/api.ts";
import { evenCapacity } from "../../backends/backend.ts";
import { allBackends, type BackendRequest } from "../../backends/table.ts";
import { findGpu } from "../../backends/webgpu/device.ts";
import { UsageError } from "../../base/errors.ts";
import { checkOptionNames, type OptionNames } from "../../base/options.ts";
import { show } from "../../base/show.ts";
import { heldTypesText, isHeldType } from "../../dtypes/held-types.ts";
import { type KvDType, kvDTypeOf } from "../../dtypes/kv-types.ts";
import { checkKvType, checkMemory } from "../../engine/memory.ts";
import { asHalves, halfWarnings } from "../../formats/half-weights.ts";
import type { ModelFile } from "../../formats/model-file.ts";
import { openModelFile } from "../../formats/open-model-file.ts";
import { KV_BLOCK_TOKENS } from "../../graph/batch.ts";
import { kvTokenBytes } from "../../graph/cost.ts";
import { type Graph, isBidirectional, kvGroups } from "../../graph/graph.ts";
import { makePlan } from "../../graph/plan.ts";
import { weightReader } from "../../graph/weight-source.ts";
import { type BackendChoice, chooseBackend } from "../../load/choose-backend.ts";
import { tokenizerOf } from "../../load/compose.ts";
import { locate } from "../../load/locate.ts";
import { chooseOptLevel } from "../../machine/native.ts";
import { buildModel } from "../../models/build.ts";
import { currentPlatform } from "../../platform/current.ts";
import type { Platform } from "../../platform/platform.ts";
import type { VerifyOptions } from "./options.ts";
import { blocksFor, checkSignal, type Verification, verifyBackends } from "./verify.ts";

const defaultPrompt =
  "Once upon a time, there was a little girl named Lily. She loved to play outside in the park with her friends";
const DEFAULT_TOKENS = 12;
const DEFAULT_TOLERANCE = 1e-4;
/** Tokens that are computed one by one, after the others in one batch, because other kernels compute them. */
const SINGLE_TOKENS = 2;
/** The most tokens: GPUs have other kernels for batches of more than 64. */
const MOST_TOKENS = 256;

const knownOptions: OptionNames<VerifyOptions> = {
  backends: true,
  gpuLayers: true,
  layers: true,
  prompt: true,
  tokens: true,
  kvType: true,
  weights: true,
  tolerance: true,
  threads: true,
  level: true,
  signal: true,
  onProgress: true,
};

export async function verifyModel(
  model: ModelLocation,
  options: VerifyOptions,
): Promise<Verification> {
  checkOptions(options);
  const platform = await currentPlatform();
  const spec = platform.describeSource(await locate(model, platform));
  const file = await openModelFile(await platform.openModelSource(spec));
  try {
    const { file: wanted, warnings } = await held(file, options);
    const result = await verifyFile(wanted, options, platform);
    return warnings.length > 0 ? { ...result, warnings } : result;
  } finally {
    await file.close();
  }
}

/** The file with its weights in the wanted type, and the warnings about that. */
async function held(
  file: ModelFile,
  { weights, signal, onProgress }: VerifyOptions,
): Promise<{ file: ModelFile; warnings: string[] }> {
  if (weights === undefined) return { file, warnings: [] };
  const halves = await asHalves(file, {
    progress: (done, total) => onProgress?.("weights as f16", done, total),
    check: () => checkSignal(signal),
  });
  return { file: halves.file, warnings: halfWarnings(halves) };
}

async function verifyFile(
  file: ModelFile,
  options: VerifyOptions,
  platform: Platform,
): Promise<Verification> {
  const { config, graph } = buildModel(file);
  const kvType = kvDTypeOf(options.kvType ?? "f32");
  checkShape(options, config.layers, graph, kvType);
  const tokens = promptTokens(file, options);
  // If tokens attend in both directions, a text is one batch.
  const batches = isBidirectional(graph) ? [tokens.length] : batchesOf(tokens.length);
  const most = Math.max(...batches);
  const plan = makePlan(graph, { maxTokens: most, maxOutputs: most });
  const kv = evenCapacity(blocksFor(tokens.length), kvType, kvGroups(graph).length);
  const bytesPerToken = kvTokenBytes(graph, kvType); // windows are not made use of here
  const request: BackendRequest = {
    ...(await chooseOptLevel({ level: options.level }, platform)),
    threads: options.threads ?? platform.cores,
    startThread: () => platform.startThread("compute"),
  };
  const make = async (choice: BackendChoice) => {
    const { backend } = await chooseBackend(choice, request, platform);
    checkMemory(backend.measure(plan, kv), {
      model: file.name,
      backend: backend.name,
      contextSize: tokens.length,
      kvType,
      state: { kv: [{ bytesPerToken, blockTokens: KV_BLOCK_TOKENS }], recurrentBytes: 0 },
      availableBytes: platform.availableMemory(),
    });
    return backend;
  };
  const names = options.backends ?? (await usualBackends(platform));
  return await verifyBackends({
    plan,
    kv,
    tokens,
    batches,
    tolerance: options.tolerance ?? DEFAULT_TOLERANCE,
    layers: options.layers && new Set(options.layers),
    readWeight: (weight) =>
      weightReader(weight, (name, target, at) =>
        file.readTensor(file.tensors.get(name)!, target, at),
      ),
    reference: () => make({ backend: oracle(), gpuLayers: 0 }),
    backends: names.map((name) => ({
      name,
      create: () => make({ backend: name, gpuLayers: usesGpu(name) ? options.gpuLayers : 0 }),
    })),
    yieldThread: async () => {
      await platform.yieldThread();
      checkSignal(options.signal);
    },
    progress: options.onProgress ?? (() => {}),
  });
}

/** The last backend of the table can compute everything, slowly; the others are compared with it. */
function oracle(): string {
  return allBackends().at(-1)!.name;
}

function usesGpu(name: string): boolean {
  return allBackends().some((entry) => entry.name === name && entry.usesGpu);
}

/** All but the reference; GPU backends only if there is a GPU. */
async function usualBackends(platform: Platform): Promise<string[]> {
  const hasGpu = typeof (await findGpu(await platform.gpu())) !== "string";
  return allBackends()
    .filter((entry) => entry.name !== oracle() && (hasGpu || !entry.usesGpu))
    .map(({ name }) => name);
}

function promptTokens(file: ModelFile, options: VerifyOptions): number[] {
  const most = options.tokens ?? DEFAULT_TOKENS;
  const tokenizer = tokenizerOf(file);
  // As often as it takes: a sentence has more tokens than this, in every vocabulary.
  const story = Array.from({ length: Math.ceil(most / 8) }, () => defaultPrompt).join(". ");
  const tokens = tokenizer.encode(options.prompt ?? story).slice(0, most);
  if (tokens.length > 0) return tokens;
  throw new UsageError("verify(): prompt: got a text without tokens, expected at least one token");
}

function batchesOf(tokens: number): number[] {
  const single = Math.min(SINGLE_TOKENS, tokens - 1);
  return [tokens - single, ...Array.from({ length: single }, () => 1)];
}

function checkOptions(options: VerifyOptions): void {
  checkOptionNames("verify()", options, knownOptions);
  const names = allBackends().map(({ name }) => name);
  for (const name of options.backends ?? []) {
    if (names.includes(name)) continue;
    throw new UsageError(`backends: got ${name}, expected some of ${names.join(", ")}`);
  }
  if (options.weights !== undefined && !isHeldType(options.weights)) {
    throw new UsageError(`weights: got ${show(options.weights)}, expected ${heldTypesText}`);
  }
  const { tolerance = DEFAULT_TOLERANCE, tokens = DEFAULT_TOKENS } = options;
  if (!(tolerance > 0)) {
    throw new UsageError(`tolerance: got ${tolerance}, expected a number above 0`);
  }
  if (!(Number.isSafeInteger(tokens) && tokens >= 1 && tokens <= MOST_TOKENS)) {
    throw new UsageError(`tokens: got ${tokens}, expected a whole number from 1 to ${MOST_TOKENS}`);
  }
}

function checkShape(options: VerifyOptions, layers: number, graph: Graph, kvType: KvDType): void {
  const unknown = options.layers?.find((layer) => !(layer >= 0 && layer < layers));
  if (unknown !== undefined) {
    throw new UsageError(`layers: got ${unknown}, but this model has layers 0 to ${layers - 1}`);
  }
  checkKvType(kvType, graph);
}

// Makes the ModelInfo of a loaded model, once, when it is loaded.

import type { HeldWeights, ModelInfo } from "../api/api.ts";
import type { Backend, KvCacheOptions, LayerPlace } from "../backends/backend.ts";
import { fileTypeName } from "../base/file-type-names.ts";
import { kvTypeName } from "../dtypes/kv-types.ts";
import { KV_BLOCK_TOKENS } from "../graph/batch.ts";
import { kvTokenBytes, weightBytes, weightElements } from "../graph/cost.ts";
import { type Graph, isBidirectional, layerCount } from "../graph/graph.ts";
import type { Plan } from "../graph/plan.ts";
import { tensorOf } from "../graph/weight-source.ts";
import type { ModelConfig } from "../models/arch.ts";
import { classifierLabels, filePooling } from "../models/pooling.ts";
import type { Tokenizer } from "../tokenizers/tokenizer.ts";
import type { EngineParts } from "./engine-parts.ts";
import { shortNotes } from "./short-notes.ts";
import { cacheBytes, stateKinds } from "./state/state-kinds.ts";

export function describeModel(
  parts: EngineParts,
  config: ModelConfig,
  { graph, limits }: Plan,
  contextSize: number,
  kv: KvCacheOptions,
  heldAs?: HeldWeights,
): ModelInfo {
  return {
    name: parts.metadata.string("general.name") ?? parts.name,
    format: parts.format,
    architecture: config.architecture,
    parameters: graph.weights
      .filter((weight) => tensorOf(weight) !== undefined)
      .reduce((sum, weight) => sum + weightElements(weight), 0),
    weightType: weightType(parts, graph, (heldAs?.matrices ?? 0) > 0),
    weightBytes: bytesOf(graph),
    kvType: kvTypeName(kv.dtype),
    kvBytesPerToken: kvTokenBytes(graph, kv.dtype),
    stateBytes: cacheBytes(stateKinds(graph, limits), kv),
    contextSize,
    cacheTokens: kv.tableLength * KV_BLOCK_TOKENS,
    trainedContext: config.trainedContext,
    vocabSize: config.vocabSize,
    layers: config.layers,
    hasChatTemplate: parts.template !== undefined,
    longestToken: parts.tokenizer.longestToken,
    ...(parts.tokenizer.fill && { fillTokens: parts.tokenizer.fill }),
    ...specialTexts(parts.tokenizer),
    ...(parts.template && { chatTemplate: parts.template.source }),
    generates: graph.outputs.logits !== undefined && !isBidirectional(graph),
    ...embeddingInfo(parts, graph),
    backend: {
      name: parts.backend.name,
      threads: parts.backend.threads,
      ...(parts.backend.kernels !== undefined && { kernels: parts.backend.kernels }),
      placement: [...(parts.backend.placement?.() ?? [everything(parts.backend, graph)])],
      notes: shortNotes(parts.backend.explain()),
      ...(parts.isTuned && { isTuned: true }),
    },
  };
}

function embeddingInfo({ metadata }: EngineParts, graph: Graph): Pick<ModelInfo, "embedding"> {
  const { hidden, scores } = graph.outputs;
  if (!hidden) return {};
  const pooling = filePooling(metadata) ?? "mean";
  const labels = scores && classifierLabels(metadata);
  return { embedding: { size: hidden.cols, pooling, ...(labels && { labels }) } };
}

/**
 * The file's own type. Matrices that are held in another type, and files that name none, have the type with the most
 * bytes in the layers: in a small model the embedding and the output matrix are larger, and of another type.
 */
function weightType({ metadata }: EngineParts, { weights }: Graph, isHeld: boolean): string {
  const id = isHeld ? undefined : metadata.number("general.file_type");
  const named = id === undefined ? undefined : fileTypeName(id);
  if (named !== undefined) return named.toLowerCase();
  const inLayers = weights.filter(({ name, shape }) => name.startsWith("blk.") && shape.length > 1);
  const bytesByType = new Map<string, number>();
  for (const weight of inLayers.length > 0 ? inLayers : weights) {
    const { name } = weight.dtype;
    bytesByType.set(name, (bytesByType.get(name) ?? 0) + weightBytes(weight));
  }
  const [[most]] = [...bytesByType].sort((a, b) => b[1] - a[1]) as [[string, number]];
  return most;
}

function bytesOf({ weights }: Graph): number {
  return weights.reduce((sum, weight) => sum + weightBytes(weight), 0);
}

function specialTexts(
  tokenizer: Tokenizer,
): Pick<ModelInfo, "endTokens" | "bosToken" | "eosToken"> {
  const { bos, eos } = tokenizer.special;
  return {
    endTokens: [...tokenizer.endTokens].sort((a, b) => a - b),
    bosToken: bos === undefined ? "" : tokenizer.tokenText(bos),
    eosToken: eos === undefined ? "" : tokenizer.tokenText(eos),
  };
}

function everything({ name }: Backend, graph: Graph): LayerPlace {
  return {
    backend: name,
    firstLayer: 0,
    layers: layerCount(graph),
    hasOutput: true,
    weightBytes: bytesOf(graph),
    isDevice: false,
  };
}

// Warnings about a model's options that are not used as asked, for the user. Nothing is refused here.

import type { Graph } from "../graph/graph.ts";
import { reluNetworks } from "../graph/relu-networks.ts";
import type { ModelConfig } from "../models/arch.ts";

/** The part of EngineOptions that warnings depend on. */
interface LoadRequest {
  readonly contextSize: number | undefined;
  readonly warnings?: readonly string[] | undefined;
  readonly wantsZeros?: boolean;
}

/** As in llama-server: a context above the trained one is reduced to it, with a warning. */
export function warningsOf(
  { trainedContext }: ModelConfig,
  { contextSize = 0, warnings: given = [], wantsZeros = false }: LoadRequest,
  graph: Graph,
): string[] {
  const isDense = wantsZeros && reluNetworks(graph.nodes).length === 0;
  const dense =
    "sparse: on is ignored: no network of this model has a ReLU, so no neuron is zero. All are computed";
  const warnings = [...given, ...(isDense ? [dense] : [])];
  if (contextSize <= trainedContext) return warnings;
  return [
    ...warnings,
    `a context of ${contextSize} tokens was asked for, but this model was trained for ${trainedContext} and writes nonsense beyond that: its context holds ${trainedContext}`,
  ];
}

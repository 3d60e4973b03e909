// What running a model needs, from its graph alone: weights, KV cache, working memory.

import { bytesFor, type DType } from "../dtypes/dtype.ts";
import { weightBytes } from "../graph/cost.ts";
import type { Graph } from "../graph/graph.ts";
import { makePlan, type PlanLimits, planBytes } from "../graph/plan.ts";
import type { ModelConfig } from "../models/arch.ts";

/** Tokens computed in one step while reading a prompt; a step is also how long an abort may take. */
export const STEP_LIMITS: PlanLimits = { maxTokens: 32, maxOutputs: 32 };

/** A model trained for 128k tokens does not need a cache for 128k unless it is asked to. */
const DEFAULT_CONTEXT = 4096;

export interface MemoryEstimate {
  weightBytes: number;
  kvBytesPerToken: number;
  contextSize: number;
  kvBytes: number;
  activationBytes: number;
  totalBytes: number;
}

export function defaultContext(config: ModelConfig): number {
  return Math.min(config.trainedContext, DEFAULT_CONTEXT);
}

export function estimateMemory(graph: Graph, contextSize: number, kvType: DType): MemoryEstimate {
  const weights = graph.weights.reduce((sum, weight) => sum + weightBytes(weight), 0);
  const kvBytesPerToken = 2 * graph.kv.layers * bytesFor(kvType, graph.kv.cols);
  const kvBytes = kvBytesPerToken * contextSize;
  const activationBytes = planBytes(makePlan(graph, STEP_LIMITS));
  return {
    weightBytes: weights,
    kvBytesPerToken,
    contextSize,
    kvBytes,
    activationBytes,
    totalBytes: weights + kvBytes + activationBytes,
  };
}

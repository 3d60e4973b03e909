// The memory that a model needs (weights, KV cache, working memory), and whether the machine has it. Checked before
// anything is read.

import type { MemoryEstimate } from "../api/api.ts";
import type { Backend, MemoryNeed } from "../backends/backend.ts";
import { memoryText } from "../base/byte-sizes.ts";
import { MemoryError, OptionError, UsageError } from "../base/errors.ts";
import { bitsPerWeight, type DType } from "../dtypes/dtype.ts";
import { isKvType, type KvDType, kvPair, kvTypeName, kvTypesText } from "../dtypes/kv-types.ts";
import { KV_BLOCK_TOKENS } from "../graph/batch.ts";
import { kvTokenBytes, weightBytes } from "../graph/cost.ts";
import { type Graph, isBidirectional, kvStates } from "../graph/graph.ts";
import { idleElements } from "../graph/idle-weights.ts";
import { makePlan, type PlanLimits, planBytes } from "../graph/plan.ts";
import { type StateSize, stateBytes, tokensThatFit } from "../limits/memory.ts";
import type { ModelConfig } from "../models/arch.ts";
import { DEFAULT_CONTEXT } from "../models/build.ts";
import { stateSize } from "./state/state-kinds.ts";

/** Tokens per prefill batch. An abort may have to wait for one batch. */
export const BATCH_LIMITS: PlanLimits = { maxTokens: 32, maxOutputs: 32 };

/** Tokens that an expert should have in a batch of a prompt: its weights are read for them once, in full register tiles. */
const EXPERT_TOKENS = 16;

/** Tokens of a batch, of which the results of one are read. */
const OUTPUT_SHARE = 8;

/**
 * The largest batch of a graph on a backend. A text whose tokens attend in both directions is computed in one batch, which
 * therefore holds a whole context; results of all its tokens may be read. Tokens share an expert's weights only if they use it, so
 * models with experts have larger batches, up to the backend's limit: until an expert has EXPERT_TOKENS on average.
 */
export function batchLimits(
  graph: Graph,
  contextSize: number,
  {
    batchTokens = BATCH_LIMITS.maxTokens,
    mostBatchTokens = batchTokens,
  }: Pick<Backend, "batchTokens" | "mostBatchTokens"> = {},
): PlanLimits {
  if (isBidirectional(graph)) {
    const maxTokens = Math.max(contextSize, batchTokens);
    return { maxTokens, maxOutputs: maxTokens };
  }
  const wanted = graph.nodes.map((node) =>
    node.op === "matmul_id" ? (EXPERT_TOKENS * node.weight.shape[0]!) / (node.routes.cols / 2) : 0,
  );
  const tokens = Math.ceil(Math.max(0, ...wanted) / KV_BLOCK_TOKENS) * KV_BLOCK_TOKENS;
  return {
    // The outputs of as many generating users, if batches are large.
    maxOutputs: Math.max(BATCH_LIMITS.maxOutputs, Math.floor(batchTokens / OUTPUT_SHARE)),
    maxTokens: Math.max(batchTokens, Math.min(tokens, mostBatchTokens)),
  };
}

/** The bits of a value in the smallest types of a KV cache. */
const SMALLEST_KV_BITS = 4.5;

/** Smaller contexts are never suggested. */
const SMALLEST_CONTEXT = 128;

export function chooseContext(
  { trainedContext }: ModelConfig,
  asked: number = DEFAULT_CONTEXT,
): number {
  if (!Number.isInteger(asked) || asked < 1) {
    throw new OptionError("contextSize", asked, "a whole number above 0");
  }
  return Math.min(asked, trainedContext); // beyond the trained context, models generate nonsense
}

/** The bytes of one context as a function of its tokens, for batches of the usual size. */
export function sequenceState(graph: Graph, kvType: KvDType): StateSize {
  return stateSize(graph, BATCH_LIMITS, kvType);
}

/** The parameters of a file that a token reads: of experts, only the ones it uses. */
export function activeParameters(graph: Graph, parameters: number): number {
  return parameters - idleElements(graph);
}

export function estimateMemory(graph: Graph, contextSize: number, kvType: KvDType): MemoryEstimate {
  const weights = graph.weights.reduce((sum, weight) => sum + weightBytes(weight), 0);
  const limits = batchLimits(graph, contextSize);
  const kvBytes = stateBytes(stateSize(graph, limits, kvType), contextSize);
  const activationBytes = planBytes(makePlan(graph, limits));
  return {
    weightBytes: weights,
    kvBytesPerToken: kvTokenBytes(graph, kvType),
    contextSize,
    kvBytes,
    activationBytes,
    totalBytes: weights + kvBytes + activationBytes,
  };
}

export function checkKvType(kvType: KvDType, graph: Graph): void {
  const { k, v } = kvPair(kvType);
  const states = kvStates(graph);
  checkRows(
    k,
    "keys",
    states.map(({ kCols }) => kCols),
  );
  checkRows(
    v,
    "values",
    states.map(({ vCols }) => vCols),
  );
}

function checkRows(dtype: DType, what: "keys" | "values", cols: readonly number[]): void {
  if (!isKvType(dtype.name)) {
    throw new UsageError(`kvType: got "${dtype.name}", expected ${kvTypesText}`);
  }
  const uneven = cols.find((count) => count % dtype.blockElems !== 0);
  if (uneven !== undefined) {
    throw new UsageError(
      `kvType: ${dtype.name} needs multiples of ${dtype.blockElems} values, but this model's ${what} have ${uneven}. Use f16 or f32`,
    );
  }
}

/** Facts for a message about memory, besides the numbers. */
export interface MemoryFacts {
  model: string;
  backend: string;
  contextSize: number;
  kvType: KvDType;
  /** Bytes of one context. */
  state: StateSize;
  /** undefined where it is not known. */
  availableBytes: number | undefined;
  /** The user's limit; undefined: the available memory. */
  ramBytes?: number | undefined;
}

/** The fraction of available memory that a KV cache for several generations may use. */
const SHARED_PART = 0.6;

/** Whether there is plenty of memory: room for more than one context must not exhaust the machine. */
export function fitsBesideOthers(need: MemoryNeed, availableBytes: number | undefined): boolean {
  const total = need.weightBytes + need.kvBytes + need.workBytes;
  const plenty = (availableBytes ?? Number.POSITIVE_INFINITY) * SHARED_PART;
  const isHeld = need.refusal === undefined && total <= need.limitBytes;
  return isHeld && total - (need.deviceBytes ?? 0) <= plenty;
}

/** Limits the bytes wanted for copies of state in the host's memory to those left beside the model. */
export function ramForCopies(
  { weightBytes: weights, kvBytes, workBytes, deviceBytes = 0 }: MemoryNeed,
  availableBytes: number | undefined,
  wanted: number,
): number {
  if (availableBytes === undefined) return wanted;
  const left = availableBytes - (weights + kvBytes + workBytes - deviceBytes);
  return Math.max(0, Math.min(wanted, left));
}

/** Throws if the model does not fit. */
export function checkMemory(need: MemoryNeed, facts: MemoryFacts): void {
  const { weightBytes: weights, kvBytes, workBytes, limitBytes, deviceBytes = 0 } = need;
  if (need.refusal !== undefined) {
    throw new MemoryError(`${facts.model} does not fit: ${need.refusal}`);
  }
  const total = weights + kvBytes + workBytes;
  // Device memory takes none of the machine's memory.
  const available = (facts.availableBytes ?? Number.POSITIVE_INFINITY) + deviceBytes;
  if (total <= Math.min(limitBytes, available)) return;
  const reason =
    limitBytes < available
      ? `the "${facts.backend}" backend reaches ${memoryText(limitBytes)} here${need.limitReason === undefined ? "" : ` (${need.limitReason})`}`
      : facts.availableBytes === facts.ramBytes
        ? `it may take ${memoryText(available - deviceBytes)} (ramBytes)`
        : `this machine has ${memoryText(available - deviceBytes)} free${deviceBytes > 0 ? ` (and ${memoryText(deviceBytes)} on the GPU)` : ""}`;
  const disk =
    need.notOnDisk === undefined ? "" : ` Its weights cannot stay on disk: ${need.notOnDisk}.`;
  throw new MemoryError(
    `${facts.model} does not fit: it needs ${memoryText(total)} (weights ${memoryText(weights)}, ${stateText(kvBytes, facts)}, working memory ${memoryText(workBytes)}), but ${reason}.${disk} ${advice(need, facts)}`,
  );
}

/** A recurrent state is as large for a short text as for a long one. */
function stateText(bytes: number, { state, contextSize, kvType }: MemoryFacts): string {
  if (state.kv.length === 0) return `recurrent state ${memoryText(bytes)}`;
  const what = state.recurrentBytes > 0 ? "KV cache and recurrent state" : "KV cache";
  return `${what} ${memoryText(bytes)} for ${contextSize} tokens of ${kvTypeName(kvType)}`;
}

function advice(
  { weightBytes: weights, kvBytes, workBytes, limitBytes, deviceBytes = 0 }: MemoryNeed,
  facts: MemoryFacts,
): string {
  const available = (facts.availableBytes ?? Number.POSITIVE_INFINITY) + deviceBytes;
  const room = Math.min(limitBytes, available) - weights - workBytes;
  // kvBytes has the padding of the backend and covers all contexts.
  const times = kvBytes / stateBytes(facts.state, facts.contextSize);
  const fitting = tokensThatFit(room / times, 0, facts.state) ?? 0;
  if (fitting >= SMALLEST_CONTEXT) {
    const { k, v } = kvPair(facts.kvType);
    const isSmallest = [k, v].every((type) => bitsPerWeight(type) <= SMALLEST_KV_BITS);
    const cacheType = isSmallest ? "" : ", or a smaller type of the KV cache (kvType)";
    return `Use at most ${fitting} as contextSize${cacheType}`;
  }
  return "Use the model in a smaller type, or a smaller model";
}

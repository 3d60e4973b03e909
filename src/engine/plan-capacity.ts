// The plan of a model's memory: how much state a backend holds, and how large its batches are. It is made when the model is loaded,
// by the memory there is.

import type { KvCacheOptions, MemoryNeed } from "../backends/backend.ts";
import type { KvDType } from "../dtypes/kv-types.ts";
import { type Graph, isBidirectional } from "../graph/graph.ts";
import { makePlan, type Plan } from "../graph/plan.ts";
import type { ModelConfig } from "../models/arch.ts";
import type { EngineParts } from "./engine-parts.ts";
import {
  batchLimits,
  checkMemory,
  chooseContext,
  fitsBesideOthers,
  ramForCopies,
} from "./memory.ts";
import { cacheOptions, stateKinds, stateSize } from "./state/state-kinds.ts";
import type { TierOptions } from "./tiers/open-tiers.ts";

/** The requested sizes, and the available memory. */
export interface CapacityOptions {
  kvType: KvDType;
  /** Memory that is available; undefined where it is not known. */
  availableBytes?: number | undefined;
  /** The most memory that the model may take; undefined: the available memory. */
  ramBytes?: number | undefined;
  /** Contexts that the KV cache should hold; fewer if memory is short. Default 1. */
  parallel?: number | undefined;
  /** For tests: the size of the KV cache in tokens, instead of contexts. */
  cacheTokens?: number | undefined;
  /** Copies of state outside of the backend; undefined: none. */
  tiers?: TierOptions | undefined;
}

/** Room for the tools, the files and the history of a coding agent. */
const AGENT_CONTEXT = 32_768;

/**
 * The size of a context: as large as was asked for, at most the trained one. Of one that nobody asked for: the trained one, or half of it and so on, until memory has room for it beside other
 * programs. Up to AGENT_CONTEXT two contexts are enough, since the cache is shared; beyond that there is room for all that were asked for.
 * Never less than the usual 4,096, and no more where memory is not known, or weights would stay on disk for it.
 */
export function contextFor(
  { backend }: EngineParts,
  { kvType: dtype, parallel = 1, tiers, ...options }: CapacityOptions,
  graph: Graph,
  config: ModelConfig,
  asked?: number,
): number {
  if (asked !== undefined) return chooseContext(config, asked);
  const least = chooseContext(config);
  const { cacheTokens, ramBytes, availableBytes } = options;
  if (availableBytes === undefined || cacheTokens !== undefined) return least;
  if (isBidirectional(graph)) return least; // its batches, and with them its buffers, are as large as its context
  const plan = makePlan(graph, batchLimits(graph, least, backend));
  const kinds = stateKinds(plan.graph, plan.limits);
  const free = leastOf(availableBytes, ramBytes)! - (tiers?.ramBytes ?? 0);
  const fits = (contextSize: number): boolean => {
    const contexts = contextSize > AGENT_CONTEXT ? parallel : Math.min(2, parallel);
    const shape = { contextSize, dtype, shared: parallel > 1, contexts };
    const need = backend.measure(plan, cacheOptions(kinds, shape));
    return (need.diskBytes ?? 0) === 0 && fitsBesideOthers(need, free);
  };
  let context = config.trainedContext;
  while (context > least && !fits(context)) context = Math.floor(context / 2);
  return Math.max(context, least);
}

/** Larger batches take memory, so more weights stay on disk: at most this many times the bytes. */
const MORE_ON_DISK = 1.05;

/**
 * The plan and its cache. If weights are read from disk for every batch, prompts are computed in batches that are as large as the
 * backend allows, unless that slows down generation.
 */
export function planCapacity(
  parts: EngineParts,
  options: CapacityOptions,
  graph: Graph,
  contextSize: number,
): { plan: Plan; kv: KvCacheOptions } {
  const { backend } = parts;
  const limits = batchLimits(graph, contextSize, backend);
  const room = (maxTokens: number) => {
    const plan = makePlan(graph, { ...limits, maxTokens });
    return { plan, kv: chooseCache(parts, options, plan, contextSize) };
  };
  const made = room(limits.maxTokens);
  const { diskBytes = 0, limitBytes } = backend.measure(made.plan, made.kv);
  if (diskBytes === 0) return made;
  const { mostBatchTokens = 0 } = backend;
  for (let tokens = mostBatchTokens; tokens > limits.maxTokens; tokens /= 2) {
    const larger = { ...made, plan: makePlan(graph, { ...limits, maxTokens: tokens }) };
    const need = backend.measure(larger.plan, larger.kv);
    const fits = need.notOnDisk === undefined && need.diskBytes! <= diskBytes * MORE_ON_DISK;
    if (fits && need.weightBytes + need.kvBytes + need.workBytes <= limitBytes) return larger;
  }
  return made;
}

/** Chooses the requested number of contexts, or fewer that fit in memory; it is an error if not even one fits. */
function chooseCache(
  { backend, name }: EngineParts,
  { kvType: dtype, ramBytes, cacheTokens, parallel = 1, tiers, ...options }: CapacityOptions,
  plan: Plan,
  contextSize: number,
): KvCacheOptions {
  const availableBytes = leastOf(options.availableBytes, ramBytes);
  const facts = {
    model: name,
    ramBytes,
    backend: backend.name,
    contextSize,
    kvType: dtype,
    state: stateSize(plan.graph, plan.limits, dtype),
    availableBytes,
  };
  const kinds = stateKinds(plan.graph, plan.limits);
  const shape = { contextSize, dtype, shared: parallel > 1, cacheTokens };
  if (cacheTokens !== undefined) return cacheOptions(kinds, { ...shape, contexts: parallel });
  const withoutCopies = availableBytes && Math.max(0, availableBytes - (tiers?.ramBytes ?? 0));
  for (let contexts = parallel; ; contexts--) {
    const kv = cacheOptions(kinds, { ...shape, contexts });
    const need = backend.measure(plan, kv);
    if (contexts > 1 && !fitsBesideOthers(need, withoutCopies)) continue;
    checkMemory(need, facts);
    return kv;
  }
}

function leastOf(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? (a ?? b) : Math.min(a, b);
}

/** Copies in memory give way where memory is short: a model that fits without them is not refused because of them. */
export function affordableTiers(
  { tiers, availableBytes }: CapacityOptions,
  need: MemoryNeed,
): { tiers: TierOptions | undefined; tierWarnings: string[] } {
  if (!tiers) return { tiers, tierWarnings: [] };
  const ramBytes = ramForCopies(need, availableBytes, tiers.ramBytes);
  if (ramBytes === tiers.ramBytes) return { tiers, tierWarnings: [] };
  const mb = (bytes: number) => `${Math.round(bytes / 1e6)} MB`;
  const warning = `copies of state in memory may take ${mb(tiers.ramBytes)}, but beside the model ${mb(ramBytes)} are available: they take that at most`;
  return { tiers: { ...tiers, ramBytes }, tierWarnings: [warning] };
}

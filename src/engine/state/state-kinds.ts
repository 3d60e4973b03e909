// The kinds of state that sequences of a graph have: one for each group of KV states (those of the same window), and one for all
// recurrent states together. A kind computes a sequence's possible need of its pool and the size of the pool, and makes a
// sequence's state. cacheOptions() turns the kinds into a backend's KvCacheOptions.

import type { Backend, KvCacheOptions } from "../../backends/backend.ts";
import type { KvDType } from "../../dtypes/kv-types.ts";
import { KV_BLOCK_TOKENS } from "../../graph/batch.ts";
import { kvStateBytes } from "../../graph/cost.ts";
import {
  type Graph,
  isBidirectional,
  type KvGroup,
  kvGroups,
  type RecurrentState,
  recurrentStates,
} from "../../graph/graph.ts";
import type { PlanLimits } from "../../graph/plan.ts";
import type { KvSize, StateSize } from "../../limits/memory.ts";
import type { BlockPool } from "./block-pool.ts";
import { blocksFor, KvBlocks, windowBlocks } from "./kv-blocks.ts";
import { type CheckpointDistance, RecurrentSlots, RUNNING_SLOTS } from "./recurrent-slots.ts";
import type { SequenceState } from "./sequence-state.ts";

export interface StateKind {
  /** The group of KV states; undefined for recurrent state. */
  readonly group: number | undefined;
  /** The most that a running sequence of `tokens` tokens takes of the pool. */
  demand(tokens: number): number;
  /** The units that a context of `tokens` tokens adds to the pool; `shared`: more than one may run. */
  perContext(tokens: number, shared: boolean): number;
  /** Bytes of a block or a slot, over all layers. */
  unitBytes(dtype: KvDType): number;
  /** The units that a checkpoint has beyond those of the one `tokens` tokens before: see ../tiers/checkpoints.ts. */
  checkpointUnits(tokens: number): number;
  create(
    pool: BlockPool,
    backend: BlockStore,
    maxTokens: number,
    checkpoints: CheckpointDistance,
  ): SequenceState;
  /** The reason why no more can be computed with a pool of this size: the start of a sentence. */
  full(size: number): string;
}

/** The calls that sequences make on the owner of the memory. */
export type BlockStore = Pick<Backend, "copyKvBlock">;

/** The kinds in the order of Sequence.states: KV groups by number, then recurrent state. */
export function stateKinds(graph: Graph, { maxTokens }: PlanLimits): StateKind[] {
  const isWhole = isBidirectional(graph);
  const kinds = kvGroups(graph).map((group, number) => kvKind(group, number, maxTokens, isWhole));
  const recurrent = recurrentStates(graph);
  return recurrent.length > 0 ? [...kinds, recurrentKind(recurrent)] : kinds;
}

/** `isWhole`: each text is computed in one batch, and every block of it is held, with any window. */
function kvKind(
  { window, states }: KvGroup,
  group: number,
  batchTokens: number,
  isWhole: boolean,
): StateKind {
  const most = window === Infinity || isWhole ? Infinity : windowBlocks(window, batchTokens);
  return {
    group,
    // One more: the first block to be written may be shared, and is then copied.
    demand: (tokens) => Math.min(blocksFor(tokens), most) + (isWhole ? 0 : 1),
    // A generation that continues a shared past copies one of its blocks. Another window's worth is for cached
    // sequences.
    perContext: (tokens, shared) => Math.min(blocksFor(tokens), 2 * most) + (shared ? 1 : 0),
    unitBytes: (dtype) =>
      states.reduce((sum, state) => sum + KV_BLOCK_TOKENS * kvStateBytes(state, dtype), 0),
    checkpointUnits: (tokens) => Math.min(blocksFor(tokens), blocksFor(window) + 1),
    create: (pool, backend, maxTokens) =>
      new KvBlocks({
        pool,
        maxTokens,
        window,
        isWhole,
        copy: (from, to) => backend.copyKvBlock(from, to, group),
      }),
    full: (size) => `the KV cache is full: it holds ${size * KV_BLOCK_TOKENS} tokens`,
  };
}

function recurrentKind(states: readonly RecurrentState[]): StateKind {
  return {
    group: undefined,
    demand: () => RUNNING_SLOTS,
    perContext: () => RUNNING_SLOTS,
    unitBytes: () => states.reduce((sum, { floats }) => sum + floats * 4, 0),
    checkpointUnits: () => 1,
    create: (pool, _backend, _maxTokens, checkpoints) => new RecurrentSlots(pool, checkpoints),
    full: (size) => `there is no room for more recurrent state: it has ${size} slots`,
  };
}

/** The bytes of one context as a function of its tokens, without padding. */
export function stateSize(graph: Graph, limits: PlanLimits, dtype: KvDType): StateSize {
  const kv: KvSize[] = [];
  let recurrentBytes = 0;
  for (const { group, perContext, unitBytes } of stateKinds(graph, limits)) {
    const most = perContext(Infinity, false);
    if (group === undefined) recurrentBytes += most * unitBytes(dtype);
    else {
      kv.push({
        bytesPerToken: unitBytes(dtype) / KV_BLOCK_TOKENS,
        blockTokens: KV_BLOCK_TOKENS,
        ...(most < Infinity && { mostTokens: most * KV_BLOCK_TOKENS }),
      });
    }
  }
  return { kv, recurrentBytes };
}

/** Bytes of all pools at their largest, without padding. */
export function cacheBytes(kinds: readonly StateKind[], kv: KvCacheOptions): number {
  return kinds.reduce((sum, { group, unitBytes }) => {
    const units = group === undefined ? (kv.slots ?? 0) : kv.groups[group]!.blocks;
    return sum + units * unitBytes(kv.dtype);
  }, 0);
}

export interface CacheShape {
  readonly contextSize: number;
  readonly contexts: number;
  readonly dtype: KvDType;
  /** More than one context was requested. */
  readonly shared: boolean;
  /** For tests: the size of the KV cache in tokens, instead of contexts. */
  readonly cacheTokens?: number | undefined;
}

/** The backend's cache options for this many contexts; KV blocks start with one context's. */
export function cacheOptions(kinds: readonly StateKind[], shape: CacheShape): KvCacheOptions {
  const { contextSize, contexts, dtype, shared, cacheTokens } = shape;
  const full = blocksFor(contextSize) + (shared ? 1 : 0);
  const given = cacheTokens === undefined ? undefined : blocksFor(cacheTokens);
  // Tables have an entry for every block of a context, whether a window still holds it or not.
  const keepsAll = kinds.some(
    ({ group, demand }) => group !== undefined && demand(Infinity) === Infinity,
  );
  const groups = kinds
    .filter(({ group }) => group !== undefined)
    .map((kind) => {
      const held = kind.perContext(contextSize, shared);
      return given === undefined
        ? { blocks: contexts * held, held }
        : { blocks: given, held: given };
    });
  const slots = kinds
    .filter(({ group }) => group === undefined)
    .reduce((sum, kind) => sum + contexts * kind.perContext(contextSize, shared), 0);
  return {
    dtype,
    tableLength: given === undefined ? contexts * full : Math.max(given, keepsAll ? 0 : full),
    groups,
    ...(slots > 0 && { slots }),
  };
}

// What a backend is: memory for weights, values and the KV cache, and a way to run a plan on it.
//
// A backend is not a model (it sees a graph of ops), not a scheduler (it runs the batch it is given) and not an owner of
// sequences (cache blocks are numbers to it). One backend object serves one loaded model; dispose() frees all it holds,
// and any use after that throws. Backends never import each other; src/load/choose-backend.ts takes one from the table.

import type { DType } from "../dtypes/dtype.ts";
import type { Batch } from "../graph/batch.ts";
import type { GraphNode, OutputName, Rows, Value, Weight } from "../graph/graph.ts";
import type { Plan } from "../graph/plan.ts";

/** What a backend keeps of sequences: keys and values of each layer in blocks of 32 tokens, and recurrent state. */
export interface KvCacheOptions {
  dtype: DType;
  /** Most blocks in a sequence's block table. */
  tableLength: number;
  /** Blocks of each group of KV states, by KvState.group. */
  groups: readonly GroupRoom[];
  /** Slots of recurrent state. Default: none. */
  slots?: number;
}

/** Blocks of a group of KV states. */
export interface GroupRoom {
  /** At most. */
  readonly blocks: number;
  /** Held from the start; growKv() asks for more. */
  readonly held: number;
}

/** The same number of blocks for all groups, held from the start. */
export function evenRoom(blocks: number, dtype: DType, groups = 1): KvCacheOptions {
  const group = { blocks, held: blocks };
  return { dtype, tableLength: blocks, groups: Array.from({ length: groups }, () => group) };
}

export function groupRoom({ groups }: KvCacheOptions, group: number): GroupRoom {
  const room = groups[group];
  if (!room)
    throw new Error(`KV cache: no blocks for group ${group}, only for ${groups.length} groups`);
  return room;
}

/** All of it from the start. */
export function wholeRoom(kv: KvCacheOptions): KvCacheOptions {
  return { ...kv, groups: kv.groups.map(({ blocks }) => ({ blocks, held: blocks })) };
}

/** Whether a layout for one is a layout for the other. */
export function isSameRoom(a: KvCacheOptions, b: KvCacheOptions): boolean {
  return (
    a.dtype === b.dtype &&
    a.tableLength === b.tableLength &&
    (a.slots ?? 0) === (b.slots ?? 0) &&
    a.groups.length === b.groups.length &&
    a.groups.every(({ blocks }, group) => blocks === b.groups[group]!.blocks)
  );
}

export interface MemoryUse {
  weightBytes: number;
  kvBytes: number;
  workBytes: number;
}

export interface MemoryNeed extends MemoryUse {
  /** The most that this backend can hold here, however much memory the machine has. */
  limitBytes: number;
  /** Of all these, bytes that lie in a device's own memory and take none of the machine's. Default 0. */
  deviceBytes?: number;
  /** Why it cannot be had here, and what to do: whole sentences. Default: limitBytes says it. */
  refusal?: string;
}

/** Sees every intermediate right after its op: float32, row-major, only valid during the call. */
export type Tap = (value: Value, data: Float32Array) => void;

/** What a batch is for; times are kept apart by it. */
export type BatchPhase = "prompt" | "generation";

export interface RunOptions {
  /** Rows of graph.input, where the graph has one: [rows, cols]. */
  input?: Float32Array;
  /** For comparing backends; it may slow the run down. */
  tap?: Tap;
  /** With a tap: what later ops read in place of a value; undefined: what was computed. [rows, cols] */
  replace?: (value: Value) => Float32Array | undefined;
  /** Default: "prompt". Only a backend that records times asks. */
  phase?: BatchPhase;
  /** Asked between ops: whether to give the batch up. */
  stop?: () => boolean;
}

/** Fills `target` with the weight's bytes from `byteOffset` on. */
export type WeightReader = (target: Uint8Array, byteOffset: number) => Promise<void>;

/** What times are recorded of: one piece of a batch's work, in the order in which they run. */
export interface ProfiledPart {
  /** A graph op ("matmul"), or what a backend does on the way to one ("quantize"). */
  readonly op: string;
  /** Of the node that it is part of: "blk.3.attn_q". */
  readonly name: string;
  /** The nodes that are done when it is; none for what only prepares one. */
  readonly nodes: readonly GraphNode[];
  /** Of what it computes: with none in a batch it is left out. */
  readonly rows: Rows;
  /** One thread works, the others wait. */
  readonly isAlone: boolean;
}

/** Batches of the same size. */
export interface RecordedBatches {
  readonly tokens: number;
  readonly outputs: number;
  readonly batches: number;
  /** Cached tokens that a token attended to, itself included: the average. */
  readonly context: number;
}

/** The times of a phase, in ms. */
export interface PhaseTimes {
  /** From the beginning of each batch to its end. */
  readonly batchMs: number;
  readonly sizes: readonly RecordedBatches[];
  /** Time that each thread spent computing each part: [thread][part]. What is missing to batchMs, it waited. */
  readonly busyMs: readonly Float64Array[];
}

/** Numbers of one event in RecordedEvents.numbers: part, chunks, start, end. */
export const EVENT_NUMBERS = 4;

/** What a thread did last. */
export interface RecordedEvents {
  /** In order of time; times are ms on the clock of the thread that called run(). */
  readonly numbers: Float64Array;
  /** Earlier ones that were not kept. */
  readonly dropped: number;
}

/** What a backend recorded since it was prepared. */
export interface BackendProfile {
  readonly parts: readonly ProfiledPart[];
  readonly phases: Readonly<Record<BatchPhase, PhaseTimes>>;
  /** Of each thread. */
  readonly events: readonly RecordedEvents[];
  /** Time spent on bringing weights into another layout. */
  readonly packMs: number;
  /** What computes, where that is not threads: "GPU". The one entry of busyMs and events is then its. */
  readonly worker?: string;
  /** How it was recorded, or why not: sentences without a full stop. */
  readonly notes?: readonly string[];
}

/** Layers that are computed in one place, one after the other. */
export interface LayerPlace {
  /** The backend's name. */
  readonly backend: string;
  readonly firstLayer: number;
  readonly layers: number;
  /** The last norm and the output matrix, too. */
  readonly hasOutput: boolean;
  /** Of its weights. */
  readonly weightBytes: number;
  /** Not the processor's part. */
  readonly isDevice: boolean;
  /** The device, as its measurement names it. */
  readonly adapter?: string;
}

export interface Backend {
  readonly name: string;
  /** That compute. */
  readonly threads: number;
  /** What the kernels of matmuls are, and why, where there is a choice: "x64-avx512", "wasm: ...". */
  readonly kernels?: string | undefined;

  /** The device that it computes on, as that one's measurement names it. Optional: the processor. */
  readonly adapter?: string | undefined;

  /** Tokens of a batch, at most, from which it gains. Optional: as many as the engine thinks right for a processor. */
  readonly batchTokens?: number | undefined;

  /** Tokens that it computes at once: a batch of a multiple of them leaves none to narrower kernels. Optional: 1. */
  readonly tokenTile?: number | undefined;

  /** Whether this op, with these shapes and types, can be computed here; otherwise the reason, for people. */
  supports(node: GraphNode): true | string;

  /** What prepare() and the uploads after it will take; takes nothing itself. */
  measure(plan: Plan, kv: KvCacheOptions): MemoryNeed;

  /**
   * Allocates everything that the plan needs (room for its weights, the cache, threads); only the cache grows after that.
   * Once, before anything else. After a MemoryError nothing is held, and a smaller plan may be tried.
   */
  prepare(plan: Plan, kv: KvCacheOptions): Promise<void> | void;

  /** Whether prepare() would find the memory, found out by trying. Optional: where measure() knows. */
  fits?(plan: Plan, kv: KvCacheOptions): Promise<boolean>;

  /** Takes one weight of the plan into the backend's memory, straight from the file. All of them, before run(). */
  upload(weight: Weight, read: WeightReader): Promise<void>;

  /** Computes one batch; throws an AbortedError when `stop` said so on the way, and the batch's results are then void. */
  run(batch: Batch, options?: RunOptions): Promise<void> | void;

  /** Copies row `row` of an output of the last batch into `target`: [cols]. */
  read(output: OutputName, row: number, target: Float32Array): Promise<void> | void;

  /** Copies one cache block, all layers of a group, to another: the write half of copy-on-write. Default: all groups. */
  copyKvBlock(from: number, to: number, group?: number): void;

  /**
   * Holds so many blocks of each group of KV states from now on, with what is in those that were there before. A MemoryError:
   * there is no room for them, and nothing has changed. Optional: where memory is only taken by what is written to.
   */
  growKv?(blocks: readonly number[]): Promise<void>;

  memory(): MemoryUse;
  /** Where each layer is computed, in order. Optional: where all of them are here. */
  placement?(): readonly LayerPlace[];
  /** What computes what, and why: one line each, for --explain. */
  explain(): readonly string[];
  /** Where the time went; undefined when it was not asked to record it. Optional: a backend may not be able to. */
  profile?(): BackendProfile | undefined;
  /** Forgets the batches that were recorded until now. */
  resetProfile?(): void;
  /** For measuring: ways of one's own to compute the next batches. Optional: a backend may have only one. */
  readonly tuning?: TuningControls | undefined;
  dispose(): void;
  /** Resolves when its threads have ended, after dispose(). Optional: a backend may have none. */
  ended?(): Promise<void>;
}

export interface TuningControls {
  /** From the next batch on, all matmuls of all sizes are computed by variant `index` of their choice. */
  setVariant(index: number): void;
  /** What threads with nothing to do do, from the next batch on. */
  setIdle(idle: "spin" | "sleep"): void;
}

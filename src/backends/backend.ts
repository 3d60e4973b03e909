// The interface of a backend: memory for weights, values and the KV cache, and a way to run a plan on it.
//
// A backend is not a model (it sees a graph of ops), not a scheduler (it runs the batch it is given) and not an owner of
// sequences (cache blocks are numbers to it). One backend object serves one loaded model; dispose() frees all its memory,
// and any use after that throws. Backends never import each other; src/load/choose-backend.ts takes one from the table.

import type { CallLog, CallRecord } from "../base/call-table.ts";
import type { DeviceLostError } from "../base/errors.ts";
import { type KvDType, kvTypeName } from "../dtypes/kv-types.ts";
import type { Batch } from "../graph/batch.ts";
import type { Graph, GraphNode, OutputName, Rows, Value, Weight } from "../graph/graph.ts";
import type { Plan } from "../graph/plan.ts";
import type { KvOverflow, Widened } from "../graph/reference-memory.ts";
import type { FilePart, OpenDirect, ReadAt } from "../platform/platform.ts";

export type { KvOverflow, Widened } from "../graph/reference-memory.ts";

/** A backend's state of sequences: keys and values of each layer in blocks of 32 tokens, and recurrent state. */
export interface KvCacheOptions {
  dtype: KvDType;
  /** Most blocks in a sequence's block table. */
  tableLength: number;
  /** Blocks of each group of KV states, by KvState.group. */
  groups: readonly GroupCapacity[];
  /** Slots of recurrent state. Default: none. */
  slots?: number;
}

/** Blocks of a group of KV states. */
export interface GroupCapacity {
  /** At most. */
  readonly blocks: number;
  /** Held from the start; growKv() asks for more. */
  readonly held: number;
}

/** The same number of blocks for all groups, held from the start. */
export function evenCapacity(blocks: number, dtype: KvDType, groups = 1): KvCacheOptions {
  const group = { blocks, held: blocks };
  return { dtype, tableLength: blocks, groups: Array.from({ length: groups }, () => group) };
}

export function groupCapacity({ groups }: KvCacheOptions, group: number): GroupCapacity {
  const room = groups[group];
  if (!room)
    throw new Error(`KV cache: no blocks for group ${group}, only for ${groups.length} groups`);
  return room;
}

/** The same, with all blocks allocated from the start. */
export function wholeCapacity(kv: KvCacheOptions): KvCacheOptions {
  return { ...kv, groups: kv.groups.map(({ blocks }) => ({ blocks, held: blocks })) };
}

/** Whether both have the same layout. */
export function isSameCapacity(a: KvCacheOptions, b: KvCacheOptions): boolean {
  return (
    kvTypeName(a.dtype) === kvTypeName(b.dtype) &&
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
  /** The most bytes that this backend can address, however much memory the machine has. */
  limitBytes: number;
  /** The reason for the limit, for messages: a clause. */
  limitReason?: string;
  /** The part of these bytes that is in a device's own memory. Default 0. */
  deviceBytes?: number;
  /** The reason why it does not fit, and the remedy: whole sentences. Default: limitBytes says it. */
  refusal?: string;
  /** Bytes of weights that stay on disk, and are not in weightBytes. Default 0. */
  diskBytes?: number;
  /** Why its weights cannot stay on disk, where that would help: a clause. */
  notOnDisk?: string;
  /** Memory of a device that it gains from and can do without (Backend.forgo); in none of the other numbers. */
  optional?: MemoryUse;
}

/**
 * Sees every value right after its op: float32, row-major, only valid during the call. `inHalves`: it was computed on matrix units, from
 * half floats.
 */
export type Tap = (value: Value, data: Float32Array, inHalves?: boolean) => void;

/** The phase of a batch: prefill or decode. Each has its own times. */
export type BatchPhase = "prompt" | "generation";

export interface RunOptions {
  /** The section of the graph to compute, which must come in order. Default: the graph has one only. */
  section?: number;
  /** The values that the section takes, one after the other: [rows, cols] each (cross-values.ts). */
  input?: Float32Array;
  /** Gets the values that the section gives, in the same form. */
  output?: Float32Array;
  /** For comparing backends; it may slow the run down. */
  tap?: Tap;
  /** With a tap: [rows, cols] that later ops read instead of the value; undefined: the computed value. */
  replace?: (value: Value) => Float32Array | undefined;
  /** Default: "prompt". Only a backend that records times reads it. */
  phase?: BatchPhase;
  /** Called between ops: whether to abort the batch. */
  stop?: () => boolean;
  /** Work of the caller that needs nothing of the batch. A backend may call it, at any time and any number of times, while
   * something else computes. It never throws. */
  meanwhile?: () => void;
}

/** The best logits of a token, best first; of equal ones the lower id first. A NaN comes before all others. */
export interface BestLogits {
  /** -1: there are no more. */
  readonly ids: Int32Array;
  /** As long as `ids`. */
  readonly logits: Float32Array;
  /**
   * The logits of adjusted tokens (Batch.adjusted), if the batch has any: these are not among the best, but here, and there is room for
   * ADJUSTED_ROOM.
   */
  readonly adjusted?: AdjustedLogits | undefined;
}

/** In any order, each token once. */
export interface AdjustedLogits {
  readonly ids: Int32Array;
  readonly logits: Float32Array;
  count: number;
}

/** Fills `target` with the weight's bytes from `byteOffset` on. */
export type WeightReader = (target: Uint8Array, byteOffset: number) => Promise<void>;

/** Weights that lie in local files, for a backend whose threads read by themselves. */
export interface WeightFiles {
  /** The parts of a tensor, all of the same size, in order; undefined: it is not in a file. */
  partsOf(tensor: string): readonly FilePart[] | undefined;
  readonly readAt: ReadAt;
  /** Opens a file again, for as long as weights are read from it; undefined: weights cannot stay on disk. */
  readonly openDirect?: OpenDirect | undefined;
}

/** The memory limits of a model whose weights can stay on disk. */
export interface RamBudget {
  /** A model that needs more leaves weights on disk. */
  readonly limitBytes: number;
  /** So that all of it takes this at most. */
  readonly budgetBytes: number;
  /**
   * The way to read experts that stay on disk. Default, "measured": on demand, and ahead of it if that was measured to save time;
   * "always" ahead of it, or "never"; "all": like other weights, all for every batch.
   */
  readonly experts?: "measured" | "always" | "never" | "all" | undefined;
}

/** Weights that stay on disk: those that are read for every batch, and experts that are read on demand. */
export interface DiskUse {
  /** The number of weights that every batch reads. */
  readonly weights: number;
  /**
   * Bytes in the file: of weights that are not in memory, of those that every batch reads, and of those that a token reads if
   * every expert is used equally often.
   */
  readonly fileBytes: number;
  readonly batchBytes: number;
  readonly tokenBytes: number;
  /** Experts of a layer: all, those that a token uses, and those that memory holds. undefined: none is read on demand. */
  readonly experts?: { readonly all: number; readonly used: number; readonly slots: number };
  /** Bytes of the ring in memory that they share, one after the other. */
  readonly ringBytes: number;
  /** Past the system's cache of files. */
  readonly isDirect: boolean;
}

/** Experts that are read on demand, one matrix of one expert at a time. */
export interface ExpertReads {
  /** Uses of experts that were in memory, and of those that were read: their numbers, and the bytes. */
  readonly hits: number;
  readonly misses: number;
  readonly readBytes: number;
  /** The time that threads waited for experts, all together. */
  readonly waitMs: number;
  /** Experts that were read before the layer's routes were known, and the number of them that the layer used. */
  readonly guessed: number;
  readonly guessedRight: number;
}

/** The events that an engine receives while weights are read. */
export interface UploadWatch {
  /** `bytes` more bytes are there; reading took each thread `readMs` ms. */
  progress(bytes: number, readMs: number): void;
  /** Throws if the load was aborted. */
  check(): void | Promise<void>;
}

/** A piece of a batch's work that has a recorded time. Parts are in the order in which they run. */
export interface ProfiledPart {
  /** A graph op ("matmul"), or a step of the backend before one ("quantize"). */
  readonly op: string;
  /** The name of the node that it is part of: "blk.3.attn_q". */
  readonly name: string;
  /** The nodes that it completes; none if it only prepares one. */
  readonly nodes: readonly GraphNode[];
  /** The rows that it computes; a batch without such rows skips it. */
  readonly rows: Rows;
  /** Only one thread works; the others wait. */
  readonly isAlone: boolean;
}

/** Batches of the same size. */
export interface RecordedBatches {
  readonly tokens: number;
  readonly outputs: number;
  readonly batches: number;
  /** The average number of cached tokens that a token attended to, itself included. */
  readonly context: number;
}

/** The times of a phase, in ms. */
export interface PhaseTimes {
  /** From the beginning of each batch to its end. */
  readonly batchMs: number;
  readonly sizes: readonly RecordedBatches[];
  /** Time that each thread spent computing each part: [thread][part]. The rest of batchMs is waiting. */
  readonly busyMs: readonly Float64Array[];
}

/** Numbers of one event in RecordedEvents.numbers: part, chunks, start, end. */
export const EVENT_NUMBERS = 4;

/** The last events of a thread. */
export interface RecordedEvents {
  /** In order of time; times are ms on the clock of the thread that called run(). */
  readonly numbers: Float64Array;
  /** The number of earlier events that were not kept. */
  readonly dropped: number;
}

/** Records of a backend since it was prepared. */
export interface BackendProfile {
  readonly parts: readonly ProfiledPart[];
  readonly phases: Readonly<Record<BatchPhase, PhaseTimes>>;
  /** For each thread. */
  readonly events: readonly RecordedEvents[];
  /** Time spent packing weights. */
  readonly packMs: number;
  /** The worker, if that is not threads: "GPU". It is then the one entry of busyMs and events. */
  readonly worker?: string;
  /** Calls below the ops: of a device's API, or waits and wakes of threads in the recorded batches. */
  readonly calls?: readonly BackendCall[];
  /** The last of the calls of a device's API, one by one. */
  readonly log?: CallLog;
  /** Of two backends together: the records of each. */
  readonly sides?: readonly SideProfile[];
  /** The method of recording, or the reason for its absence: sentences without a full stop. */
  readonly notes?: readonly string[];
}

export interface SideProfile {
  /** The backend's name. */
  readonly name: string;
  readonly profile: BackendProfile;
  readonly memory: MemoryUse;
}

export interface BackendCall extends CallRecord {
  /** The backend that made them. */
  readonly by: string;
}

/** Weights that need not be read where neurons are zero. */
export interface NeuronWeights {
  readonly bytes: number;
  /** The activations of the neurons. */
  readonly values: readonly Value[];
  /** Rows and columns can be left out: the rows without the columns, too. */
  readonly hasBoth: boolean;
}

/** Which neurons are left out where they are zero, other than all. */
export interface NeuronChoice {
  /** Columns behind them as well as rows before them. */
  readonly columns: boolean;
  /** Names of activations whose neurons are all computed: few are zero. */
  readonly dense: readonly string[];
}

/** Consecutive layers that one backend computes. */
export interface LayerPlace {
  /** The backend's name. */
  readonly backend: string;
  readonly firstLayer: number;
  readonly layers: number;
  /** Whether it also has the last norm and the output matrix. */
  readonly hasOutput: boolean;
  /** Bytes of its weights. */
  readonly weightBytes: number;
  /** Whether a device computes it, not the processor. */
  readonly isDevice: boolean;
  /** The device, as its measurement names it. */
  readonly adapter?: string;
  /** It computes only this phase of a sequence, and another device the rest. Default: all of it. */
  readonly phase?: BatchPhase;
  /** Which tensors are elsewhere than their layer: patterns, as "exps=cpu". Default: none. */
  readonly overrides?: readonly string[];
}

export interface Backend {
  readonly name: string;
  /** Threads that compute. */
  readonly threads: number;
  /** The target of the matmul kernels, and why, where there is a choice: "x64-avx512", "wasm: ...". */
  readonly kernels?: string | undefined;

  /** The device that it computes on, as its measurement names it. Default: the processor. */
  readonly adapter?: string | undefined;

  /** The largest batch, in tokens, that is still faster than smaller ones. Default: the engine's choice for a processor. */
  readonly batchTokens?: number | undefined;

  /** The most tokens of a batch, for models that gain from more than `batchTokens` (engine/memory.ts). Default: `batchTokens`. */
  readonly mostBatchTokens?: number | undefined;

  /** Tokens of a token tile: batches of a multiple of it need no narrower kernels. Default: 1. */
  readonly tokenTile?: number | undefined;

  /**
   * The most tokens of a batch that gives each of them the same bits as alone, once it is prepared; larger batches may sum in another
   * order. Default: any number.
   */
  readonly sameBitsTokens?: number;

  /**
   * Whether a device computes a batch while the thread that called run() does other work: `meanwhile` is called right after the
   * batch was submitted, and run() resolves in a later turn of the event loop, so that messages come in. Default: false.
   */
  readonly computesApart?: boolean;

  /** Whether this op, with these shapes and types, can be computed here; otherwise the reason, for people. */
  supports(node: GraphNode): true | string;

  /** The memory that prepare() and the uploads after it will need; allocates nothing. */
  measure(plan: Plan, kv: KvCacheOptions): MemoryNeed;

  /**
   * Allocates everything that the plan needs (memory for its weights, the cache, threads); only the cache grows after that.
   * Called once, before anything else. After a MemoryError nothing is held, and a smaller plan may be tried.
   */
  prepare(plan: Plan, kv: KvCacheOptions): Promise<void> | void;

  /** Does without the parts that measure() calls optional; `why`: a clause. */
  forgo?(why: string): void;

  /** Whether prepare() would find the memory, by trying. Optional: where measure() knows. */
  fits?(plan: Plan, kv: KvCacheOptions): Promise<boolean>;

  /** Reads one weight of the plan into the backend's memory, straight from the file. All of them must be there before run(). */
  upload(weight: Weight, read: WeightReader): Promise<void>;

  /**
   * Reads the weights that lie in local files, as all threads can. Returns the names of those that are there now: none if
   * there are no such files, or one could not be read. Optional; before any upload().
   */
  uploadFiles?(watch: UploadWatch): Promise<ReadonlySet<string>>;

  /**
   * Computes made-up batches, so that the first real ones take no longer than others, and leaves no trace of them; texts have up to
   * `contextSize` tokens. After all weights are there and before the first run(). The largest batch comes first, or is the only one
   * (`onlyLargest`): a device that has no memory for it says so now (DeviceMemoryError). Optional: where that would gain nothing.
   */
  warmUp?(contextSize: number, onlyLargest?: boolean): Promise<void>;

  /** Differences from the request, once prepared: one sentence each. */
  warnings?(): readonly string[];

  /** Computes one batch; throws an AbortedError when `stop` returned true, and the batch has no results then. */
  run(batch: Batch, options?: RunOptions): Promise<void> | void;

  /**
   * Whether idle threads leave the cores at once between two batches, from now on: another engine computes there. Optional: a
   * backend may have no threads.
   */
  rest?(isOn: boolean): void;

  /** Copies row `row` of an output of the last batch into `target`: [cols]. */
  read(output: OutputName, row: number, target: Float32Array): Promise<void> | void;

  /** The most of a token's best logits that readBest() can read. Default: none. */
  readonly mostBest?: number | undefined;

  /**
   * Copies the best logits of output `row` of the last batch, as many as `target` has room for. false: that batch has none, or not
   * all logits are finite, and read() gives all of them. Optional, with mostBest.
   */
  readBest?(row: number, target: BestLogits): boolean;
  /** Whether it can leave adjusted tokens out of them and give theirs beside. Default: no, and whole rows are read then. */
  readonly readsAdjusted?: boolean | undefined;

  /**
   * Whether the last batch was being computed before run() asked for it, because its tokens were foreseen (Batch.draws): it took the
   * time since the batch before, not the time of run(). Only the best logits of such batches can be read. Optional: where none is.
   */
  readonly wasAhead?: boolean;
  /**
   * The number of batches that were submitted before they were asked for, and of those that never were. Optional: where none
   * is.
   */
  lookahead?(): { readonly submitted: number; readonly dropped: number };

  /** Copies one cache block, all layers of a group, to another, for copy-on-write. Default: all groups. */
  copyKvBlock(from: number, to: number, group?: number): void;

  /**
   * Grows the cache to the given number of blocks for each group of KV states, and keeps their contents. After a MemoryError
   * nothing has changed. `pause`: waited for between pieces of this work, each of which keeps this thread for a moment.
   * Optional: where the
   */
  growKv?(blocks: readonly number[], pause?: () => Promise<void>): Promise<void>;

  /**
   * Activations that stayed float32 in some batch, because the type beside their weight cannot hold them: the first of them.
   * Asked after every batch. Optional: a backend may have none.
   */
  widened?(): Widened | undefined;

  /**
   * From the next batch on, activations that the type beside their weight cannot hold stay float32, as `widened` says; false: they
   * already do, or that would change nothing. Called when logits are not finite; earlier results are to be computed again.
   * Optional: where batches do it by themselves.
   */
  widen?(): Promise<boolean>;

  /**
   * The first keys or values since the last call that the type of the KV cache cannot hold: results computed from them are wrong,
   * finite or not. Asked after every batch. Optional: where they become NaN instead, and the logits with them.
   */
  kvOverflow?(): KvOverflow | undefined;

  memory(): MemoryUse;
  /** Weights that stay on disk; undefined: none. Optional: where they cannot. */
  onDisk?(): DiskUse | undefined;
  /** The reads of experts so far; undefined: none is read on demand. Optional: where they cannot. */
  expertReads?(): ExpertReads | undefined;
  /** The device of each layer, in order. Optional: where all layers are computed here. */
  placement?(): readonly LayerPlace[];
  /** The part of the graph for each entry of placement(). Optional: where each device computes all of it. */
  parts?(): readonly Graph[];
  /**
   * Weights that could be left out if neurons are zero (docs/use/sparse.md), whether or not they are; undefined: none. Optional: where none can.
   */
  neurons?(): NeuronWeights | undefined;
  /** The kernel of each op, and why: one line each, for --explain. */
  explain(): readonly string[];
  /** The recorded times; undefined: none were recorded. Optional: a backend may not record times. */
  profile?(): BackendProfile | undefined;
  /** Drops the records until now. */
  resetProfile?(): void;
  /** Optional: a backend may keep state to itself, and can then not alternate with another (switch/switch.ts). */
  readonly transfer?: StateTransfer | undefined;
  /** For measuring: how to compute the next batches. Optional: a backend may have nothing to tune. */
  readonly tuning?: TuningControls | undefined;
  dispose(): void;
  /** Resolves when the device that it computes on was lost: no later batch works. Optional: a processor is not lost. */
  readonly lost?: Promise<DeviceLostError> | undefined;
  /** Resolves when its threads have ended and nothing waits for its device, after dispose(). Optional: a backend may have neither. */
  ended?(): Promise<void>;
}

/**
 * State of sequences on its way from one backend to another, in a form that is no backend's own. Of a cache block of a group: for
 * each KvState of the group in order, keys [32, kCols], then values [32, vCols], in the cache's type (kvBlockBytes). Of a slot: the
 * floats of each RecurrentState in order. The state is read as it is at the call: a later batch may write the block or slot before
 * the promise resolves.
 */
export interface StateTransfer {
  /** Copies a cache block out: [kvBlockBytes]. */
  readBlock(group: number, block: number, target: Uint8Array): Promise<void> | void;
  /**
   * The memory of a cache block itself, in the order of readBlock(): a file is read into it without a copy. Optional: a backend may keep
   * it where the host does not see it.
   */
  blockPieces?(group: number, block: number): Uint8Array[];
  /** Before the next batch. */
  writeBlock(group: number, block: number, source: Uint8Array): void;
  /** Copies a slot of recurrent state out: [slotFloats]. */
  readSlot(slot: number, target: Float32Array): Promise<void> | void;
  writeSlot(slot: number, source: Float32Array): void;
}

export interface TuningControls {
  /** From the next batch on, all matmuls are computed by variant `index` of their choice. */
  setVariant(index: number): void;
  /** Behaviour of idle threads from the next batch on. */
  setIdle(idle: "spin" | "sleep"): void;
}

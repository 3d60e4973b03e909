// The GPU memory of one loaded model: weights, plan slots, KV cache, batch data and the buffer that results are read through.
// All of it is allocated once; an out-of-memory error gives the needed and the available memory.

import { memoryText } from "../../base/byte-sizes.ts";
import { MemoryError } from "../../base/errors.ts";
import type { DType } from "../../dtypes/dtype.ts";
import { kvPair } from "../../dtypes/kv-types.ts";
import { KV_BLOCK_TOKENS } from "../../graph/batch.ts";
import {
  type Graph,
  type KvState,
  kvStates,
  type NodeOf,
  recurrentStates,
  sectionsOf,
  type Weight,
} from "../../graph/graph.ts";
import { mostRows, type Plan, type PlanLimits } from "../../graph/plan.ts";
import { groupCapacity, type KvCacheOptions, type MemoryUse } from "../backend.ts";
import { crossFloats } from "../cross-values.ts";
import { type BatchLayout, layOutBatch } from "./batch-area.ts";
import type { GpuDevice, GpuFacts } from "./device.ts";
import { checkHeads, scoreBytes } from "./exact/attention.ts";
import { exactShape } from "./exact/weights.ts";
import { type ExpertRange, expertRanges } from "./experts/expert-ranges.ts";
import { hostExpertBytes } from "./experts/host-experts.ts";
import { fuse, type Group, stacksOf } from "./fuse.ts";
import { isWholeModel, resultsOf } from "./results.ts";
import { SPARE_PLACES } from "./slot-places.ts";
import { assignSlots } from "./slots.ts";
import { layOutStreamed, STREAM_BYTES } from "./stream/stream-layout.ts";
import { PIECE_BYTES } from "./upload.ts";
import { usage } from "./usage.ts";
import {
  layOutWeights,
  type StoredShape,
  storedShape,
  type WeightLayout,
} from "./weight-layout.ts";
import { type AttentionSplit, splitWords } from "./wgsl/attention-split.ts";
import { BEST, bestParts, bestWords, mostPairs } from "./wgsl/best-logits.ts";
import { oneWords } from "./wgsl/best-one.ts";
import { mostMatrixRows, tileWords } from "./wgsl/group-pairs.ts";
import { type KvFormat, type KvFormats, kvRowWords } from "./wgsl/kv-format.ts";
import { kvFormatOf } from "./wgsl/kv-formats.ts";
import { MOST_SMALL_BATCH } from "./wgsl/matmul-small-batch.ts";
import { UNIT } from "./wgsl/matrix-calls.ts";
import { preparedLayout } from "./wgsl/prepare-activations.ts";
import { roundsActivations } from "./wgsl/round-activations.ts";

/** The most batches submitted ahead, the one that is waited for included: lookahead.ts. */
export const MOST_SUBMITTED = 5;

/** A word behind all logits of a batch that has layer kernels (layers.ts): not 0 where they failed. */
export const FAILED_BYTES = 4;

/** The sizes of all buffers, before anything is allocated. */
export interface Layout {
  readonly plan: Plan;
  readonly kv: KvCacheOptions;
  readonly kvFormats: KvFormats;
  /** Positions of a context, whole blocks. */
  readonly context: number;
  readonly weights: WeightLayout;
  readonly batch: BatchLayout;
  /** The nodes of each fused op. */
  readonly groups: readonly Group[];
  /** The slot of each value, by its id. */
  readonly slotOf: readonly number[];
  readonly slotBytes: readonly number[];
  /** Bytes of a block of 32 tokens, for each KvState of the graph. */
  readonly kvBlocks: readonly KvBlockBytes[];
  /** Bytes of the largest of them. */
  readonly kvBlockBytes: number;
  /** Bytes of all slots and spare places, for each RecurrentState of the graph. */
  readonly recurrentBytes: readonly number[];
  /** Bytes of the largest value of the plan, which is read back at once. */
  readonly readBytes: number;
  /** Bytes of the longest rounded activations. */
  readonly roundedBytes: number;
  /** Bytes of the longest activations that are prepared for several tokens. */
  readonly preparedBytes: number;
  /** Bytes of the longest list of pairs by expert. */
  readonly tileBytes: number;
  /** The split of long contexts. */
  readonly split: AttentionSplit;
  readonly partialBytes: number;
  /** Bytes of the best logits of a batch, with the tokens that were drawn and adjusted ones, of those of parts of rows, and of the only one of parts. */
  readonly bestBytes: number;
  readonly bestPartBytes: number;
  readonly bestOneBytes: number;
  /** Bytes of the results of a batch submitted ahead: as many, or none. */
  readonly lookaheadBytes: number;
  /** Experts that have fewer slots in GPU memory than there are experts. */
  readonly experts: readonly ExpertRange[];
  /** Bytes of them in host memory. */
  readonly hostBytes: number;
  /** The use of GPU memory. */
  readonly use: MemoryUse;
}

/** `exact`: for kernels that compute with the CPU's bits (exact/). `slots`: of experts, in each layer; default: all have one. `streams`: layers' matrices come for each batch (stream/). */
export function layOut(
  plan: Plan,
  kv: KvCacheOptions,
  facts: GpuFacts,
  exact: boolean = false,
  slots?: number,
  streams: boolean = false,
): Layout {
  const { graph, limits } = plan;
  const kvTypes = kvPair(kv.dtype);
  const kvFormats = { k: gpuFormatOf(kvTypes.k), v: gpuFormatOf(kvTypes.v) };
  if (exact) checkHeads(graph, kvTypes);
  const groups = exact ? nodeByNode(graph) : fuse(graph, facts, slots === undefined);
  const experts = expertRanges(graph, slots);
  const shapeOf = exact ? exactShape : shapesWith(experts);
  const weights = streams
    ? layOutStreamed(graph, facts, stacksOf(groups))
    : layOutWeights(graph.weights, facts, stacksOf(groups), shapeOf);
  const batch = layOutBatch(graph, limits, kv.tableLength);
  const { slotOf, slotBytes } = assignSlots(graph, groups, limits, experts);
  const kvBlocks = kvStates(graph).map((state) => kvBlockBytesOf(state, kvFormats));
  const kvBlockBytes = Math.max(0, ...kvBlocks.flatMap(({ keys, values }) => [keys, values]));
  const crossing = [
    ...sectionsOf(graph).map((_, i) => resultsOf(graph, i)),
    ...experts.map(({ routes }) => [routes]),
  ].map((values) => crossFloats(values, limits) * 4);
  // The best logits come before whole rows of others.
  const readBytes = Math.max(...slotBytes, ...crossing) + bestSizes(plan).bestBytes + FAILED_BYTES;
  const roundedBytes = Math.max(longestActivations(plan), exact ? 0 : longestGathered(plan, facts));
  const preparedBytes = exact ? 0 : longestPrepared(plan);
  const tileBytes = exact ? 0 : longestTiles(plan);
  const context = kv.tableLength * KV_BLOCK_TOKENS;
  const split = { positions: context };
  const partialBytes = exact ? longestScores(plan, context) : longestParts(plan, split);
  const { bestBytes, bestPartBytes, bestOneBytes } = bestSizes(plan);
  const lookaheadBytes = isWholeModel(graph) ? bestBytes : 0;
  const work = [...slotBytes, batch.words * 4, roundedBytes, readBytes, kvBlockBytes].concat(
    preparedBytes,
    tileBytes,
    partialBytes,
    bestBytes,
    bestPartBytes,
    bestOneBytes,
    MOST_SUBMITTED * lookaheadBytes,
    streams ? STREAM_BYTES : 0,
  );
  const cached = kvBytesOf(graph, kvBlocks, (group) => groupCapacity(kv, group).blocks);
  const kvSizes = cached.flatMap(({ keys, values }) => [keys, values]);
  const places = kv.slots ? kv.slots + SPARE_PLACES : 0;
  const recurrentBytes = recurrentStates(graph).map(({ floats }) => places * floats * 4);
  checkBindings(
    {
      "a layer of the KV cache": Math.max(0, ...kvSizes),
      "a layer of recurrent state": Math.max(0, ...recurrentBytes),
      "working memory": readBytes,
      "a batch's scores of attention": exact ? partialBytes : 0,
    },
    facts,
  );
  return {
    plan,
    kv,
    kvFormats,
    context,
    weights,
    batch,
    groups,
    slotOf,
    slotBytes,
    kvBlocks,
    kvBlockBytes,
    recurrentBytes,
    readBytes,
    roundedBytes,
    preparedBytes,
    tileBytes,
    split,
    partialBytes,
    bestBytes,
    bestPartBytes,
    bestOneBytes,
    lookaheadBytes,
    experts,
    hostBytes: hostExpertBytes(experts),
    use: {
      weightBytes: weights.totalBytes,
      kvBytes: [...kvSizes, ...recurrentBytes].reduce((sum, bytes) => sum + bytes, 0),
      workBytes: work.reduce((sum, bytes) => sum + bytes, 0),
    },
  };
}

/** A weight of experts has as many as there are slots. */
function shapesWith(ranges: readonly ExpertRange[]): (weight: Weight) => StoredShape {
  const slots = new Map(ranges.flatMap((one) => one.weights.map(({ name }) => [name, one.slots])));
  return (weight) => {
    const stored = storedShape(weight);
    const own = slots.get(weight.name);
    return own === undefined ? stored : { ...stored, rows: (stored.rows / weight.shape[0]!) * own };
  };
}

export interface KvBlockBytes {
  readonly keys: number;
  readonly values: number;
}

function gpuFormatOf(dtype: DType): KvFormat {
  const format = kvFormatOf(dtype);
  if (format) return format;
  throw new MemoryError(`webgpu: a KV cache of type ${dtype.name} is not supported on the GPU`);
}

function kvBlockBytesOf({ kCols, vCols }: KvState, { k, v }: KvFormats): KvBlockBytes {
  const bytes = (format: KvFormat, cols: number) => KV_BLOCK_TOKENS * kvRowWords(format, cols) * 4;
  return { keys: bytes(k, kCols), values: bytes(v, vCols) };
}

/** Bytes of a cache with `blocks` blocks of each group, for each KvState. */
function kvBytesOf(
  graph: Graph,
  kvBlocks: readonly KvBlockBytes[],
  blocksOf: (group: number) => number,
): KvBlockBytes[] {
  return kvStates(graph).map(({ group }, i) => {
    const { keys, values } = kvBlocks[i]!;
    return { keys: blocksOf(group) * keys, values: blocksOf(group) * values };
  });
}

/** The bytes of the longest activations that a matmul rounds. */
function longestActivations({ graph, limits }: Plan): number {
  const sizes = graph.nodes.map((node) => {
    // Activations of experts are prepared there, even if they are not rounded.
    const isWanted = node.op === "matmul" && roundsActivations(node.weight);
    if (!isWanted && node.op !== "matmul_id") return 0;
    const rows = Math.max(mostRows(node.x.rows, limits), UNIT / 2); // matrices of half floats are whole
    return Math.ceil((rows * node.x.cols) / 4) * 16;
  });
  return Math.max(0, ...sizes);
}

/** The bytes of the longest rows of pairs of experts for matrix units that a shader can bind. */
function longestGathered({ graph, limits }: Plan, facts: GpuFacts): number {
  if (!facts.subgroupMatrix) return 0;
  const sizes = graph.nodes.map((node) =>
    node.op === "matmul_id" ? gatheredBytes(node, limits) : 0,
  );
  return Math.max(0, ...sizes.filter((bytes) => bytes <= facts.maxBindingBytes));
}

/** Bytes for the largest batch: a row of half floats for each pair of a token and a slot. */
export function gatheredBytes(
  { routes, weight, out }: NodeOf<"matmul_id">,
  limits: PlanLimits,
): number {
  const [experts, , cols] = weight.shape as [number, number, number];
  const pairs = mostRows(out.rows, limits) * (routes.cols / 2);
  return mostMatrixRows(pairs, experts) * cols * 2;
}

/** The bytes of the longest activations that are prepared for matmuls of several tokens. */
function longestPrepared({ graph, limits }: Plan): number {
  const sizes = graph.nodes.map((node) => {
    if (node.op !== "matmul") return 0;
    const rows = Math.min(mostRows(node.x.rows, limits), MOST_SMALL_BATCH);
    return rows * preparedLayout(node.weight).words * 4;
  });
  return Math.max(0, ...sizes);
}

/** The bytes of the longest list of pairs by expert. */
function longestTiles({ graph, limits }: Plan): number {
  const sizes = graph.nodes.map((node) => {
    if (node.op !== "matmul_id") return 0;
    const pairs = mostRows(node.out.rows, limits) * (node.routes.cols / 2);
    return tileWords(pairs, node.weight.shape[0]!) * 4;
  });
  return Math.max(0, ...sizes);
}

/** No fused ops. */
function nodeByNode({ nodes }: Graph): Group[] {
  return nodes.map((node) => ({ nodes: [node], fused: [] }));
}

/** In bytes, of the largest batch. */
function longestScores({ graph, limits }: Plan, context: number): number {
  const sizes = graph.nodes.map((node) =>
    node.op === "attention" ? scoreBytes(node, limits.maxTokens, context) : 0,
  );
  return Math.max(0, ...sizes);
}

/** The most bytes of all parts of one attention. */
function longestParts({ graph, limits }: Plan, split: AttentionSplit): number {
  const words = graph.nodes.map((node) => (node.op === "attention" ? splitWords(node, split) : 0));
  return Math.min(limits.maxTokens, MOST_SMALL_BATCH) * Math.max(0, ...words) * 4;
}

/** Sizes for the largest batch; none without logits. */
function bestSizes({
  graph,
  limits,
}: Plan): Pick<Layout, "bestBytes" | "bestPartBytes" | "bestOneBytes"> {
  const { logits } = graph.outputs;
  if (!logits) return { bestBytes: 0, bestPartBytes: 0, bestOneBytes: 0 };
  const rows = mostRows(logits.rows, limits);
  return {
    bestBytes: bestWords(rows, isWholeModel(graph) ? mostPairs(rows) : 0) * 4,
    bestPartBytes: rows * bestParts(logits) * BEST * 8,
    bestOneBytes: rows * oneWords(logits) * 4,
  };
}

function checkBindings(sizes: Readonly<Record<string, number>>, facts: GpuFacts): void {
  const most = Math.min(facts.maxBindingBytes, facts.maxBufferBytes);
  for (const [what, bytes] of Object.entries(sizes)) {
    if (bytes <= most) continue;
    throw new MemoryError(
      `webgpu: ${what} needs a buffer of ${bytes} bytes, but the GPU "${facts.name}" allows ${most}. Use a smaller contextSize or kvType, or \`backend: "cpu"\``,
    );
  }
}

/** By KvState. */
export interface CacheBuffers {
  readonly keys: readonly GPUBuffer[];
  readonly values: readonly GPUBuffer[];
}

export interface Buffers extends CacheBuffers {
  readonly weights: readonly GPUBuffer[];
  readonly slots: readonly GPUBuffer[];
  /** By RecurrentState: [slot][floats], with spare slots (slot-places.ts). */
  readonly recurrent: readonly GPUBuffer[];
  readonly batch: GPUBuffer;
  /** Rounded activations of the next matmuls. */
  readonly rounded: GPUBuffer;
  readonly prepared: GPUBuffer;
  readonly tiles: GPUBuffer;
  /** Partial results of attention over parts of the context. */
  readonly partials: GPUBuffer;
  readonly best: GPUBuffer;
  readonly bestParts: GPUBuffer;
  readonly bestOne: GPUBuffer;
  /** Results on their way to the host. */
  readonly read: GPUBuffer;
  /** The same of batches submitted ahead, one for each. */
  readonly lookahead: readonly GPUBuffer[];
  /** The slot of each expert, by Layout.experts. */
  readonly expertTables: readonly GPUBuffer[];
  /** A cache block that is being copied: a buffer cannot be copied onto itself. */
  readonly block: GPUBuffer;
}

/**
 * The memory that a loaded model needs besides its buffers: WebGPU copies each write on its way to the GPU, and a device without memory for it is
 * lost. So as much must be free whenever something is allocated. Measured with a layer below Dawn that counts: test/backends/gpu-memory.test.ts.
 */
function spareBytes({ plan }: Layout): number {
  const taken = sectionsOf(plan.graph).map(({ takes }) => crossFloats(takes, plan.limits) * 4);
  return STAGING_BYTES + PIECE_BYTES + Math.max(0, ...taken);
}

/** Bytes of the ring of small writes, which Dawn keeps. */
const STAGING_BYTES = 4 * 2 ** 20;

const held: number = usage.storage | usage.copySource | usage.copyTarget;

type MakeBuffer = (label: string, size: number, bits: number) => GPUBuffer;

/** Allocates everything, with the blocks that the cache holds from the start; or throws a MemoryError and holds nothing. */
export async function allocate(gpu: GpuDevice, layout: Layout): Promise<Buffers> {
  const first = (group: number) => groupCapacity(layout.kv, group).held;
  const buffers = await allocateWith(gpu, layout, (make) => ({
    weights: layout.weights.buffers.map((bytes, i) => make(`weights ${i}`, bytes, held)),
    slots: layout.slotBytes.map((bytes, i) => make(`slot ${i}`, bytes, held)),
    ...makeCache(layout, first, make),
    recurrent: layout.recurrentBytes.map((bytes, i) => make(`recurrent ${i}`, bytes, held)),
    batch: make("batch", layout.batch.words * 4, held),
    rounded: make("rounded", layout.roundedBytes, held),
    prepared: make("prepared", layout.preparedBytes, held),
    tiles: make("tiles", layout.tileBytes, held),
    partials: make("partials", layout.partialBytes, held),
    best: make("best", layout.bestBytes, held),
    bestParts: make("best of parts", layout.bestPartBytes, held),
    bestOne: make("best one", layout.bestOneBytes, held),
    read: make("read", layout.readBytes, usage.mapRead | usage.copyTarget),
    lookahead: Array.from({ length: MOST_SUBMITTED }, (_, i) =>
      make(`lookahead ${i}`, layout.lookaheadBytes, usage.mapRead | usage.copyTarget),
    ),
    expertTables: layout.experts.map(({ experts }, i) => make(`experts ${i}`, experts * 4, held)),
    block: make("block", layout.kvBlockBytes, usage.copySource | usage.copyTarget),
  }));
  try {
    await release(gpu, [await trySpare(gpu, layout)]);
    return buffers;
  } catch (error) {
    await release(gpu, all(buffers)).catch(() => undefined);
    throw error;
  }
}

function all(buffers: Buffers): GPUBuffer[] {
  const { weights, slots, keys, values, recurrent, lookahead, expertTables, ...single } = buffers;
  const several = [weights, slots, keys, values, recurrent, lookahead, expertTables].flat();
  return [...several, ...Object.values(single)];
}

/** The memory that must be left for a loaded model besides its buffers; a MemoryError if it is not. To be destroyed at once. */
async function trySpare(gpu: GpuDevice, layout: Layout): Promise<GPUBuffer> {
  const bits = usage.mapWrite | usage.copySource; // as the copies of writes
  return await allocateWith(gpu, layout, (make) => make("spare", spareBytes(layout), bits));
}

/** Layers whose caches are made at once while others compute. */
const LAYERS_AT_ONCE = 2;

/**
 * Empty buffers for a cache of `blocks` blocks of each group; or a MemoryError. A few at a time, so that this thread can submit
 * batches in between: a driver takes up to a millisecond for each. `pause`: waited for before each of them.
 */
export async function allocateCache(
  gpu: GpuDevice,
  layout: Layout,
  blocks: readonly number[],
  pause?: () => Promise<void>,
): Promise<CacheBuffers> {
  const sizes = kvBytesOf(layout.plan.graph, layout.kvBlocks, (group) => blocks[group]!);
  const made: { keys: GPUBuffer; values: GPUBuffer }[] = [];
  try {
    while (made.length < sizes.length) {
      await pause?.();
      const first = made.length;
      const next = sizes.slice(first, first + LAYERS_AT_ONCE);
      made.push(
        ...(await allocateWith(gpu, layout, (make) =>
          next.map((bytes, i) => makeLayer(first + i, bytes, make)),
        )),
      );
    }
    (await trySpare(gpu, layout)).destroy(); // free as soon as the submitted work is done: no code waits for that
  } catch (error) {
    await release(
      gpu,
      made.flatMap(({ keys, values }) => [keys, values]),
    ).catch(() => undefined);
    throw error;
  }
  return { keys: made.map(({ keys }) => keys), values: made.map(({ values }) => values) };
}

function makeCache(
  { plan, kvBlocks }: Layout,
  blocksOf: (group: number) => number,
  make: MakeBuffer,
): CacheBuffers {
  const layers = kvBytesOf(plan.graph, kvBlocks, blocksOf).map((bytes, i) =>
    makeLayer(i, bytes, make),
  );
  return { keys: layers.map(({ keys }) => keys), values: layers.map(({ values }) => values) };
}

function makeLayer(
  layer: number,
  { keys, values }: KvBlockBytes,
  make: MakeBuffer,
): { keys: GPUBuffer; values: GPUBuffer } {
  return {
    keys: make(`keys ${layer}`, keys, held),
    values: make(`values ${layer}`, values, held),
  };
}

/** The buffers that `makeAll` makes; where the device has no memory for them, a MemoryError, and none is left. */
async function allocateWith<T>(
  gpu: GpuDevice,
  layout: Layout,
  makeAll: (make: MakeBuffer) => T,
): Promise<T> {
  const { device } = gpu;
  const made: GPUBuffer[] = [];
  device.pushErrorScope("out-of-memory");
  device.pushErrorScope("validation");
  const buffers = makeAll((label, size, bits) => {
    const buffer = device.createBuffer({ label, size: Math.max(size, 16), usage: bits });
    made.push(buffer);
    return buffer;
  });
  const invalid = await gpu.wait(device.popErrorScope());
  const full = await gpu.wait(device.popErrorScope());
  if (!invalid && !full) return buffers;
  await release(gpu, made);
  throw outOfMemory(gpu.facts, layout.use, (full ?? invalid)!);
}

/** Copies a cache into the beginning of a larger one, and destroys it after that. */
export function moveCache(gpu: GpuDevice, from: CacheBuffers, to: CacheBuffers): void {
  const { device } = gpu;
  const commands = device.createCommandEncoder();
  const old = [...from.keys, ...from.values];
  const larger = [...to.keys, ...to.values];
  old.forEach((buffer, i) => {
    commands.copyBufferToBuffer(buffer, 0, larger[i]!, 0, buffer.size);
  });
  device.queue.submit([commands.finish()]);
  for (const buffer of old) buffer.destroy(); // submitted work may still read it
}

/** Makes the state of all sequences 0, after everything that was submitted before. */
export function clearState({ device }: GpuDevice, { keys, values, recurrent }: Buffers): void {
  const commands = device.createCommandEncoder();
  for (const buffer of [...keys, ...values, ...recurrent]) commands.clearBuffer(buffer);
  device.queue.submit([commands.finish()]);
}

/** Writes every buffer but those of weights: a driver may give their memory only then. */
export function clearWork({ device }: GpuDevice, buffers: Buffers): void {
  const commands = device.createCommandEncoder();
  const kept = new Set([...buffers.weights, ...buffers.expertTables]);
  for (const buffer of all(buffers)) if (!kept.has(buffer)) commands.clearBuffer(buffer);
  device.queue.submit([commands.finish()]);
}

/** Destroys buffers, and waits until their memory is free: a GPU keeps it until all submitted work is done. */
async function release(gpu: GpuDevice, buffers: readonly GPUBuffer[]): Promise<void> {
  const { queue } = gpu.device;
  for (const buffer of buffers) buffer.destroy();
  queue.submit([]);
  await gpu.wait(queue.onSubmittedWorkDone());
}

/** Whether there is memory for everything, by allocating it for a moment. */
export async function hasCapacity(gpu: GpuDevice, layout: Layout): Promise<boolean> {
  try {
    await release(gpu, all(await allocate(gpu, layout)));
    return true;
  } catch (error) {
    if (error instanceof MemoryError) return false;
    throw error;
  }
}

function outOfMemory(facts: GpuFacts, use: MemoryUse, cause: GPUError): MemoryError {
  const total = use.weightBytes + use.kvBytes + use.workBytes;
  return new MemoryError(
    `the GPU "${facts.name}" has too little memory for this model, which needs ${memoryText(total)} (weights ${memoryText(use.weightBytes)}, KV cache ${memoryText(use.kvBytes)}, working memory ${memoryText(use.workBytes)}). Use a smaller contextSize or kvType, a smaller model, or \`backend: "cpu"\``,
    { cause: new Error(cause.message) },
  );
}

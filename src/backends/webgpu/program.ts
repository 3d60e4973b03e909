// The program of the GPU: for every group of nodes its kernels with pipelines and bindings, all made when the model is loaded.
// A batch only encodes them and creates nothing but command buffers. Taps use a second program that runs node by node, made
// when the first tap comes.

import { kvPair } from "../../dtypes/kv-types.ts";
import type { RowCounts } from "../../graph/batch.ts";
import {
  type GraphNode,
  isBidirectional,
  type KvState,
  kvStates,
  type RecurrentState,
  recurrentStates,
  sectionsOf,
  type Value,
  weightsOf,
} from "../../graph/graph.ts";
import { type Buffers, gatheredBytes, type Layout } from "./buffers.ts";
import { type GpuDevice, type GpuFacts, withoutBuildPaths } from "./device.ts";
import type { ExactArithmetic } from "./exact/arithmetic.ts";
import { lanesIn } from "./exact/op.ts";
import { lowerExactly } from "./exact/table.ts";
import type { ExpertRange } from "./experts/expert-ranges.ts";
import { dispatchFor } from "./layer-shape.ts";
import { mergeLayers } from "./layers.ts";
import { lowerGroup } from "./lower.ts";
import type { LowerContext } from "./ops/op.ts";
import { lowerNode } from "./ops/table.ts";
import { resultsOf } from "./results.ts";
import type { Tuning } from "./tuning.ts";
import { usage } from "./usage.ts";
import type { WeightPart } from "./weight-layout.ts";
import { bestLogitsKernels } from "./wgsl/best-logits.ts";
import { bestOneKernels } from "./wgsl/best-one.ts";
import type { Grid, Kernel, Source } from "./wgsl/kernel.ts";
import { type MatrixCalls, matrixCallsOf } from "./wgsl/matrix-calls.ts";
import { fittingExperts, fittingMatrices } from "./wgsl/matrix-shapes.ts";
import { exchangeFor } from "./wgsl/subgroups.ts";

/** One kernel, ready to run. */
export interface Dispatch {
  readonly kernel: Kernel;
  readonly pipeline: GPUComputePipeline;
  readonly bindings: GPUBindGroup;
}

/** Nodes that are computed by the same dispatches. */
export interface ProgramPart {
  readonly nodes: readonly GraphNode[];
  readonly dispatches: readonly Dispatch[];
}

export interface Program {
  /** In topological order. */
  readonly parts: readonly ProgramPart[];
  /** For each section of the graph, the index behind its last part. */
  readonly ends: readonly number[];
  /** The parts that are submitted at once, for each section. */
  readonly steps: readonly (readonly Step[])[];
  /** The number of different shaders. */
  readonly pipelines: number;
  /** The most tokens of batches that have the bits of single tokens. */
  readonly sameBitsTokens: number;
  /** The kernels that find the best logits of every row, after all parts; none without logits. */
  readonly best: readonly Dispatch[];
  /** The same where only one of each row is wanted. */
  readonly bestOne: readonly Dispatch[];
  /**
   * The words that workgroups of layer kernels exchange; the first is not 0 if the exchange failed. undefined: there are
   * none.
   */
  readonly exchange?: GPUBuffer | undefined;
  /** Whether they can draw the tokens of the next batch, which then follows without the host. */
  readonly looksAhead: boolean;
  /** The keys of the cache that it reads and writes. */
  readonly keys: readonly GPUBuffer[];
}

/** Parts that run without the host in between, and the values that are copied to it after them. */
export interface Step {
  readonly from: number;
  readonly to: number;
  readonly results: readonly Value[];
  /** Experts whose slots the host fills before: the parts run once for each pass. */
  readonly experts?: ExpertRange;
  /** The layer whose matrices are brought before (stream/). */
  readonly unit?: number;
}

/** By their text. Layers differ in their bindings, not in their text: each text is compiled once, all in parallel. */
export type Pipelines = Map<string, Promise<GPUComputePipeline>>;

export interface ProgramOptions {
  /** Compute with the bits of this arithmetic; undefined: as fast as the GPU can. */
  readonly exact: ExactArithmetic | undefined;
  /** Rows of activations that half floats cannot hold stay as they are. No ops are fused then. */
  readonly wide: boolean;
  /** The calls of matrix units; undefined: as this GPU has them. */
  readonly matrixCalls: MatrixCalls | undefined;
}

/** The groups of the layout, or each node alone. */
export async function makeProgram(
  gpu: GpuDevice,
  layout: Layout,
  buffers: Buffers,
  tuning: Tuning,
  by: "groups" | "nodes",
  pipelines: Pipelines,
  { exact, wide, matrixCalls }: ProgramOptions,
): Promise<Program> {
  const { device } = gpu;
  const pipelineOf = (kernel: Kernel): Promise<GPUComputePipeline> => {
    const known = pipelines.get(kernel.code);
    if (known) return known;
    const made = compile(device, kernel);
    pipelines.set(kernel.code, made);
    return made;
  };
  const ready = async (kernel: Kernel): Promise<Dispatch> => {
    const pipeline = await pipelineOf(kernel);
    return { kernel, pipeline, bindings: bind(kernel, pipeline) };
  };
  const { parts: lowered, exchangeWords } = await lowerFor(gpu, layout, tuning, by, {
    exact,
    wide,
    matrixCalls,
  });
  const exchange = exchangeWords > 0 ? exchangeBuffer(device, exchangeWords) : undefined;
  const bind = binderOf(device, layout, buffers, exchange);
  const parts = await gpu.wait(
    Promise.all(
      lowered.map(async ({ nodes, kernels }) => ({
        nodes,
        dispatches: await Promise.all(kernels.map(ready)),
      })),
    ),
  );
  const same = exact ? Infinity : sameBitsTokens(lowered.flatMap(({ kernels }) => kernels));
  const { logits } = layout.plan.graph.outputs;
  const found = async (kernels: typeof bestLogitsKernels): Promise<Dispatch[]> => {
    const finds = logits && by === "groups" ? kernels(logits, layout.batch, exchangeWords > 0) : [];
    return await Promise.all(finds.map(ready));
  };
  const [best, bestOne] = await gpu.wait(
    Promise.all([found(bestLogitsKernels), found(bestOneKernels)]),
  );
  const steps = stepsOf(layout, parts);
  const looksAhead = best.length > 0 && mayLookAhead(layout);
  const counts = { pipelines: pipelines.size, sameBitsTokens: same };
  return { parts, ...steps, ...counts, best, bestOne, looksAhead, exchange, keys: buffers.keys };
}

/** The kernels of a program. */
async function lowerFor(
  { device, facts }: GpuDevice,
  layout: Layout,
  tuning: Tuning,
  by: "groups" | "nodes",
  { exact, wide, matrixCalls }: ProgramOptions,
): Promise<ReturnType<typeof mergeLayers>> {
  if (exact) {
    return { parts: lowerPlanExactly(facts, layout, exact, wide), exchangeWords: 0 };
  }
  const calls = matrixCalls ?? (facts.subgroupMatrix ? await matrixCallsOf(device) : undefined);
  const dispatch = layout.weights.streamed
    ? undefined
    : dispatchFor(layout.plan.graph, tuning.layerDispatch);
  const shapeFor = dispatch?.shapeFor ?? tuning.shapeFor;
  const parts = lowerPlan(facts, layout, { ...tuning, shapeFor }, calls, by, wide);
  if (!dispatch || by === "nodes") return { parts, exchangeWords: 0 };
  return mergeLayers(parts, layout, facts, dispatch);
}

/** All words are 0. */
function exchangeBuffer(device: GPUDevice, words: number): GPUBuffer {
  const size = words * 4;
  return device.createBuffer({ label: "exchange", size, usage: usage.storage | usage.copySource });
}

/**
 * Whether batches can follow one another without the host: it has no part in them, and they write behind the old state, or to spare slots.
 */
function mayLookAhead({ plan: { graph }, experts }: Layout): boolean {
  if (sectionsOf(graph).length > 1 || experts.length > 0) return false;
  return !isBidirectional(graph);
}

/** The ends of sections, and the points where the host takes part in between. */
function stepsOf(
  { plan: { graph }, experts, weights: { streamed } }: Layout,
  parts: readonly ProgramPart[],
): Pick<Program, "ends" | "steps"> {
  const indices = new Map(graph.nodes.map((node, index) => [node, index]));
  const starts = parts.map(({ nodes }) => indices.get(nodes[0]!)!);
  /** The first part that begins with this node or a later one. */
  const partOf = (node: number): number => {
    const found = starts.findIndex((start) => start >= node);
    return found < 0 ? parts.length : found;
  };
  const sections = sectionsOf(graph);
  const ends = sections.map(({ to }) => partOf(to));
  const steps = sections.map((section, i): Step[] => {
    if (streamed) {
      const whole = { from: ends[i - 1] ?? 0, to: ends[i]!, results: resultsOf(graph, i) };
      return stepsByUnit(parts, whole, streamed.unitOf);
    }
    const own = experts.filter(({ from }) => from >= section.from && from < section.to);
    let from = ends[i - 1] ?? 0;
    const before = own.flatMap((range): Step[] => {
      const [first, last] = [partOf(range.from), partOf(range.to)];
      const ahead = { from, to: first, results: [range.routes] };
      from = last;
      return [ahead, { from: first, to: last, results: [], experts: range }];
    });
    return [...before, { from, to: ends[i]!, results: resultsOf(graph, i) }];
  });
  return { ends, steps };
}

/** A step for each layer whose matrices are brought. */
function stepsByUnit(
  parts: readonly ProgramPart[],
  { from, to, results }: Step,
  unitOf: ReadonlyMap<string, number>,
): Step[] {
  const steps: Step[] = [];
  let [first, unit] = [from, undefined as number | undefined];
  for (let i = from; i < to; i++) {
    const read = parts[i]!.nodes.flatMap(weightsOf).map(({ name }) => unitOf.get(name));
    for (const own of read) {
      if (own === undefined || own === unit) continue;
      if (own !== (unit ?? -1) + 1) throw new Error(`webgpu: layer ${own} after layer ${unit}`);
      if (unit !== undefined) {
        steps.push({ from: first, to: i, results: [], unit });
        first = i;
      }
      unit = own;
    }
  }
  return [...steps, { from: first, to, results, ...(unit !== undefined && { unit }) }];
}

/** The same program over the present cache, which may have grown: nothing is lowered or compiled again. */
export function withCache(
  { device }: GpuDevice,
  program: Program,
  layout: Layout,
  buffers: Buffers,
): Program {
  if (program.keys === buffers.keys) return program;
  const bind = binderOf(device, layout, buffers, program.exchange);
  const again = (dispatch: Dispatch): Dispatch => {
    const { kernel, pipeline } = dispatch;
    if (!kernel.sources.some(({ kind }) => kind === "keys" || kind === "values")) return dispatch;
    return boundLater(kernel, pipeline, bind);
  };
  const parts = program.parts.map(({ nodes, dispatches }) => ({
    nodes,
    dispatches: dispatches.map(again),
  }));
  return { ...program, parts, keys: buffers.keys };
}

type Bind = (kernel: Kernel, pipeline: GPUComputePipeline) => GPUBindGroup;

/** Binds when a batch first uses the kernel: Dawn takes up to 50 us for each, and a batch uses few of those that read the cache. */
function boundLater(kernel: Kernel, pipeline: GPUComputePipeline, bind: Bind): Dispatch {
  let bindings: GPUBindGroup | undefined;
  return {
    kernel,
    pipeline,
    get bindings() {
      bindings ??= bind(kernel, pipeline);
      return bindings;
    },
  };
}

function binderOf(
  device: GPUDevice,
  layout: Layout,
  buffers: Buffers,
  exchange: GPUBuffer | undefined,
): Bind {
  const tables = new Map<Uint32Array, GPUBuffer>();
  return ({ name, sources }, pipeline) =>
    device.createBindGroup({
      label: name,
      layout: pipeline.getBindGroupLayout(0),
      entries: sources.map((source, binding) => ({
        binding,
        resource:
          source.kind === "exchange"
            ? { buffer: exchange! }
            : resourceOf(source, device, layout, buffers, tables),
      })),
    });
}

/** The kernels of a plan, before anything is compiled. */
export function lowerPlan(
  facts: GpuFacts,
  layout: Layout,
  tuning: Tuning,
  calls: MatrixCalls | undefined,
  by: "groups" | "nodes",
  wide = false,
): { nodes: readonly GraphNode[]; kernels: Kernel[] }[] {
  const bytes = facts.workgroupStorageBytes;
  const fitting = (shapes: Tuning["matrices"]) =>
    shapes.map((shape) => fittingMatrices(shape, bytes)).filter((shape) => shape !== undefined);
  const [shapes, wideShapes] = [fitting(tuning.matrices), fitting(tuning.wideMatrices)];
  const hasShapes = shapes.length > 0 && wideShapes.length > 0;
  const experts = tuning.expertMatrices && fittingExperts(tuning.expertMatrices, bytes);
  const context: LowerContext = {
    weights: layout.weights,
    batch: layout.batch,
    split: layout.split,
    kv: layout.kvFormats,
    workgroupBytes: facts.workgroupStorageBytes,
    storageBuffers: facts.storageBuffers,
    exchange: exchangeFor(facts.subgroups),
    shapeFor: tuning.shapeFor,
    smallBatch: tuning.smallBatch,
    packedDots: tuning.packedDots,
    attentionSize: tuning.attentionSize,
    promptAttentionSize: tuning.promptAttentionSize,
    matrixAttention: tuning.matrixAttention,
    matrices: calls && hasShapes ? { shapes, wideShapes, experts, calls, bytes } : undefined,
    wide,
    rounded: {},
    tiles: {},
    normed: new Map(),
    sharesSlot: (one, other) => layout.slotOf[one.id] === layout.slotOf[other.id],
    hasRowsFor: (node) => gatheredBytes(node, layout.plan.limits) <= layout.roundedBytes,
    slotsOf: (routes) => layout.experts.find((range) => range.routes === routes)?.slots,
  };
  const { nodes } = layout.plan.graph;
  const repeated = new Set(layout.experts.map(({ from }) => nodes[from]!));
  // A second pass over experts finds the activations of their last matmul in the buffer.
  const begin = (node: GraphNode) => {
    if (repeated.has(node))
      Object.assign(context.rounded, { value: undefined, gathered: undefined });
  };
  return by === "groups" && !wide
    ? layout.groups.map((group) => {
        begin(group.nodes[0]!);
        return { nodes: group.nodes, kernels: lowerGroup(group, context) };
      })
    : nodes.map((node) => {
        begin(node);
        return { nodes: [node], kernels: lowerNode(node, context) };
      });
}

/** The kernels of a plan that compute with the bits of the CPU. */
export function lowerPlanExactly(
  { packedDots, isSoftware }: GpuFacts,
  { plan, weights, batch, kv, kvFormats, context }: Layout,
  arithmetic: ExactArithmetic,
  wide = false,
): { nodes: readonly GraphNode[]; kernels: Kernel[] }[] {
  const { graph } = plan;
  return lowerExactly(graph, {
    arithmetic,
    lanes: lanesIn(graph, kvPair(kv.dtype).k.name, arithmetic),
    weights,
    batch,
    kvTypes: kvPair(kv.dtype),
    kv: kvFormats,
    context,
    // A processor that plays a GPU takes them apart, and long to compile.
    packedDots: packedDots && !isSoftware,
    wide,
    rounded: {},
  });
}

async function compile(device: GPUDevice, { name, code }: Kernel): Promise<GPUComputePipeline> {
  const module = device.createShaderModule({ label: name, code });
  try {
    return await device.createComputePipelineAsync({
      label: name,
      layout: "auto",
      compute: { module, entryPoint: "main" },
    });
  } catch (cause) {
    // WebGPU reports a shader's errors only on request.
    const { messages } = await module.getCompilationInfo();
    const facts = messages.map(
      ({ lineNum, message }) => `line ${lineNum}: ${withoutBuildPaths(message)}`,
    );
    throw new Error(`webgpu: kernel "${name}" was refused. ${facts.join("; ")}`, { cause });
  }
}

/** Resources that belong to the model. */
type ModelSource = Exclude<Source, { kind: "exchange" }>;

type Resources = {
  readonly [K in ModelSource["kind"]]: (source: Extract<Source, { kind: K }>) => GPUBufferBinding;
};

function resourceOf(
  source: ModelSource,
  device: GPUDevice,
  { slotOf, weights, plan, experts }: Layout,
  buffers: Buffers,
  tables: Map<Uint32Array, GPUBuffer>,
): GPUBufferBinding {
  const bound = (part: WeightPart, plane: "narrow" | undefined): GPUBufferBinding => {
    const { offset, bytes } = part[plane ?? "wide"]!;
    return { buffer: buffers.weights[part.buffer]!, offset, size: bytes };
  };
  /** The index of a state's cache buffers, of which each KvState has its own. */
  const kvIndex = (state: number) =>
    kvStates(plan.graph).indexOf(plan.graph.states[state] as KvState);
  const recurrentIndex = (state: number) =>
    recurrentStates(plan.graph).indexOf(plan.graph.states[state] as RecurrentState);
  const resources: Resources = {
    value: ({ value }) => ({ buffer: buffers.slots[slotOf[value.id]!]! }),
    weight: ({ weight, part, plane }) => bound(weights.parts.get(weight.name)![part]!, plane),
    stack: ({ weight, plane }) => bound(weights.stacks.get(weight.name)!, plane),
    keys: ({ state }) => ({ buffer: buffers.keys[kvIndex(state)]! }),
    values: ({ state }) => ({ buffer: buffers.values[kvIndex(state)]! }),
    recurrent: ({ state }) => ({ buffer: buffers.recurrent[recurrentIndex(state)]! }),
    batch: () => ({ buffer: buffers.batch }),
    rounded: () => ({ buffer: buffers.rounded }),
    prepared: () => ({ buffer: buffers.prepared }),
    tiles: () => ({ buffer: buffers.tiles }),
    partials: () => ({ buffer: buffers.partials }),
    best: () => ({ buffer: buffers.best }),
    bestParts: () => ({ buffer: buffers.bestParts }),
    bestOne: () => ({ buffer: buffers.bestOne }),
    slots: ({ routes }) => {
      const index = experts.findIndex((range) => range.routes === routes);
      return { buffer: buffers.expertTables[index]! };
    },
    table: ({ words }) => ({ buffer: tableBuffer(words, device, tables) }),
  };
  return (resources[source.kind] as (source: Source) => GPUBufferBinding)(source);
}

/** The buffer of a codebook, which all weights of a type share. */
function tableBuffer(
  words: Uint32Array,
  device: GPUDevice,
  tables: Map<Uint32Array, GPUBuffer>,
): GPUBuffer {
  const known = tables.get(words);
  if (known) return known;
  const buffer = device.createBuffer({
    label: "codebook",
    size: words.byteLength,
    usage: usage.storage | usage.copyTarget,
  });
  device.queue.writeBuffer(buffer, 0, words as Uint32Array<ArrayBuffer>);
  tables.set(words, buffer);
  return buffer;
}

/** Whether a kernel runs in a batch of this size. */
export function runsIn({ rows, part, minRows, maxRows }: Kernel, counts: RowCounts): boolean {
  if (part && counts[part] === 0) return false;
  return counts[rows]! >= minRows && counts[rows]! <= maxRows;
}

/** The workgroups of a kernel in a batch of this size. */
export function gridIn({ rows, part, grid }: Kernel, counts: RowCounts): Grid {
  return grid(counts[part ?? rows]!);
}

/**
 * The most tokens of batches that have the bits of single tokens, if all of their tokens are outputs: up to where another kernel takes
 * over that sums in another order. A kernel for any number of rows computes each by itself.
 */
function sameBitsTokens(kernels: readonly Kernel[]): number {
  const changes = kernels
    .filter(({ sameBits }) => !sameBits)
    .map(({ minRows, maxRows }) => (minRows > 1 ? minRows - 1 : maxRows));
  return Math.min(Infinity, ...changes);
}

/** Encodes the kernels of one part for a batch of this size. */
export function encodePart(
  pass: GPUComputePassEncoder,
  dispatches: readonly Dispatch[],
  counts: RowCounts,
): void {
  for (const { kernel, pipeline, bindings } of dispatches) {
    if (!runsIn(kernel, counts)) continue;
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, bindings);
    pass.dispatchWorkgroups(...gridIn(kernel, counts));
  }
}

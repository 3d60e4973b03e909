// The WebGPU backend: weights as in the file, values and KV cache on the GPU; every op is a WGSL kernel, generated for this
// model when it is loaded. In Node through the npm package `webgpu` (Dawn), in a browser through navigator.gpu.
//
// A batch writes the batch area, runs all kernels and copies the logits out (batch-runner.ts). Activations are rounded to DType.activation, as in
// the reference; products and sums are float32 where docs/use/gpu.md says nothing else.

import { CallTable } from "../../base/call-table.ts";
import { AbortedError, type DeviceLostError, DisposedError } from "../../base/errors.ts";
import type { Batch } from "../../graph/batch.ts";
import {
  type GraphNode,
  kvStates,
  type OutputName,
  outputNamed,
  recurrentStates,
  type Weight,
} from "../../graph/graph.ts";
import { mostRows, type Plan } from "../../graph/plan.ts";
import type { Arithmetic } from "../../kernels/arithmetic.ts";
import {
  type Backend,
  type BackendProfile,
  type BestLogits,
  isSameCapacity,
  type KvCacheOptions,
  type MemoryNeed,
  type MemoryUse,
  type RunOptions,
  type StateTransfer,
  type WeightReader,
  wholeCapacity,
} from "../backend.ts";
import { crossFloats } from "../cross-values.ts";
import { BatchArea } from "./batch-area.ts";
import { BatchRunner } from "./batch-runner.ts";
import { BatchTimes } from "./batch-times.ts";
import {
  allocate,
  allocateCache,
  type Buffers,
  clearState,
  clearWork,
  hasCapacity,
  type Layout,
  layOut,
  moveCache,
} from "./buffers.ts";
import { BatchCommands } from "./commands.ts";
import { type GpuDevice, type GpuFacts, gpuIdentity } from "./device.ts";
import type { ExactArithmetic } from "./exact/arithmetic.ts";
import { checkExactness } from "./exact/check.ts";
import { supportsExactly } from "./exact/table.ts";
import { HostExperts } from "./experts/host-experts.ts";
import { dispatchFor } from "./layer-shape.ts";
import { Lookahead } from "./lookahead.ts";
import {
  exactNote,
  expertNotes,
  layerNotes,
  lookaheadNotes,
  programNotes,
  streamNote,
  subgroupNotes,
  warmUpNote,
} from "./notes.ts";
import { supportsNode } from "./ops/table.ts";
import type { Prepared } from "./prepared.ts";
import { makeProgram, type Pipelines, type Program, withCache } from "./program.ts";
import { ReadOut } from "./read-out.ts";
import { recordCalls } from "./record-calls.ts";
import { SlotPlaces } from "./slot-places.ts";
import { HostRows } from "./stream/host-rows.ts";
import { withoutEmbeddings } from "./stream/stream-layout.ts";
import type { StreamSource } from "./stream/stream-source.ts";
import { WeightStream } from "./stream/weight-stream.ts";
import { dispatchesOf, type KernelTime, timeBatch, timeKernels } from "./time-kernels.ts";
import { gpuTransfer } from "./transfer.ts";
import {
  type GpuTuningControls,
  type KernelFilter,
  type Tuning,
  tuningFor,
  withLayers,
} from "./tuning.ts";
import { Uploader } from "./upload.ts";
import { WARM_UP_MS, type WarmedUp, warmUp } from "./warm-up.ts";
import { BEST } from "./wgsl/best-logits.ts";
import type { Kernel } from "./wgsl/kernel.ts";
import type { MatrixCalls } from "./wgsl/matrix-calls.ts";
import { roundsToHalves } from "./wgsl/round-activations.ts";

/** The most tokens of a batch. */
const HARDWARE_BATCH = 512;
/** The same for software adapters, and of exact kernels, which have a row of scores for each token. */
const SMALL_BATCH = 32;

export interface WebGpuOptions {
  /** Default: that for GPUs like this one. */
  readonly tuning?: Tuning | undefined;
  /** Notes on the tuning, for --explain. */
  readonly notes?: readonly string[] | undefined;
  /** Record times for a profile. */
  readonly profile?: boolean | undefined;
  /** Compute with the bits of this arithmetic, the CPU's; undefined: as fast as the GPU can. */
  readonly exact?: Arithmetic | undefined;
  /** Batches that may be submitted before the host asks for them; 0: none. Default: the fastest number. */
  readonly ahead?: number | undefined;
  /** Experts of each layer that lie in GPU memory at a time, the rest in the host's; undefined: all. */
  readonly expertSlots?: number | undefined;
  /** Has the matrices of layers, which are then brought for each batch and not in GPU memory (stream/); undefined: they are. */
  readonly stream?: StreamSource | undefined;
  /** Matrix units, for tests without them. */
  readonly matrixCalls?: MatrixCalls | undefined;
  /** The most time of a warm-up in ms; 0: there is none, as by default on software adapters. */
  readonly warmUpMs?: number | undefined;
}

export class WebGpuBackend implements Backend, GpuTuningControls {
  readonly name = "webgpu";
  /** The host's thread, which only waits. */
  readonly threads = 1;
  readonly adapter: string;
  readonly computesApart = true;
  /** A GPU needs large batches to be busy; a software adapter does not. */
  readonly batchTokens: number;
  readonly #gpu: GpuDevice;
  #tuning: Tuning;
  /** The recorded calls of the API; undefined: no profile is wanted. */
  readonly #calls: CallTable | undefined;
  readonly #exact: Arithmetic | undefined;
  /** The device's arithmetic for it, once that was checked. */
  #exactHere: ExactArithmetic | undefined;
  readonly #expertSlots: number | undefined;
  readonly #matrixCalls: MatrixCalls | undefined;
  readonly #mostAhead: number | undefined;
  readonly #stream: StreamSource | undefined;
  /** The plan that was given, and the one that is computed here. */
  #streamed: { readonly of: Plan; readonly plan: Plan } | undefined;
  readonly #notes: readonly string[];
  readonly #runner: BatchRunner;
  readonly #pipelines: Pipelines;
  #layout: Layout | undefined;
  #prepared: Prepared | undefined;
  /** The program that runs node by node, made by the first tap or batch without logits. */
  #byNodes: Promise<Program> | undefined;
  /** Rows of activations that half floats cannot hold stay as they are; see widen(). */
  #isWide = false;
  /** Layers were one dispatch, and its workgroups could not wait for each other. */
  #gaveUp = false;
  #disposed = false;
  /** Memory was asked for. */
  #hasTried = false;
  #ended: Promise<void> | undefined;
  readonly #warmUpMs: number;
  #warmedUp: WarmedUp | undefined;

  /** Owns the GPU from now on: dispose() disposes of it. */
  constructor(gpu: GpuDevice, options: WebGpuOptions = {}) {
    const { tuning, notes = [], profile, exact, expertSlots, ahead } = options;
    this.#matrixCalls = options.matrixCalls;
    this.#stream = options.stream;
    this.#mostAhead = ahead ?? gpu.ahead;
    this.#exact = exact;
    this.#expertSlots = expertSlots;
    this.#gpu = gpu;
    this.#pipelines = gpu.pipelines;
    this.adapter = gpuIdentity(gpu.facts);
    this.#tuning = withLayers(tuning ?? tuningFor(gpu.facts), gpu.facts, gpu.layerGroups);
    this.#notes = notes;
    this.#calls = profile ? new CallTable() : undefined;
    this.#runner = new BatchRunner(gpu, () => this.#ready(), {
      nodeByNode: () => this.#nodeByNode(this.#ready()),
      overCache: (program) => this.#overCache(program),
    });
    this.#warmUpMs = options.warmUpMs ?? (gpu.facts.isSoftware ? 0 : WARM_UP_MS);
    this.batchTokens = gpu.facts.isSoftware || exact ? SMALL_BATCH : HARDWARE_BATCH;
  }

  get wasAhead(): boolean {
    return this.#runner.wasAhead;
  }

  get lost(): Promise<DeviceLostError> {
    return this.#gpu.lost;
  }

  get mostBest(): number {
    return this.#ready().program.best.length > 0 ? BEST : 0;
  }

  /** Small and large batches sum in different orders, unless they do as the processor does. */
  get sameBitsTokens(): number {
    return this.#prepared?.program.sameBitsTokens ?? 1;
  }

  supports(node: GraphNode): true | string {
    return this.#exact ? supportsExactly(node) : supportsNode(node, this.#gpu.facts.storageBuffers);
  }

  measure(plan: Plan, kv: KvCacheOptions): MemoryNeed {
    this.#alive();
    const { use, hostBytes } = this.#layOut(plan, kv);
    const { facts } = this.#gpu;
    return {
      ...use,
      weightBytes: use.weightBytes + hostBytes,
      // WebGPU does not give a GPU's memory size: prepare() finds it.
      limitBytes: (facts.memoryBytes ?? Number.POSITIVE_INFINITY) + hostBytes,
      deviceBytes: facts.isSoftware ? 0 : use.weightBytes + use.kvBytes + use.workBytes,
    };
  }

  /** Before memory is asked for: a device on which nothing was tried before. */
  async #fresh(): Promise<void> {
    if (this.#hasTried) await this.#gpu.renew();
    this.#hasTried = true;
  }

  async fits(plan: Plan, kv: KvCacheOptions): Promise<boolean> {
    this.#alive();
    await this.#fresh();
    // Tries the whole cache, so that there is memory to grow into.
    return await hasCapacity(this.#gpu, this.#layOutAnew(this.#planOf(plan), wholeCapacity(kv)));
  }

  async prepare(plan: Plan, kv: KvCacheOptions): Promise<void> {
    this.#alive();
    const layout = this.#layOut(plan, kv);
    await this.#fresh();
    if (this.#calls) recordCalls(this.#gpu.device, this.#calls);
    if (this.#exact) this.#exactHere = await checkExactness(this.#gpu, this.#exact);
    this.#stream?.open(plan.graph.weights.filter(({ shape }) => shape.length > 1));
    try {
      const buffers = await allocate(this.#gpu, layout);
      const uploader = new Uploader(
        this.#gpu,
        layout.weights,
        buffers.weights,
        this.#exact !== undefined,
      );
      const program = await this.#makeProgram(layout, buffers, "groups");
      const { experts } = layout;
      const tables = buffers.expertTables;
      const places = new SlotPlaces(recurrentStates(plan.graph).length > 0 ? (kv.slots ?? 0) : 0);
      const stream = this.#stream && {
        weights: await WeightStream.make(this.#gpu, layout.weights, buffers.weights, this.#stream),
        rows: new HostRows(plan.graph, plan.limits, this.#stream),
      };
      this.#prepared = {
        layout,
        stream,
        experts: new HostExperts(
          this.#gpu.device,
          layout.weights,
          buffers.weights,
          experts,
          tables,
        ),
        routes: new Float32Array(
          Math.max(0, ...experts.map(({ routes }) => crossFloats([routes], plan.limits))),
        ),
        buffers,
        program,
        uploader,
        area: new BatchArea(layout.batch, uploader.vectors, places),
        commands: this.#batchCommands(layout, buffers),
        times: this.#batchTimes(program),
        out: new ReadOut(this.#gpu, layout, buffers),
        lookahead: this.#newLookahead(plan, places),
        places,
      };
    } catch (error) {
      throw await this.#gpu.explain(error);
    }
  }

  async upload(weight: Weight, read: WeightReader): Promise<void> {
    const { uploader, experts, layout } = this.#ready();
    const { parts, streamed } = layout.weights;
    if (streamed?.unitOf.has(weight.name) || !parts.has(weight.name)) return;
    try {
      await (experts.has(weight) ? experts : uploader).upload(weight, read);
    } catch (error) {
      throw await this.#gpu.explain(error);
    }
  }

  async warmUp(contextSize: number, onlyLargest: boolean = false): Promise<void> {
    const prepared = this.#ready();
    const { layout, program } = prepared;
    // A profile shows all computed batches, and slots of experts all uses.
    const mostMs = this.#warmUpMs;
    if (mostMs === 0 || this.#calls || layout.experts.length > 0 || this.#stream) return;
    const now = () => performance.now();
    const run = (batch: Batch, options: RunOptions) => this.run(batch, options);
    const parts = { layout, program, contextSize, mostMs, onlyLargest, run, now };
    try {
      clearWork(this.#gpu, prepared.buffers);
      const warmedUp = await warmUp(parts);
      if (!onlyLargest) this.#warmedUp = warmedUp;
    } catch (error) {
      throw await this.#gpu.explain(error);
    }
    await this.#gpu.wait(this.#gpu.device.queue.onSubmittedWorkDone()); // batches submitted ahead
    prepared.lookahead.drop();
    prepared.lookahead = this.#newLookahead(layout.plan, prepared.places);
    clearState(this.#gpu, prepared.buffers);
  }

  async run(batch: Batch, options: RunOptions = {}): Promise<void> {
    if (this.#prepared?.stream) return await this.#runStreamed(batch, options);
    await this.#runner.run(batch, options);
    const { out } = this.#ready();
    if (!out.failed) return;
    // Its workgroups could not wait for each other: its results are wrong, and no layer is one dispatch any more.
    this.#gpu.layerGroups = 0;
    this.#gaveUp = true;
    // The same shapes of matmuls, and so the same bits.
    const dispatch = dispatchFor(this.#ready().layout.plan.graph, this.#tuning.layerDispatch);
    await this.retune({ ...this.#tuning, layerDispatch: dispatch && { ...dispatch, groups: 0 } });
    out.failed = false;
    await this.#runner.run(batch, { ...options, meanwhile: () => {} });
  }

  async #runStreamed(batch: Batch, options: RunOptions): Promise<void> {
    const { stream } = this.#ready();
    const { weights, rows } = stream!;
    if (options.stop?.()) throw new AbortedError("the batch");
    weights.begin();
    try {
      await this.#runner.run(batch, { ...options, input: await rows.of(batch, options) });
    } finally {
      await weights.end();
    }
  }

  /** For measuring: run(), but where workgroups could not wait for each other it is false, and nothing else happens. */
  async tryBatch(batch: Batch): Promise<boolean> {
    await this.#runner.run(batch, {});
    const { out } = this.#ready();
    const isRight = !out.failed;
    out.failed = false;
    return isRight;
  }

  read(output: OutputName, row: number, target: Float32Array): Promise<void> | void {
    const { layout, out, lookahead } = this.#ready();
    if (lookahead.ahead > 0) {
      throw new Error(`webgpu backend: "${output}" of a batch that others follow submitted ahead`);
    }
    const value = outputNamed(layout.plan.graph, output);
    if (out.row(value, row, target)) return;
    const { cols } = value;
    const commands = this.#gpu.device.createCommandEncoder();
    return out.value(commands, value, row * cols, cols, target);
  }

  readonly readsAdjusted = true;

  readBest(row: number, target: BestLogits): boolean {
    return this.#ready().out.best.read(row, target);
  }

  copyKvBlock(from: number, to: number, group?: number): void {
    const { layout, buffers } = this.#ready();
    const { device } = this.#gpu;
    const commands = device.createCommandEncoder();
    const copy = (cache: GPUBuffer, bytes: number): void => {
      commands.copyBufferToBuffer(cache, from * bytes, buffers.block, 0, bytes);
      commands.copyBufferToBuffer(buffers.block, 0, cache, to * bytes, bytes);
    };
    kvStates(layout.plan.graph).forEach((state, i) => {
      if (state.group !== (group ?? state.group)) return;
      copy(buffers.keys[i]!, layout.kvBlocks[i]!.keys);
      copy(buffers.values[i]!, layout.kvBlocks[i]!.values);
    });
    device.queue.submit([commands.finish()]); // the next batch is submitted later, so it sees the copy
  }

  async growKv(blocks: readonly number[], pause?: () => Promise<void>): Promise<void> {
    const prepared = this.#ready();
    const { layout } = prepared;
    await prepared.moved;
    this.#alive();
    const cache = await allocateCache(this.#gpu, layout, blocks, pause);
    const buffers = { ...prepared.buffers, ...cache };
    this.#alive();
    const program = withCache(this.#gpu, prepared.program, layout, buffers);
    // No await from here on: a batch that was submitted in between wrote to the old cache, and is copied with it.
    moveCache(this.#gpu, prepared.buffers, cache);
    const moved = this.#gpu.wait(this.#gpu.device.queue.onSubmittedWorkDone());
    prepared.moved = moved.catch(() => {}); // the next batch reports that a GPU is lost
    prepared.buffers = buffers;
    prepared.program = program;
    prepared.commands = this.#batchCommands(layout, buffers);
    prepared.times?.follow(program);
  }

  get transfer(): StateTransfer {
    const { layout, buffers, places } = this.#ready();
    return gpuTransfer(this.#gpu, layout, buffers, places);
  }

  /** For measuring: the next batches are computed by other kernels, over the same memory. */
  async retune(tuning: Tuning): Promise<void> {
    this.#alive();
    this.#tuning = tuning;
    await this.#replaceProgram();
  }

  async widen(): Promise<boolean> {
    const { layout } = this.#ready();
    const rounds = layout.plan.graph.nodes.some(
      (node) => (node.op === "matmul" || node.op === "matmul_id") && roundsToHalves(node.weight),
    );
    if (this.#isWide || !rounds) return false;
    this.#isWide = true;
    await this.#replaceProgram();
    return true;
  }

  profile(): BackendProfile | undefined {
    const { times, layout, experts } = this.#prepared ?? {};
    const recorded = times?.profile();
    if (!recorded) return undefined;
    const notes = layout && experts ? expertNotes(layout, experts) : [];
    return { ...recorded, notes: [...(recorded.notes ?? []), ...notes] };
  }

  resetProfile(): void {
    this.#prepared?.times?.reset();
  }

  /** For measuring: the time of each kernel of a batch of this size, the batch of the last run() repeated. */
  async timeKernels(batch: Batch): Promise<KernelTime[]> {
    const prepared = this.#ready();
    prepared.lookahead.drop();
    this.#runner.write(batch);
    const counts = batch.counts();
    return await timeKernels(this.#gpu, prepared.program, counts);
  }

  /** For measuring: milliseconds of GPU time of a batch, from several in one submission. */
  async timeBatch(batch: Batch, wants?: KernelFilter): Promise<number> {
    const prepared = this.#ready();
    prepared.lookahead.drop();
    this.#runner.write(batch);
    const counts = batch.counts();
    return await timeBatch(this.#gpu, prepared.program, counts, wants);
  }

  /** For measuring: the kernels of a batch of this size that are wanted. */
  kernelsOf(batch: Batch, wants: KernelFilter): Kernel[] {
    const { program } = this.#ready();
    return dispatchesOf(program, batch.counts(), wants).map(({ kernel }) => kernel);
  }

  lookahead(): { submitted: number; dropped: number } {
    const { submitted = 0, dropped = 0 } = this.#prepared?.lookahead ?? {};
    return { submitted, dropped };
  }

  memory(): MemoryUse {
    if (!this.#prepared) return { weightBytes: 0, kvBytes: 0, workBytes: 0 };
    const { layout, buffers } = this.#prepared;
    const cache = [...buffers.keys, ...buffers.values, ...buffers.recurrent];
    const weightBytes = layout.use.weightBytes + layout.hostBytes;
    return { ...layout.use, weightBytes, kvBytes: cache.reduce((sum, { size }) => sum + size, 0) };
  }

  explain(): readonly string[] {
    const { facts } = this.#gpu;
    const known = this.#prepared;
    const kind = facts.isSoftware ? "a software adapter: slow" : facts.vendor;
    return [
      `GPU ${facts.name} (${kind}), ${facts.driver}`,
      this.#exact
        ? exactNote(this.#exactHere)
        : "matmuls in floats, of activations that are rounded as on the CPU",
      ...subgroupNotes(facts),
      ...this.#notes,
      ...(known ? lookaheadNotes(known.lookahead, known.program) : []),
      ...(this.#warmedUp ? [warmUpNote(this.#warmedUp)] : []),
      ...(this.#gaveUp
        ? ["workgroups could not wait for each other: each op is a dispatch"]
        : this.#layerNotes()),
      ...(known ? expertNotes(known.layout, known.experts) : []),
      ...(known ? programNotes(known.layout, known.program) : []),
      ...(known?.stream ? [streamNote(known.layout, known.stream.weights.batchBytes)] : []),
    ];
  }

  #layerNotes(): string[] {
    const { layout, program } = this.#prepared ?? {};
    const chosen = layout && dispatchFor(layout.plan.graph, this.#tuning.layerDispatch);
    return chosen ? layerNotes(chosen, program?.exchange !== undefined) : [];
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    const reads = this.#prepared?.stream?.weights.end();
    this.#prepared = undefined;
    this.#layout = undefined;
    const dispose = () => {
      this.#gpu.dispose(); // frees every buffer, too
      this.#stream?.close();
    };
    // Not under a file that is being read into one.
    if (reads) this.#ended = reads.then(dispose, dispose);
    else dispose();
  }

  async ended(): Promise<void> {
    await this.#ended;
    await this.#gpu.ended();
  }

  async #nodeByNode({ layout, buffers }: Prepared): Promise<Program> {
    this.#byNodes ??= this.#makeProgram(layout, buffers, "nodes");
    const known = this.#byNodes;
    const made = await known;
    const program = this.#overCache(made);
    if (program !== made && this.#byNodes === known) this.#byNodes = Promise.resolve(program);
    return program;
  }

  /** Makes all programs anew, after their inputs have changed. */
  async #replaceProgram(): Promise<void> {
    const prepared = this.#ready();
    const program = await this.#makeProgram(prepared.layout, prepared.buffers, "groups");
    this.#byNodes = undefined;
    prepared.lookahead.drop(); // computed by the program before
    prepared.program.exchange?.destroy();
    prepared.program = this.#overCache(program);
    prepared.commands = this.#batchCommands(prepared.layout, prepared.buffers);
    prepared.times = this.#batchTimes(prepared.program);
  }

  /** The program over the present cache: that may have grown while something was waited for, and the old one is destroyed then. */
  #overCache(program: Program): Program {
    const { layout, buffers } = this.#ready();
    return withCache(this.#gpu, program, layout, buffers);
  }

  /** Matrix units of a test count. */
  get #facts(): GpuFacts {
    const { facts } = this.#gpu;
    return this.#matrixCalls ? { ...facts, subgroupMatrix: true } : facts;
  }

  #layOut(plan: Plan, kv: KvCacheOptions): Layout {
    const known = this.#layout;
    const own = this.#planOf(plan);
    if (known?.plan === own && isSameCapacity(known.kv, kv)) return known;
    this.#layout = this.#layOutAnew(own, kv);
    return this.#layout;
  }

  #layOutAnew(plan: Plan, kv: KvCacheOptions): Layout {
    const isExact = this.#exact !== undefined;
    const streams = this.#stream !== undefined;
    return layOut(plan, kv, this.#facts, isExact, this.#expertSlots, streams);
  }

  #planOf(plan: Plan): Plan {
    if (!this.#stream) return plan;
    if (this.#streamed?.of !== plan) this.#streamed = { of: plan, plan: withoutEmbeddings(plan) };
    return this.#streamed.plan;
  }

  #makeProgram(layout: Layout, buffers: Buffers, by: "groups" | "nodes"): Promise<Program> {
    const options = {
      exact: this.#exactHere,
      wide: this.#isWide,
      matrixCalls: this.#matrixCalls,
    };
    // A profile has times of fused ops.
    const layerDispatch = this.#calls ? undefined : this.#tuning.layerDispatch;
    const tuning = { ...this.#tuning, layerDispatch };
    return makeProgram(this.#gpu, layout, buffers, tuning, by, this.#pipelines, options);
  }

  #newLookahead({ limits }: Plan, places: SlotPlaces): Lookahead {
    return new Lookahead(mostRows("logits", limits), this.#mostAhead, places);
  }

  #batchCommands(layout: Layout, buffers: Buffers): BatchCommands {
    return new BatchCommands(this.#gpu.device, layout, buffers, this.#tuning.cuts);
  }

  #batchTimes(program: Program): BatchTimes | undefined {
    return this.#calls && new BatchTimes(this.#gpu, program, this.#calls);
  }

  #alive(): void {
    if (this.#disposed) throw new DisposedError("the WebGPU backend");
  }

  #ready(): Prepared {
    this.#alive();
    if (!this.#prepared) throw new Error("webgpu backend: run() before prepare()");
    return this.#prepared;
  }
}

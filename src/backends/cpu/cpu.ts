// The CPU backend: kernels generated at run time (src/kernels), as WebAssembly SIMD or machine code, on as many threads as it
// is given, over one shared memory. A batch allocates nothing and sends no messages between threads.
//
// Opt level 1 computes in plain TypeScript, matmuls on all threads. Opt level 2 multiplies row by row (any type). Opt level 3
// packs weights into row panels where their type has a tiled kernel. Machine code (native/) makes opt level 4 of it.

import { AbortedError, DisposedError, type LanternError, WorkerError } from "../../base/errors.ts";
import type { Batch } from "../../graph/batch.ts";
import { type OutputName, outputNamed, sectionsOf, type Weight } from "../../graph/graph.ts";
import type { Plan } from "../../graph/plan.ts";
import { runReferenceOp } from "../../graph/reference.ts";
import type { ReferenceMemory } from "../../graph/reference-memory.ts";
import { assembleModule } from "../../kernels/asm/wasm.ts";
import { detectWasmFeatures, type WasmFeatures } from "../../kernels/features.ts";
import { MOST_TILE_ROWS } from "../../kernels/ir/tiles.ts";
import { lowerToWasm } from "../../kernels/lower/wasm.ts";
import { unpacksPanels } from "../../kernels/matmul-variants.ts";
import type { NativeAccess } from "../../platform/platform.ts";
import {
  type Backend,
  type BackendProfile,
  type BestLogits,
  type DiskUse,
  type ExpertReads,
  isSameCapacity,
  type KvCacheOptions,
  type KvOverflow,
  type MemoryNeed,
  type MemoryUse,
  type NeuronWeights,
  type RunOptions,
  type StateTransfer,
  type TuningControls,
  type UploadWatch,
  type WeightReader,
  type Widened,
} from "../backend.ts";
import { giveValues, takeValues } from "../cross-values.ts";
import { hostTransfer } from "../host-transfer.ts";
import { BestSearch, MOST_BEST } from "./best-logits.ts";
import type { Compiled } from "./compile.ts";
import type { CpuOptions } from "./cpu-options.ts";
import { DiskWeights } from "./disk/disk.ts";
import { planDisk } from "./disk/plan.ts";
import { diskBytesOf } from "./disk/program.ts";
import type { Executor } from "./executor.ts";
import { expertNotes, explainCpu } from "./explain.ts";
import type { Guard, GuardMode } from "./guard/guard.ts";
import { type Arena, farLimits } from "./memory/arena.ts";
import type { FileWeight } from "./memory/file-pieces.ts";
import { type Layout, type LayoutRequest, layOut } from "./memory/layout.ts";
import { Memories } from "./memory/memories.ts";
import { neuronWeights } from "./memory/neuron-weights.ts";
import { referenceMemory } from "./memory/reference-memory.ts";
import { Packer, type PackProgram } from "./memory/repack.ts";
import { staysOnDisk } from "./memory/weights.ts";
import { writeBatch } from "./memory/write-batch.ts";
import { openNativeJob } from "./native/entry.ts";
import type { NativeKernels } from "./native/native.ts";
import { largePages } from "./native/pages.ts";
import { makeExecutors } from "./ops/table.ts";
import { runTapped } from "./run-tapped.ts";
import { BatchRecords, partsOf } from "./threads/batch-records.ts";
import { LOST_MS, waitForOthers } from "./threads/batch-wait.ts";
import { instantiate } from "./threads/compute.ts";
import { Helpers, type JobOf } from "./threads/helpers.ts";
import { makeMember } from "./threads/recorded-team.ts";
import { RecordWriter } from "./threads/records.ts";
import type { BatchEnd, TeamMember } from "./threads/team.ts";

/**
 * Tokens of a batch where row panels are unpacked for it: 2 % of the time of a Q4_0 matmul is unpacking then, 4 % with 64 tokens,
 * 7 % with 32 (Neoverse-N1).
 */
const UNPACKED_BATCH_TOKENS = 128;
/** Larger batches read weights no less often for a token, and take memory. */
const MOST_BATCH_TOKENS = 256;

interface Prepared extends Layout {
  executors: readonly Executor[];
  member: TeamMember;
  /** Weights that the threads read by themselves. */
  inFiles: readonly FileWeight[];
  batchRecords: BatchRecords | undefined;
  reference: ReferenceMemory;
  best: BestSearch | undefined;
  packer: Packer;
  /** Weights that stay on disk; undefined: none. */
  onDisk: DiskWeights | undefined;
  guard: Guard | undefined;
  /** Weights that are not uploaded yet. */
  missing: Set<string>;
  helpers: Helpers;
  jobOf(packing: PackProgram | undefined): JobOf;
}

export class CpuBackend implements Backend {
  readonly name = "cpu";
  readonly #options: CpuOptions;
  readonly #isThreaded: boolean;
  readonly #wasm: WasmFeatures;
  #layout: Layout | undefined;
  #prepared: Prepared | undefined;
  #disposed = false;
  /** Resolves when the threads have ended; set by dispose(). */
  #ended: Promise<void> | undefined;
  #batch: Batch | undefined;
  #native: NativeKernels | string;
  /** Whether there are large pages, for --explain; undefined: they were not asked for. */
  #pages: string | undefined;
  /** Why no weights can stay on disk though the model does not fit; undefined: they can, or need not. */
  #notOnDisk: string | undefined;

  constructor(options: CpuOptions) {
    const { level, native = "machine code is switched off", wasm = detectWasmFeatures() } = options;
    this.#native = level === 3 ? native : `opt level ${level} has no machine code`;
    this.#wasm = wasm;
    this.#isThreaded = wasm.threads && options.startThread !== undefined;
    this.#options = options;
  }

  get threads(): number {
    return this.#isThreaded ? this.#options.threads : 1;
  }

  /** The target of the matmul kernels. */
  get kernels(): string {
    return typeof this.#native === "string" ? `wasm: ${this.#native}` : this.#native.target.name;
  }

  /** If quants are unpacked once for all tokens of a batch, larger batches are faster. */
  get batchTokens(): number | undefined {
    if (this.#hasTiles) return 8 * MOST_TILE_ROWS;
    const isUnpacked = typeof this.#native !== "string" && unpacksPanels(this.#native.target);
    return isUnpacked ? UNPACKED_BATCH_TOKENS : undefined;
  }

  get mostBatchTokens(): number {
    return MOST_BATCH_TOKENS;
  }

  get tokenTile(): number | undefined {
    return this.#hasTiles ? MOST_TILE_ROWS : undefined;
  }

  get #hasTiles(): boolean {
    return typeof this.#native !== "string" && this.#native.target.amx === true;
  }

  supports(): true {
    return true; // the reference computes nodes without a kernel
  }

  measure(plan: Plan, kv: KvCacheOptions): MemoryNeed {
    this.#alive();
    const { arena, disk } = this.#layOut(plan, kv);
    const { limitBytes } = arena;
    const reach = limitText(this.#wasm.memory64);
    const limitReason =
      typeof this.#native === "string"
        ? `kernels are WebAssembly: ${this.#native}; ${reach}`
        : `row panels can lie outside of WebAssembly's memory, all else cannot; ${reach}`;
    const diskBytes = disk ? diskBytesOf(disk.program) : 0;
    const need = { ...arena.use, limitBytes, limitReason, ...(disk && { diskBytes }) };
    return this.#notOnDisk === undefined ? need : { ...need, notOnDisk: this.#notOnDisk };
  }

  prepare(plan: Plan, kv: KvCacheOptions): void {
    this.#alive();
    const layout = this.#loadedLayout(plan, kv);
    const { arena, compiled, native, records } = layout;
    const packing = this.#withFiles(layout);
    const { program } = compiled;
    const { guard: guardMode } = this.#options;
    const module = compileKernels(compiled, arena, this.#wasm, guardMode?.wasm);
    arena.commit();
    const { memory, views, far } = arena;
    const host = this.#host;
    // Before anything is written to the memory.
    const guard = guardMode?.watch(layout, host);
    const memories = new Memories(views, far, host);
    this.#pages = guard?.note ?? largePages(host, [memory, ...far]);
    for (const { table, choice } of compiled.choices) views.i32.set(choice.byTokens, table / 4);
    layout.weights.writeCodebooks();
    const reference = referenceMemory(layout);
    const inWasm = instantiate(module, memory);
    const inNative = () => (native ? openNativeJob(native, host, memory.buffer, 0) : {});
    const kernels = guard?.kernels(inWasm, inNative, layout.target) ?? { ...inWasm, ...inNative() };
    const executors = makeExecutors({
      program,
      kernels,
      views,
      memories,
      thread: 0,
      leader: compiled.leaderNodes.map(
        (node) => () => runReferenceOp(node, this.#batch!, reference),
      ),
    });
    const { startThread, cpusOf } = this.#options;
    const { buffer } = memory;
    const member = makeMember(
      { buffer, ...program, executors, thread: 0 },
      records && new RecordWriter(buffer, records, 0),
    );
    member.setIdle(this.#options.idle ?? "spin");
    const batchRecords =
      records && new BatchRecords(buffer, records, this.threads, executors.length);
    const missing = new Set(
      plan.graph.weights
        .filter((weight) => !staysOnDisk(layout.weights.get(weight)))
        .map(({ name }) => name),
    );
    const helpers = new Helpers(this.threads - 1, startThread);
    const packer = new Packer(
      packing,
      memories,
      kernels,
      () => helpers.isLost,
      batchRecords?.calls,
      this.#options.files?.readAt,
    );
    const jobOf = (first: PackProgram | undefined): JobOf => {
      const code = { module, memory, far, native, program };
      const job = { ...code, packing: first, records, guard: guard?.job };
      return (thread) => ({ ...job, thread, cpus: cpusOf?.(thread) });
    };
    const onDisk = this.#openDisk(layout);
    const best = compiled.best && new BestSearch(compiled.best, kernels, views);
    const inFiles = packing.files ?? [];
    const made = {
      executors,
      member,
      inFiles,
      batchRecords,
      reference,
      best,
      packer,
      onDisk,
      guard,
      missing,
      helpers,
    };
    this.#prepared = { ...layout, ...made, jobOf };
    onDisk?.start((thread) => ({
      ...jobOf(undefined)(this.threads - 1 + thread),
      ...{ records: undefined, guard: undefined, cpus: undefined },
      reads: {
        program: layout.disk!.program,
        packing: layout.packing,
        descriptors: onDisk.files.map(({ descriptor }) => descriptor),
        reader: thread - 1,
      },
    }));
    packer.beginFiles();
    helpers.begin(jobOf(packing)); // they start while the first weights are read
  }

  /** Opens the files of weights that stay there. */
  #openDisk({ disk, arena }: Layout): DiskWeights | undefined {
    if (!disk) return undefined;
    const readers = new Helpers(disk.program.readers, this.#options.startThread);
    return new DiskWeights(disk, arena.views, this.#options.files!.openDirect!, readers);
  }

  async uploadFiles(watch: UploadWatch): Promise<ReadonlySet<string>> {
    const { packer, inFiles } = this.#ready();
    if (inFiles.length === 0 || !(await packer.packFiles(watch))) return new Set();
    const names = inFiles.map(({ name }) => name);
    await this.#uploaded(names);
    return new Set(names);
  }

  async upload(weight: Weight, read: WeightReader): Promise<void> {
    const { weights, packer } = this.#ready();
    await weights.upload(weight, read, packer);
    await this.#uploaded([weight.name]);
  }

  async #uploaded(names: readonly string[]): Promise<void> {
    const { packer, missing, helpers, onDisk } = this.#ready();
    for (const name of names) missing.delete(name);
    if (missing.size > 0) return;
    await packer.flush();
    packer.finish();
    await helpers.ready();
    await onDisk?.ready();
  }

  run(batch: Batch, options: RunOptions = {}): Promise<void> | void {
    const prepared = this.#ready();
    if (prepared.helpers.isLost)
      return this.#replaceHelpers().then(() => this.#run(batch, options));
    const { onDisk } = prepared;
    if (onDisk?.isLost) return onDisk.restart().then(() => this.#run(batch, options));
    return this.#run(batch, options);
  }

  /** Synchronous; a promise only where it had to wait for other threads. */
  #run(batch: Batch, options: RunOptions): Promise<void> | void {
    const { section = 0, input, output } = options;
    const { plan, compiled, arena, reference, onDisk } = this.#ready();
    const { takes, gives } = sectionsOf(plan.graph)[section]!;
    if (section === 0) onDisk?.begin();
    this.#batch = batch;
    const { i32, f32 } = arena.views;
    if (section === 0) writeBatch(batch, compiled.program.batch, i32, f32);
    if (input) takeValues(takes, batch, reference.value, input);
    const waiting = this.#compute(batch, options);
    if (!output) return waiting;
    const give = () => giveValues(gives, batch, reference.value, output);
    return waiting ? waiting.then(give) : give();
  }

  /** A section of the batch, or all of it. */
  #compute(batch: Batch, options: RunOptions): Promise<void> | void {
    const { tap, stop, meanwhile, section = 0, phase = "prompt" } = options;
    const prepared = this.#ready();
    const { batchRecords, member, plan } = prepared;
    if (tap) {
      try {
        runTapped(batch, prepared, tap, options);
      } catch (cause) {
        throw prepared.onDisk?.failure() ?? cause;
      }
      prepared.guard?.check();
      return;
    }
    const isLast = section + 1 >= (plan.graph.sections?.length ?? 1);
    if (section === 0) batchRecords?.begin(batch, phase);
    else batchRecords?.resume();
    let end: BatchEnd;
    try {
      end = member.runBatch(stop, meanwhile, section > 0);
    } catch (cause) {
      throw batchFailed(prepared, cause);
    }
    if (end === "waits") return this.#wait(prepared, stop, isLast);
    endBatch(prepared, end, isLast);
  }

  async #wait(
    prepared: Prepared,
    stop: (() => boolean) | undefined,
    isLast: boolean,
  ): Promise<void> {
    const { member, helpers, disk } = prepared;
    // A thread that waits for the disk is not lost; it says by itself when that takes too long.
    const { lostMs = LOST_MS + (disk?.program.waitMs ?? 0) } = this.#options;
    const check = () => this.#alive();
    const wait = { stop, isLost: () => helpers.isLost, check, lostMs };
    const end = await waitForOthers(member, wait).catch((cause: unknown) => {
      throw cause instanceof DisposedError ? cause : batchFailed(prepared, cause);
    });
    endBatch(prepared, end, isLast);
  }

  readonly tuning: TuningControls = {
    setVariant: (index) => {
      const { compiled, arena } = this.#ready();
      for (const { table, choice } of compiled.choices) {
        arena.views.i32.fill(index, table / 4, table / 4 + choice.byTokens.length);
      }
    },
    setIdle: (idle) => this.#ready().member.setIdle(idle),
  };

  rest(isOn: boolean): void {
    this.#ready().member.setRest(isOn);
  }

  async #replaceHelpers(): Promise<void> {
    const { helpers, member, jobOf, onDisk } = this.#ready();
    await helpers.end();
    this.#alive();
    member.reset();
    helpers.begin(jobOf(undefined));
    await helpers.ready();
    onDisk?.forgetUsers();
  }

  read(output: OutputName, row: number, target: Float32Array): void {
    const { plan, reference } = this.#ready();
    const value = outputNamed(plan.graph, output);
    target.set(reference.value(value).subarray(row * value.cols, (row + 1) * value.cols));
  }

  get mostBest(): number {
    return this.#prepared?.best ? MOST_BEST : 0;
  }

  readBest(row: number, target: BestLogits): boolean {
    return this.#ready().best?.read(row, target) ?? false;
  }

  widened(): Widened | undefined {
    const { compiled, arena, reference } = this.#ready();
    const { roundings } = compiled;
    if (!roundings) return reference.widened;
    const { i32, f32 } = arena.views;
    const { record, rounded } = roundings;
    const number = i32[record / 4]!;
    if (number === 0) return reference.widened;
    return { ...rounded[number - 1]!, largest: f32[record / 4 + 1]! };
  }

  kvOverflow(): KvOverflow | undefined {
    const { compiled, arena, reference } = this.#ready();
    const found = compiled.kvRecord.take(arena.views) ?? reference.kvOverflow;
    reference.kvOverflow = undefined;
    return found;
  }

  copyKvBlock(from: number, to: number, group?: number): void {
    const { compiled, arena } = this.#ready();
    for (const { group: own, at, blockBytes } of compiled.cache.areas) {
      if (group !== undefined && own !== group) continue;
      const first = at + from * blockBytes;
      arena.views.u8.copyWithin(at + to * blockBytes, first, first + blockBytes);
    }
  }

  get transfer(): StateTransfer {
    const { plan, reference } = this.#ready();
    return hostTransfer(plan.graph, reference);
  }

  onDisk(): DiskUse | undefined {
    return this.#prepared?.onDisk?.use;
  }

  expertReads(): ExpertReads | undefined {
    return this.#prepared?.onDisk?.counts;
  }

  memory(): MemoryUse {
    return this.#prepared?.arena.use ?? { weightBytes: 0, kvBytes: 0, workBytes: 0 };
  }

  neurons(): NeuronWeights | undefined {
    const { target, disk } = this.#layout ?? {};
    if (!target || disk || this.#options.level !== 3) return undefined;
    return neuronWeights(this.#ready().plan.graph.nodes, target);
  }

  explain(): readonly string[] {
    return explainCpu({
      native: this.#native,
      pages: this.#pages,
      wasm: this.#wasm,
      threads: this.threads,
      threadsAsked: this.#options.threads,
      isWide: this.#prepared?.arena.isWide ?? false,
      farMemories: this.#prepared?.arena.far.length ?? 0,
      onDisk: this.onDisk(),
      notes: this.#options.notes ?? [],
      choices: this.#prepared?.compiled.explain ?? [],
    });
  }

  profile(): BackendProfile | undefined {
    const { plan, compiled, executors, packer, batchRecords } = this.#ready();
    if (!batchRecords) return undefined;
    return {
      parts: partsOf(plan, compiled, executors),
      phases: batchRecords.phases(),
      events: batchRecords.events(),
      packMs: packer.packMs,
      calls: batchRecords.calls.records().map((call) => ({ ...call, by: this.name })),
      notes: [...batchRecords.notes(), ...expertNotes(this.expertReads())],
    };
  }

  resetProfile(): void {
    this.#ready().batchRecords?.reset();
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#prepared?.packer.finish();
    this.#prepared?.member.stop();
    const { helpers, onDisk } = this.#prepared ?? {};
    this.#ended = helpers && Promise.all([helpers.end(), onDisk?.end()]).then(() => {});
    this.#ended?.catch(() => {}); // ended() tells
    this.#prepared = undefined;
    this.#layout = undefined;
  }

  async ended(): Promise<void> {
    await this.#ended;
  }

  /** One thread alone reads ahead while it packs, which it cannot by itself. */
  #withFiles({ packing, weights }: Layout): PackProgram {
    const { files } = this.#options;
    return files && this.threads > 1 ? { ...packing, files: weights.inFiles(files) } : packing;
  }

  /** The layout with machine code, where it can be loaded, otherwise with WebAssembly. */
  #loadedLayout(plan: Plan, kv: KvCacheOptions): Layout {
    const layout = this.#layOut(plan, kv);
    if (!layout.native || typeof this.#native === "string") return layout;
    const library = this.#native.host.load(layout.native.image.bytes);
    if (typeof library !== "string") return layout;
    this.#native = library;
    this.#layout = undefined;
    return this.#layOut(plan, kv);
  }

  /** Returns the last layout again for the same plan and cache. */
  #layOut(plan: Plan, kv: KvCacheOptions): Layout {
    const known = this.#layout;
    if (known?.plan === plan && isSameCapacity(known.kv, kv)) return known;
    const {
      level,
      choose,
      rowTile,
      sparse = false,
      profile: records = false,
      memoryStart = 0,
      far = farLimits,
    } = this.#options;
    const native = typeof this.#native === "string" ? undefined : this.#native;
    // A choice of kernels for machine code does not apply to WebAssembly.
    const isLost = !native && typeof this.#options.native === "object";
    const made = this.#withDisk({
      plan,
      kv,
      threads: this.threads,
      level,
      rowTile,
      sparse,
      native,
      wasm: this.#wasm,
      choose: isLost ? undefined : choose,
      records,
      memoryStart,
      far,
      guard: this.#options.guard !== undefined,
    });
    if (typeof made === "string") {
      this.#native = made;
      return this.#layOut(plan, kv);
    }
    this.#layout = made;
    return made;
  }

  /** With as many weights on disk as the memory needs. */
  #withDisk(request: LayoutRequest): Layout | string {
    const made = layOut(request);
    const { ram, files } = this.#options;
    this.#notOnDisk = undefined;
    if (typeof made === "string" || !ram) return made;
    const { weightBytes, kvBytes, workBytes } = made.arena.use;
    const totalBytes = weightBytes + kvBytes + workBytes;
    if (totalBytes <= Math.min(ram.limitBytes, made.arena.limitBytes)) return made;
    if (!files?.openDirect || !this.#isThreaded) {
      this.#notOnDisk = files ? "here no thread can read them" : "it is not in local files";
      return made;
    }
    const budgetBytes = Math.min(ram.budgetBytes, made.arena.limitBytes);
    const { graph } = request.plan;
    const { experts } = ram;
    const { weights } = made;
    const disk = planDisk({ graph, weights, totalBytes, budgetBytes, files, experts });
    if (typeof disk !== "string") return layOut({ ...request, disk });
    this.#notOnDisk = disk;
    return made;
  }

  get #host(): NativeAccess {
    return typeof this.#native === "string" ? this.#native : this.#native.host;
  }

  #alive(): void {
    if (this.#disposed) throw new DisposedError("the CPU backend");
  }

  #ready(): Prepared {
    this.#alive();
    if (!this.#prepared) throw new Error("cpu backend: run() before prepare()");
    return this.#prepared;
  }
}

function limitText(memory64: boolean): string {
  return memory64
    ? "a memory of WebAssembly holds 16 GiB"
    : "a memory of WebAssembly holds 4 GiB here, and 16 GiB in Node.js 24 or newer";
}

function endBatch({ batchRecords, guard }: Prepared, end: BatchEnd, isLast: boolean): void {
  if (isLast || end === "given up") batchRecords?.end();
  else batchRecords?.pause();
  guard?.check();
  if (end === "given up") throw new AbortedError("the batch");
}

function batchFailed({ helpers, batchRecords, onDisk }: Prepared, cause: unknown): LanternError {
  batchRecords?.end();
  const unread = onDisk?.failure();
  if (unread) return unread;
  helpers.lose();
  return new WorkerError(
    "a batch failed and its results are lost. Try again: the next batch gets new threads",
    { cause },
  );
}

function compileKernels(
  compiled: Compiled,
  arena: Arena,
  { relaxed }: WasmFeatures,
  guard: GuardMode["wasm"] | undefined,
): WebAssembly.Module {
  const target = { relaxed, memory64: arena.isWide, guard };
  const functions = compiled.kernels.map((kernel) => lowerToWasm(kernel, target));
  return new WebAssembly.Module(assembleModule(functions, arena.memoryLimits));
}

// The CPU backend: kernels generated at run time (src/kernels), lowered to WebAssembly SIMD, on as many threads as it is
// given, over one shared memory. Nothing is allocated and nothing is sent between threads while it runs.
//
// Level 2 multiplies row by row (any type); level 3 packs weights into tiles where their type has a tiled kernel.

import { AbortedError, DisposedError, WorkerError } from "../../base/errors.ts";
import type { GraphNode, NodeOf, OpKind, Value, Weight } from "../../graph/graph.ts";
import type { Plan } from "../../graph/plan.ts";
import { type LoadedWeight, type ReferenceMemory, referenceOps } from "../../graph/reference.ts";
import { KV_BLOCK_TOKENS, type Step } from "../../graph/step.ts";
import { assembleModule } from "../../kernels/asm/wasm.ts";
import { detectWasmFeatures } from "../../kernels/features.ts";
import { lowerToWasm } from "../../kernels/lower/wasm.ts";
import { ropeTable, ropeTableSize } from "../../kernels/ops/rope.ts";
import type { EngineThread } from "../../platform/platform.ts";
import type {
  Backend,
  KvCacheOptions,
  MemoryUse,
  RunOptions,
  Tap,
  WeightReader,
} from "../backend.ts";
import { Arena } from "./arena.ts";
import { type Compiled, compileProgram, type LeaderTask, type TileChoice } from "./compile.ts";
import { type ComputeJob, instantiate } from "./compute.ts";
import { type Executor, makeExecutors } from "./executors.ts";
import { Helpers } from "./helpers.ts";
import type { Program } from "./program.ts";
import { TeamMember } from "./team.ts";
import { WeightStore } from "./weights.ts";

export interface CpuOptions {
  /** 2: SIMD row by row; 3: tiles. */
  level: 2 | 3;
  threads: number;
  /** Starts a thread that runs serveCompute(); undefined where there are none. */
  startThread: (() => EngineThread) | undefined;
}

interface Prepared {
  plan: Plan;
  compiled: Compiled;
  executors: readonly Executor[];
  member: TeamMember;
  reference: ReferenceMemory;
  kv: KvCacheOptions;
}

export class CpuBackend implements Backend {
  readonly name = "cpu";
  readonly #options: CpuOptions;
  readonly #isThreaded: boolean;
  readonly #arena: Arena;
  readonly #weights: WeightStore;
  readonly #loaded = new Map<string, LoadedWeight>();
  #helpers: Helpers | undefined;
  #prepared: Prepared | undefined;
  #disposed = false;
  #step: Step | undefined;

  constructor(options: CpuOptions) {
    const features = detectWasmFeatures();
    this.#isThreaded = features.threads && options.startThread !== undefined;
    this.#options = options;
    this.#arena = new Arena(features.threads);
    this.#weights = new WeightStore(this.#arena, features.dot4, options.level === 3);
  }

  get threads(): number {
    return this.#isThreaded ? this.#options.threads : 1;
  }

  supports(): true {
    return true; // what has no kernel is computed by the reference
  }

  async upload(weight: Weight, uses: ReadonlySet<OpKind>, read: WeightReader): Promise<void> {
    this.#alive();
    this.#startedHelpers(); // they load while weights are read
    await this.#weights.upload(weight, uses, read);
  }

  async prepare(plan: Plan, kv: KvCacheOptions): Promise<void> {
    this.#alive();
    const features = detectWasmFeatures();
    const { threads } = this;
    const compiled = compileProgram({
      plan,
      kv,
      arena: this.#arena,
      weights: this.#weights,
      threads,
      dot4: features.dot4,
      tiles: chooseTiles(features.dot4),
    });
    const module = compileKernels(compiled, this.#arena, features.relaxed);
    const { memory, views } = this.#arena;
    const job = (thread: number): ComputeJob => ({
      module,
      memory,
      program: compiled.program,
      thread,
    });
    const reference = this.#referenceMemory(plan, kv, compiled);
    const executors = makeExecutors({
      program: compiled.program,
      kernels: instantiate(module, memory),
      views,
      thread: 0,
      leader: compiled.leaderTasks.map((task) => () => this.#leaderTask(task, reference)),
    });
    const member = new TeamMember(memory.buffer, compiled.program.control, executors, true);
    this.#prepared = { plan, compiled, executors, member, reference, kv };
    await this.#startedHelpers().begin(job);
  }

  run(step: Step, { tap, stop }: RunOptions = {}): void {
    const prepared = this.#ready();
    this.#step = step;
    this.#writeStep(step, prepared.compiled.program);
    if (tap) {
      this.#runTapped(step, prepared, tap);
      return;
    }
    let finished: boolean;
    try {
      finished = prepared.member.runStep(stop);
    } catch (cause) {
      throw new WorkerError("computing a step failed; open the model again", { cause });
    }
    if (!finished) throw new AbortedError("the step");
  }

  readLogits(row: number, target: Float32Array): void {
    const { reference, plan } = this.#ready();
    const { output } = plan.graph;
    target.set(reference.value(output).subarray(row * output.cols, (row + 1) * output.cols));
  }

  copyKvBlock(from: number, to: number): void {
    const { compiled } = this.#ready();
    const bytes = KV_BLOCK_TOKENS * compiled.kvRowBytes;
    const { u8 } = this.#arena.views;
    for (const layers of [compiled.keys, compiled.values]) {
      for (const at of layers)
        u8.copyWithin(at + to * bytes, at + from * bytes, at + (from + 1) * bytes);
    }
  }

  memory(): MemoryUse {
    const kvBytes = this.#prepared?.compiled.kvBytes ?? 0;
    const workBytes = this.#prepared?.plan.slotSizes.reduce((sum, size) => sum + size * 4, 0) ?? 0;
    return { weightBytes: this.#arena.usedBytes - kvBytes - workBytes, kvBytes, workBytes };
  }

  explain(): readonly string[] {
    const features = detectWasmFeatures();
    return [
      `WebAssembly SIMD, ${features.relaxed ? `relaxed (dot4 ${features.dot4})` : "not relaxed"}`,
      threadsText(this.threads, this.#options.threads),
      ...(this.#prepared?.compiled.explain ?? []),
    ];
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#prepared?.member.stop();
    this.#helpers?.end();
    this.#prepared = undefined;
  }

  #startedHelpers(): Helpers {
    this.#helpers ??= new Helpers(this.threads - 1, this.#options.startThread);
    return this.#helpers;
  }

  #writeStep(step: Step, { step: area }: Program): void {
    const { i32 } = this.#arena.views;
    i32[area.counts / 4] = step.tokenCount;
    i32[area.counts / 4 + 1] = step.outputCount;
    for (let t = 0; t < step.tokenCount; t++) {
      const position = step.positions[t]!;
      i32[area.positions / 4 + t] = position;
      const { blocks } = step.tables[t]!;
      const held = Math.floor(position / KV_BLOCK_TOKENS) + 1;
      const at = area.tables / 4 + t * area.tableLength;
      for (let b = 0; b < held; b++) i32[at + b] = blocks[b]!;
    }
  }

  /** One instruction after the other on this thread, showing every value right after the node that makes it. */
  #runTapped(step: Step, { plan, executors, compiled, reference }: Prepared, tap: Tap): void {
    const { lastInstruction } = compiled;
    let next = 0;
    for (const node of plan.graph.nodes) {
      for (; next <= lastInstruction.get(node)!; next++) {
        const executor = executors[next]!;
        const chunks = executor.chunks();
        for (let chunk = 0; chunk < chunks; chunk++) executor.run(chunk);
      }
      if (!node.out) continue;
      const rows = node.out.rows === "tokens" ? step.tokenCount : step.outputCount;
      tap(node.out, reference.value(node.out).subarray(0, rows * node.out.cols));
    }
  }

  #leaderTask(task: LeaderTask, memory: ReferenceMemory): void {
    if (task.kind === "node") runReference(task.node, this.#step!, memory);
    else this.#fillRopeTable(task, memory);
  }

  #fillRopeTable(
    { rope, factors, table }: Extract<LeaderTask, { kind: "rope" }>,
    memory: ReferenceMemory,
  ): void {
    const step = this.#step!;
    const pairs = rope.dims / 2;
    const divisors = factors ? memory.weight(factors).floats : undefined;
    const cos = new Float32Array(pairs);
    const sin = new Float32Array(pairs);
    for (let t = 0; t < step.tokenCount; t++) {
      for (let pair = 0; pair < pairs; pair++) {
        const turned = Math.fround(step.positions[t]! * rope.frequencies[pair]!);
        const angle = Math.fround(turned / (divisors?.[pair] ?? 1));
        cos[pair] = Math.fround(Math.cos(angle)) * rope.magnitude;
        sin[pair] = Math.fround(Math.sin(angle)) * rope.magnitude;
      }
      ropeTable(
        rope.layout,
        cos,
        sin,
        this.#arena.views.f32,
        table / 4 + t * ropeTableSize(rope.dims),
      );
    }
  }

  /** The arena as the reference sees it: for nodes without a kernel, and for reading results. */
  #referenceMemory(plan: Plan, kv: KvCacheOptions, compiled: Compiled): ReferenceMemory {
    const { f32, u8 } = this.#arena.views;
    const slots = plan.slotSizes.map((size, i) =>
      f32.subarray(compiled.slots[i]! / 4, compiled.slots[i]! / 4 + size),
    );
    const context = kv.blocks * KV_BLOCK_TOKENS;
    const layerBytes = context * compiled.kvRowBytes;
    const layers = (list: readonly number[]) => list.map((at) => u8.subarray(at, at + layerBytes));
    const needed = compiled.leaderTasks.flatMap((task) =>
      task.kind === "node" ? [task.node] : [],
    );
    const attends = needed.some((node) => node.op === "attention");
    const longest = Math.max(4, ...plan.graph.weights.map((weight) => weight.shape.at(-1)!));
    const multiplies = needed.some((node) => node.op === "matmul");
    const { cols } = plan.graph.kv;
    return {
      value: (value: Value) => slots[plan.slotOf[value.id]!]!,
      weight: (weight) => this.#loadedWeight(weight),
      kv: { dtype: kv.dtype, cols, keys: layers(compiled.keys), values: layers(compiled.values) },
      row: new Float32Array(longest),
      rounded: new Float32Array(multiplies ? longest * plan.limits.maxTokens : 0),
      packed: new Uint8Array(multiplies ? longest * 4 : 0),
      keys: new Float32Array(attends ? context * cols : 0),
      values: new Float32Array(attends ? context * cols : 0),
      scores: new Float32Array(attends ? context : 0),
    };
  }

  #loadedWeight(weight: Weight): LoadedWeight {
    const known = this.#loaded.get(weight.name);
    if (known) return known;
    const { u8, f32 } = this.#arena.views;
    const { vector, raw } = this.#weights.get(weight);
    const at = vector ?? raw;
    if (at === undefined)
      throw new Error(`${weight.name}: packed, but the reference was asked to read it`);
    const elements = weight.shape.reduce((a, b) => a * b, 1);
    const isFloat = vector !== undefined;
    const loaded: LoadedWeight = {
      dtype: weight.dtype,
      activation: undefined,
      bytes: u8.subarray(at, at + (elements / weight.dtype.blockElems) * weight.dtype.blockBytes),
      floats: isFloat ? f32.subarray(at / 4, at / 4 + elements) : undefined,
    };
    this.#loaded.set(weight.name, loaded);
    return loaded;
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

function compileKernels(compiled: Compiled, arena: Arena, relaxed: boolean): WebAssembly.Module {
  const functions = compiled.kernels.map((kernel) =>
    lowerToWasm(kernel, { relaxed, memory64: false }),
  );
  const limits = { initial: 1, maximum: 65536, shared: arena.shared, memory64: false };
  return new WebAssembly.Module(assembleModule(functions, limits));
}

function threadsText(threads: number, asked: number): string {
  const count = `${threads} thread${threads > 1 ? "s" : ""}`;
  if (threads === asked) return count;
  return `${count} instead of ${asked}: there is no SharedArrayBuffer here (a web page has it when it is served with the headers COOP and COEP)`;
}

/** Measured: with an unsigned dot4 (x86) splats are free and registers few; with a signed one (arm64) the reverse. */
function chooseTiles(dot4: "i7" | "signed" | "unsigned"): TileChoice {
  return dot4 === "signed"
    ? { groups: 4, tokens: 4, replicated: true }
    : { groups: 2, tokens: 4, replicated: false };
}

function runReference(node: GraphNode, step: Step, memory: ReferenceMemory): void {
  const op = referenceOps[node.op] as (n: NodeOf<OpKind>, s: Step, m: ReferenceMemory) => void;
  op(node as NodeOf<OpKind>, step, memory);
}

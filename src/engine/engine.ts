// The engine: one loaded model with its backend, its tokenizer and its KV cache. It runs on its own thread (host.ts) and
// never on the caller's.
//
// load() turns a model file into this; generator.ts drives it token by token. Sequences belong to sessions (a chat keeps
// its past between answers); idle ones give their blocks back, least recently used first, when a running one needs room.

import type { ModelInfo, ProfileReport } from "../api.ts";
import type { Backend, StepPhase } from "../backends/backend.ts";
import { ContextError, DisposedError, ModelError, UsageError } from "../base/errors.ts";
import type { Metadata } from "../base/metadata.ts";
import type { ChatTemplate } from "../chat/template.ts";
import { bytesFor, type DType } from "../dtypes/dtype.ts";
import { weightBytes, weightElements } from "../graph/cost.ts";
import { type Graph, hiddenOf, type Weight } from "../graph/graph.ts";
import { makePlan, type Plan } from "../graph/plan.ts";
import { KV_BLOCK_TOKENS, Step } from "../graph/step.ts";
import type { Device } from "../limits/device.ts";
import type { ModelConfig } from "../models/arch.ts";
import { buildModel } from "../models/build.ts";
import type { Laps } from "../profile/laps.ts";
import { profileReport } from "../profile/report.ts";
import { chromeTrace } from "../profile/trace.ts";
import type { Tokenizer } from "../tokenizers/tokenizer.ts";
import { BlockPool, KvSequence } from "./kv-cache.ts";
import { checkMemory, defaultContext, STEP_LIMITS } from "./memory.ts";

/** Types that a KV cache may have. */
const KV_TYPES: ReadonlySet<string> = new Set(["f32", "f16", "q8_0"]);

/** What load() needs, put together by the composition root. */
export interface EngineParts {
  readonly name: string;
  readonly format: string;
  readonly metadata: Metadata;
  readonly tensors: ReadonlyMap<string, Weight>;
  /** Reads bytes of a tensor straight into the backend's memory. */
  readTensor(name: string, target: Uint8Array, byteOffset: number): Promise<void>;
  readonly tokenizer: Tokenizer;
  /** undefined: the model has none. */
  readonly template: ChatTemplate | undefined;
  readonly backend: Backend;
}

export interface EngineOptions {
  contextSize: number | undefined;
  kvType: DType;
  /** Memory that the machine can give; undefined where nobody can say. */
  availableBytes?: number | undefined;
  /** Where the engine's time is recorded; undefined: nowhere. */
  laps?: Laps | undefined;
}

export interface LoadWatch {
  progress(loadedBytes: number, totalBytes: number): void;
  /** Throws when the load was aborted. */
  check(): void | Promise<void>;
}

type ReadRow = (target: Float32Array) => Promise<void> | void;

export interface AdvanceOptions {
  /** Whether the logits of tokens[index] are wanted. */
  wants(index: number): boolean;
  /** Sees those that are, in order; `read` copies them into a buffer of the caller's, `readHidden` what made them. */
  onLogits(index: number, read: ReadRow, readHidden: ReadRow): unknown;
  /** Asked on the way: whether to give up. */
  stop(): boolean;
  /** Default: "prompt". */
  phase?: StepPhase;
}

interface Session {
  sequence: KvSequence;
  busy: boolean;
  lastUsed: number;
}

export class Engine {
  readonly info: ModelInfo;
  readonly tokenizer: Tokenizer;
  readonly template: ChatTemplate | undefined;
  readonly vocabSize: number;
  /** Values of a hidden state; undefined: the model shows none. */
  readonly hiddenSize: number | undefined;
  /** The stopwatch of a profile; undefined: none was asked for. */
  readonly laps: Laps | undefined;
  readonly graph: Graph;
  readonly kvType: DType;
  readonly #backend: Backend;
  readonly #pool: BlockPool;
  readonly #step: Step;
  readonly #sessions = new Map<string, Session>();
  #uses = 0;
  #turn: Promise<void> = Promise.resolve();
  #disposed = false;

  private constructor(
    parts: EngineParts,
    options: EngineOptions,
    info: ModelInfo,
    plan: Plan,
    blocks: number,
  ) {
    this.info = info;
    this.laps = options.laps;
    this.graph = plan.graph;
    this.kvType = options.kvType;
    this.tokenizer = parts.tokenizer;
    this.template = parts.template;
    this.vocabSize = info.vocabSize;
    this.hiddenSize = hiddenOf(plan.graph)?.cols;
    this.#backend = parts.backend;
    this.#step = new Step(plan.limits);
    this.#pool = new BlockPool(blocks);
  }

  static async load(parts: EngineParts, options: EngineOptions, watch: LoadWatch): Promise<Engine> {
    const { config, graph } = buildModel(parts);
    checkSupport(parts.backend, graph);
    const contextSize = chooseContext(config, options.contextSize);
    checkKvType(options.kvType, graph);
    const plan = makePlan(graph, STEP_LIMITS);
    const blocks = Math.ceil(contextSize / KV_BLOCK_TOKENS);
    const kv = { blocks, dtype: options.kvType };
    checkMemory(parts.backend.measure(plan, kv), {
      model: parts.name,
      backend: parts.backend.name,
      contextSize,
      kvType: options.kvType,
      availableBytes: options.availableBytes,
    });
    await parts.backend.prepare(plan, kv);
    options.laps?.lap("load", "prepare");
    await uploadWeights(parts, graph, watch);
    options.laps?.lap("load", "weights");
    const info = describe(parts, config, graph, contextSize, options.kvType);
    return new Engine(parts, options, info, plan, blocks);
  }

  /**
   * The session's sequence, for one generation at a time. With no session, a sequence that vanishes afterwards.
   * The caller gives it back with closeSequence().
   */
  openSequence(sessionId: string | undefined): KvSequence {
    this.#alive();
    if (sessionId === undefined) return this.#newSequence();
    const session = this.#sessions.get(sessionId) ?? {
      sequence: this.#newSequence(),
      busy: false,
      lastUsed: 0,
    };
    if (session.busy) {
      throw new UsageError(
        "this chat is still answering: wait for the answer or abort it before sending again",
      );
    }
    session.busy = true;
    session.lastUsed = ++this.#uses;
    this.#sessions.set(sessionId, session);
    return session.sequence;
  }

  closeSequence(sequence: KvSequence, sessionId: string | undefined): void {
    const session = sessionId === undefined ? undefined : this.#sessions.get(sessionId);
    if (session?.sequence === sequence) session.busy = false;
    else sequence.release();
  }

  /** Forgets a session and its cache (at once, or when its running generation ends). */
  dropSession(sessionId: string): void {
    const session = this.#sessions.get(sessionId);
    if (!session) return;
    this.#sessions.delete(sessionId);
    if (!session.busy) session.sequence.release();
  }

  /**
   * Appends up to one step's worth of tokens[from...] to the sequence and computes them. Returns how many were taken.
   * An AbortedError (see AdvanceOptions.stop), like any other, leaves the sequence as it was.
   */
  async advance(
    sequence: KvSequence,
    tokens: ArrayLike<number>,
    from: number,
    options: AdvanceOptions,
  ): Promise<number> {
    const release = await this.#takeTurn();
    try {
      this.#alive();
      return await this.#runStep(sequence, tokens, from, options);
    } finally {
      release();
    }
  }

  /** Where the time went; `device` is what limits are measured against. */
  profile(device: Device | undefined, trace: boolean): ProfileReport {
    this.#alive();
    const { laps } = this;
    if (!laps) {
      throw new UsageError(
        "profile(): nothing was recorded, because the model was opened without it. Open it with the option profile: true",
      );
    }
    const { threads } = this.#backend;
    const recorded = this.#backend.profile?.();
    const report = profileReport({ threads, kvType: this.kvType, laps, recorded, device });
    return trace ? { ...report, trace: chromeTrace(laps, recorded) } : report;
  }

  /** Forgets what was recorded of steps; how the model was loaded stays. */
  resetProfile(): void {
    this.laps?.reset();
    this.#backend.resetProfile?.();
  }

  dispose(): void {
    this.#disposed = true;
    this.#sessions.clear();
    this.#backend.dispose();
  }

  async #runStep(
    sequence: KvSequence,
    tokens: ArrayLike<number>,
    from: number,
    { wants, onLogits, stop, phase = "prompt" }: AdvanceOptions,
  ): Promise<number> {
    const step = this.#step;
    const before = sequence.length;
    const count = Math.min(tokens.length - from, step.limits.maxTokens);
    this.#makeRoom(sequence, count);
    step.clear();
    try {
      for (let i = from; i < from + count; i++) {
        step.add(tokens[i]!, sequence.append(tokens[i]!), sequence, wants(i));
      }
      this.laps?.lap(phase, "bookkeeping");
      await this.#backend.run(step, { stop, phase });
      this.laps?.lap(phase, "step");
      for (let row = 0; row < step.outputCount; row++) {
        const index = from + step.outputRows[row]!;
        await onLogits(
          index,
          (target) => this.#backend.readLogits(row, target),
          (target) => this.#backend.readHidden(row, target),
        );
      }
      this.laps?.lap(phase, "logits");
    } catch (error) {
      sequence.truncate(before); // what was not computed is not in the cache
      throw error;
    }
    return count;
  }

  /** Frees blocks of idle sessions until `count` more tokens fit, least recently used first. */
  #makeRoom(sequence: KvSequence, count: number): void {
    const needed = sequence.blocksNeeded(count);
    while (this.#pool.freeCount < needed) {
      const idle = [...this.#sessions.values()]
        .filter((session) => !session.busy && session.sequence.length > 0)
        .sort((a, b) => a.lastUsed - b.lastUsed)[0];
      if (!idle) {
        throw new ContextError(
          `the KV cache is full: it holds ${this.#pool.size * KV_BLOCK_TOKENS} tokens and other running generations use them. Wait for one to end, or open the model with a larger contextSize`,
        );
      }
      idle.sequence.truncate(0);
    }
  }

  /** Steps of concurrent generations take turns: one step at a time uses the backend. */
  async #takeTurn(): Promise<() => void> {
    const previous = this.#turn;
    let release: () => void = () => {};
    this.#turn = new Promise((resolve) => {
      release = resolve;
    });
    await previous;
    return release;
  }

  #newSequence(): KvSequence {
    return new KvSequence(this.#pool, this.#backend, this.info.contextSize);
  }

  #alive(): void {
    if (this.#disposed) throw new DisposedError("the engine");
  }
}

function checkSupport(backend: Backend, graph: Graph): void {
  const refused = new Set<string>();
  for (const node of graph.nodes) {
    const answer = backend.supports(node);
    if (answer !== true) refused.add(`${node.name}: ${answer}`);
  }
  if (refused.size > 0) {
    throw new ModelError(
      `backend "${backend.name}" cannot run this model:\n  ${[...refused].join("\n  ")}`,
    );
  }
}

function chooseContext(config: ModelConfig, asked: number | undefined): number {
  if (asked === undefined) return defaultContext(config);
  if (!Number.isInteger(asked) || asked < 1) {
    throw new UsageError(`contextSize: got ${asked}, expected an integer above 0`);
  }
  if (asked > config.trainedContext) {
    throw new UsageError(
      `contextSize: got ${asked}, but this model was trained for ${config.trainedContext} tokens and talks nonsense beyond them`,
    );
  }
  return asked;
}

function checkKvType(dtype: DType, graph: Graph): void {
  if (!KV_TYPES.has(dtype.name)) {
    throw new UsageError(`kvType: got "${dtype.name}", expected ${[...KV_TYPES].join(", ")}`);
  }
  if (graph.kv.cols % dtype.blockElems !== 0) {
    throw new UsageError(
      `kvType: ${dtype.name} packs ${dtype.blockElems} values, but this model's keys have ${graph.kv.cols}. Use f16 or f32`,
    );
  }
}

async function uploadWeights(parts: EngineParts, graph: Graph, watch: LoadWatch): Promise<void> {
  const total = graph.weights.reduce((sum, weight) => sum + weightBytes(weight), 0);
  let loaded = 0;
  watch.progress(0, total);
  for (const weight of graph.weights) {
    await watch.check();
    await parts.backend.upload(weight, (target, byteOffset) =>
      parts.readTensor(weight.name, target, byteOffset),
    );
    loaded += weightBytes(weight);
    watch.progress(loaded, total);
  }
}

function describe(
  parts: EngineParts,
  config: ModelConfig,
  graph: Graph,
  contextSize: number,
  kvType: DType,
): ModelInfo {
  const bytesByType = new Map<string, number>();
  for (const weight of graph.weights) {
    const name = weight.dtype.name;
    bytesByType.set(name, (bytesByType.get(name) ?? 0) + weightBytes(weight));
  }
  const byBytes = [...bytesByType].sort((a, b) => b[1] - a[1]);
  return {
    name: parts.metadata.string("general.name") ?? parts.name,
    format: parts.format,
    architecture: config.architecture,
    parameters: graph.weights.reduce((sum, weight) => sum + weightElements(weight), 0),
    weightType: byBytes[0]![0],
    weightBytes: byBytes.reduce((sum, [, bytes]) => sum + bytes, 0),
    kvBytesPerToken: 2 * graph.kv.layers * bytesFor(kvType, graph.kv.cols),
    contextSize,
    trainedContext: config.trainedContext,
    vocabSize: config.vocabSize,
    layers: config.layers,
    hasChatTemplate: parts.template !== undefined,
    backend: {
      name: parts.backend.name,
      threads: parts.backend.threads,
      notes: [...parts.backend.explain()],
    },
  };
}

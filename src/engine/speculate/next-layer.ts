// Drafts by the layer of a model's file that predicts a further token (nextn, MTP; models/parts/next.ts): a graph of its own, with a
// backend, weights and a KV cache of its own, in the engine's thread.
//
//   the model has computed token t, hidden state h(t), and t + 1 was sampled
//   the layer reads (t + 1, h(t)) and proposes t + 2; then (t + 2, its own hidden state), and so on
//
// Hidden states come with the logits (computed()). The layer sees a text from the first token on whose hidden state was read: the
// answer, not the prompt. If one is missing (tokens that a grammar forced) it begins again, at position 0: only distances count.
// Matrices that the layer shares with the model (embeddings, output) are in memory twice.

import type { Backend, KvCacheOptions, MemoryNeed } from "../../backends/backend.ts";
import { MemoryError } from "../../base/errors.ts";
import { plural } from "../../base/plural.ts";
import type { KvDType } from "../../dtypes/kv-types.ts";
import { Batch, KV_BLOCK_TOKENS } from "../../graph/batch.ts";
import { weightBytes } from "../../graph/cost.ts";
import { type Graph, outputNamed } from "../../graph/graph.ts";
import { makePlan } from "../../graph/plan.ts";
import { type ReadTensor, weightReader } from "../../graph/weight-source.ts";
import { buildNext } from "../../models/build.ts";
import type { EngineParts } from "../engine-parts.ts";
import type { Drafter, DrafterKind, HiddenReader } from "./drafter.ts";

/** Tokens of one batch that wait for a draft. With more of them, the layer begins again. */
const MOST_WAITING = 32;
/** The acceptance assumed before any verification, and its weight in verified tokens. */
const PRIOR = 0.6;
const PRIOR_WEIGHT = 4;
/** The factor on earlier counts with every verified draft. */
const DECAY = 0.9;

export interface NextLayerOptions {
  readonly contextSize: number;
  readonly kvType: KvDType;
  /** Generations at a time. */
  readonly parallel: number;
  /** undefined: all free memory. */
  readonly availableBytes?: number | undefined;
  /** Called when drafting begins and ends: the model's threads then leave the cores at once after a batch. */
  rest?(isOn: boolean): void;
}

export class NextLayer implements DrafterKind {
  readonly name = "mtp";
  readonly backend: Backend;
  readonly graph: Graph;
  readonly batch: Batch;
  readonly embed: number;
  readonly contextSize: number;
  readonly #freeBlocks: number[];
  /** Milliseconds of a drafted token, an average; 0: not known. */
  tokenMs = 0;
  /** Generations draft one after the other. */
  #turn: Promise<unknown> = Promise.resolve();
  #drafters = 0;
  readonly #rest: NextLayerOptions["rest"];

  private constructor(
    backend: Backend,
    graph: Graph,
    batch: Batch,
    { contextSize, rest }: NextLayerOptions,
    blocks: number,
  ) {
    this.backend = backend;
    this.graph = graph;
    this.batch = batch;
    this.embed = graph.input!.cols;
    this.contextSize = contextSize;
    this.#rest = rest;
    this.#freeBlocks = Array.from({ length: blocks }, (_, i) => blocks - 1 - i);
  }

  /** undefined: the file has no such layer. The backend belongs to the result. */
  static async load(
    parts: Pick<EngineParts, "metadata" | "tensors" | "readTensor">,
    makeBackend: () => Backend | Promise<Backend>,
    options: NextLayerOptions,
  ): Promise<NextLayer | undefined> {
    const { contextSize, kvType, parallel } = options;
    const built = buildNext(parts, contextSize);
    if (!built) return undefined;
    const { graph } = built;
    const limits = { maxTokens: MOST_WAITING, maxOutputs: 1 };
    const plan = makePlan(graph, limits);
    const tableLength = Math.ceil(contextSize / KV_BLOCK_TOKENS);
    const blocks = tableLength * parallel;
    const kv: KvCacheOptions = { dtype: kvType, groups: [{ blocks, held: blocks }], tableLength };
    const backend = await makeBackend();
    try {
      checkCapacity(backend.measure(plan, kv), options.availableBytes);
      await backend.prepare(plan, kv);
      backend.rest?.(true); // its threads leave the cores to the model's
      const read: ReadTensor = (name, target, at) => parts.readTensor(name, target, at);
      const inFiles = await backend.uploadFiles?.({ progress: () => {}, check: () => {} });
      for (const weight of graph.weights) {
        if (!inFiles?.has(weight.name)) await backend.upload(weight, weightReader(weight, read));
      }
    } catch (error) {
      backend.dispose();
      throw error;
    }
    return new NextLayer(backend, graph, new Batch(limits), options, blocks);
  }

  /** For reports. */
  get note(): string {
    const bytes = this.graph.weights.reduce((sum, weight) => sum + weightBytes(weight), 0);
    const threads = plural(this.backend.threads, "thread");
    return `the layer that predicts further tokens: ${(bytes / 1e6).toFixed(1)} MB, ${threads}`;
  }

  start(_prompt: readonly number[], mostTokens: number): Drafter {
    this.count(1);
    return new NextDrafter(this, Math.min(mostTokens, this.contextSize));
  }

  /** A drafter begins (1) or ends (-1). */
  count(change: 1 | -1): void {
    const before = this.#drafters;
    this.#drafters += change;
    if (before === 0 || this.#drafters === 0) this.#rest?.(this.#drafters > 0);
  }

  async alone(work: () => Promise<number>): Promise<number> {
    const done = this.#turn.then(work);
    this.#turn = done.catch(() => {});
    return await done;
  }

  /** A block of the cache; undefined: all are taken. */
  takeBlock(): number | undefined {
    return this.#freeBlocks.pop();
  }

  giveBlocks(blocks: Int32Array, count: number): void {
    for (let i = 0; i < count; i++) this.#freeBlocks.push(blocks[i]!);
  }

  dispose(): void {
    this.backend.dispose();
  }

  async ended(): Promise<void> {
    await this.backend.ended?.();
  }
}

function checkCapacity(need: MemoryNeed, available: number = Number.POSITIVE_INFINITY): void {
  const bytes = need.weightBytes + need.kvBytes + need.workBytes;
  const most = Math.min(available, need.limitBytes);
  if (bytes <= most) return;
  const [wanted, room] = [bytes, most].map((size) => `${(size / 1e6).toFixed(0)} MB`);
  throw new MemoryError(
    `mtp: the layer that predicts further tokens needs ${wanted}, of which ${room} are there. Leave out \`mtp\`, or use a smaller contextSize`,
  );
}

class NextDrafter implements Drafter {
  readonly name = "mtp";
  readonly #layer: NextLayer;
  readonly #most: number;
  /** Hidden states of the model's last batch; the next token that is accepted was sampled from row #row. */
  readonly #rows: Float32Array[] = []; // [embed] each
  #rowCount = 0;
  #row = 0;
  /** Tokens that the layer has not computed, with the hidden states before them. */
  readonly #tokens = new Int32Array(MOST_WAITING);
  readonly #hidden: Float32Array; // [MOST_WAITING, embed]
  #waiting = 0;
  /** Tokens that it has computed, and the cache blocks for them. */
  #length = 0;
  readonly #sequence: { readonly blocks: Int32Array };
  #blocks = 0;
  readonly #own: Float32Array; // [embed]: the layer's own hidden state
  readonly #logits: Float32Array; // [vocab]
  #right = PRIOR * PRIOR_WEIGHT;
  #tried = PRIOR_WEIGHT;
  #isDisposed = false;

  constructor(layer: NextLayer, most: number) {
    this.#layer = layer;
    this.#most = most;
    this.#hidden = new Float32Array(MOST_WAITING * layer.embed);
    this.#own = new Float32Array(layer.embed);
    this.#logits = new Float32Array(outputNamed(layer.graph, "logits").cols);
    this.#sequence = { blocks: new Int32Array(Math.ceil(most / KV_BLOCK_TOKENS) + 1) };
  }

  computed(row: number, read: HiddenReader): Promise<void> | void {
    if (row === 0) this.#row = 0;
    this.#rowCount = row + 1;
    this.#rows[row] ??= new Float32Array(this.#layer.embed);
    return read("hidden", this.#rows[row]);
  }

  accept(token: number): void {
    if (this.#row >= this.#rowCount || this.#waiting === MOST_WAITING) this.#beginAnew();
    if (this.#row >= this.#rowCount) return;
    this.#hidden.set(this.#rows[this.#row++]!, this.#waiting * this.#layer.embed);
    this.#tokens[this.#waiting++] = token;
  }

  #beginAnew(): void {
    this.#length = 0;
    this.#waiting = 0;
  }

  chance(_index: number): number {
    return this.#waiting > 0 && !this.#isDisposed ? this.#right / this.#tried : 0;
  }

  draftMs(count: number): number {
    return count * this.#layer.tokenMs;
  }

  async draft(limit: number, out: Int32Array): Promise<number> {
    return await this.#layer.alone(() => this.#propose(limit, out));
  }

  async #propose(limit: number, out: Int32Array): Promise<number> {
    const { embed } = this.#layer;
    const count = this.#waiting;
    if (count === 0 || this.#isDisposed) return 0;
    if (this.#length + count + limit > this.#most) return 0; // the text is at its end
    if (!this.#makeRoom(this.#length + count + limit)) return 0;
    const since = performance.now();
    await this.#compute(this.#tokens, count, this.#length, this.#hidden.subarray(0, count * embed));
    this.#length += count;
    this.#waiting = 0;
    let drafted = 0;
    for (;;) {
      out[drafted++] = largest(this.#logits);
      if (drafted === limit || this.#isDisposed) break;
      // State after #length is written again when its tokens are known.
      const next = out.subarray(drafted - 1, drafted);
      await this.#compute(next, 1, this.#length + drafted - 1, this.#own);
    }
    const ms = (performance.now() - since) / drafted;
    this.#layer.tokenMs = this.#layer.tokenMs === 0 ? ms : 0.9 * this.#layer.tokenMs + 0.1 * ms;
    return this.#isDisposed ? 0 : drafted;
  }

  /** Computes tokens from position `from` on; then #logits and #own are the last token's. */
  async #compute(
    tokens: Int32Array,
    count: number,
    from: number,
    input: Float32Array,
  ): Promise<void> {
    const { backend, batch } = this.#layer;
    batch.clear();
    for (let i = 0; i < count; i++) {
      batch.add(tokens[i]!, from + i, this.#sequence, i === count - 1, true);
    }
    await backend.run(batch, { input, phase: "generation" });
    await backend.read("logits", 0, this.#logits);
    await backend.read("hidden", 0, this.#own);
  }

  #makeRoom(length: number): boolean {
    while (this.#blocks * KV_BLOCK_TOKENS < length) {
      const block = this.#layer.takeBlock();
      if (block === undefined) return false;
      this.#sequence.blocks[this.#blocks++] = block;
    }
    return true;
  }

  verified(drafted: number, accepted: number): void {
    this.#right = DECAY * this.#right + accepted;
    this.#tried = DECAY * this.#tried + Math.min(drafted, accepted + 1);
  }

  dispose(): void {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    this.#layer.count(-1);
    this.#layer.giveBlocks(this.#sequence.blocks, this.#blocks);
    this.#blocks = 0;
  }
}

function largest(logits: Float32Array): number {
  let best = 0;
  for (let id = 1; id < logits.length; id++) if (logits[id]! > logits[best]!) best = id;
  return best;
}

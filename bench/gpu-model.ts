// A model on the GPU without an engine around it, for the benchmarks of the GPU: its file opened, its weights uploaded, and batches timed
// from run() to the logits on the host. Greedy: the next token is the likeliest.

import { type Backend, evenCapacity } from "../src/backends/backend.ts";
import type { GpuDevice } from "../src/backends/webgpu/device.ts";
import type { KernelTime } from "../src/backends/webgpu/time-kernels.ts";
import { type Tuning, tuningFor } from "../src/backends/webgpu/tuning.ts";
import { WebGpuBackend } from "../src/backends/webgpu/webgpu.ts";
import { UsageError } from "../src/base/errors.ts";
import { median } from "../src/base/measure.ts";
import type { KvType } from "../src/dtypes/kv-types.ts";
import { dtypeByName } from "../src/dtypes/table.ts";
import { openModelFile } from "../src/formats/open-model-file.ts";
import { Batch, type BatchSequence, type NextDraw, NO_SLOT } from "../src/graph/batch.ts";
import { type Graph, kvGroups, recurrentStates } from "../src/graph/graph.ts";
import { makePlan } from "../src/graph/plan.ts";
import { weightReader } from "../src/graph/weight-source.ts";
import type { Arithmetic } from "../src/kernels/arithmetic.ts";
import { buildModel } from "../src/models/build.ts";
import { nodePlatform } from "../src/platform/node.ts";
import { sum, timed } from "./harness.ts";

/** Tokens of a batch, at most. */
export const MOST_TOKENS = 512;

export interface GpuModel {
  readonly graph: Graph;
  readonly backend: WebGpuBackend;
  readonly loadMs: number;
  /** Tokens per second of a prompt: of each repetition. */
  prompt(tokens: number, repeats: number): Promise<number[]>;
  /** Milliseconds of each token, written after a prompt of `context` tokens. */
  generate(context: number, tokens: number): Promise<number[]>;
  /**
   * Milliseconds of batches with one token of each user, after a context of its own, from the tokens to all logits on the host; and what the
   * GPU alone takes for one. `kernels` then times that batch.
   */
  step(users: number, context: number, steps: number): Promise<{ times: number[]; gpuMs: number }>;
  /** Of the kernels of the last batch. */
  lastKernels(): Promise<KernelTime[]>;
  /** Of the kernels of a batch of so many tokens, at position `context`. */
  kernels(context: number, tokens: number): Promise<KernelTime[]>;
  /** Milliseconds that the GPU takes for a token at position `context`, without the host. */
  gpuTime(context: number): Promise<number>;
}

export interface GpuModelOptions {
  readonly tuning?: Tuning | undefined;
  readonly exact?: Arithmetic | undefined;
  /** Blocks of the KV cache that are held from the start. Default: all. */
  readonly held?: number;
  readonly kvType?: KvType;
  /** At most, for step(). */
  readonly users?: number;
}

/** The graph of a file; `uploadTo` gives its weights to a backend that is prepared, and closes it. */
async function openGraph(
  path: string,
): Promise<{ graph: Graph; uploadTo(backend: Backend): Promise<void> }> {
  const file = await openModelFile(await nodePlatform.openModelSource({ kind: "path", path }));
  const { graph } = buildModel(file);
  const readTensor = async (name: string, target: Uint8Array, at: number): Promise<void> => {
    await file.readTensor(file.tensors.get(name)!, target, at);
  };
  const uploadTo = async (backend: Backend): Promise<void> => {
    for (const weight of graph.weights) {
      await backend.upload(weight, weightReader(weight, readTensor));
    }
    await file.close();
  };
  return { graph, uploadTo };
}

export async function loadGpuModel(
  path: string,
  gpu: GpuDevice,
  contextTokens: number,
  { tuning = tuningFor(gpu.facts), exact, held, kvType = "f16", users = 1 }: GpuModelOptions = {},
): Promise<GpuModel> {
  const started = performance.now();
  const { graph, uploadTo } = await openGraph(path);
  const backend = new WebGpuBackend(gpu, { tuning, exact });
  const limits = { maxTokens: MOST_TOKENS, maxOutputs: Math.max(4, users) };
  const each = Math.ceil((contextTokens + 1) / 32);
  const blocks = Math.max(Math.ceil((contextTokens + MOST_TOKENS) / 32), each * users);
  const room = evenCapacity(blocks, dtypeByName(kvType)!, kvGroups(graph).length);
  await backend.prepare(makePlan(graph, limits), {
    ...room,
    slots: 2,
    groups: room.groups.map((group) => ({ ...group, held: held ?? blocks })),
  });
  await uploadTo(backend);
  const loadMs = performance.now() - started;
  const sequenceAt = sequences(blocks, recurrentStates(graph).length > 0);
  const batch = new Batch(limits);
  const vocab = graph.outputs.logits!.cols;
  const logits = new Float32Array(vocab);
  const fill = (tokens: number, position: number, first: number): void =>
    fillBatch(batch, { tokens, position, first }, sequenceAt(position), vocab);
  const run = async (tokens: number, position: number, first: number): Promise<number> => {
    fill(tokens, position, first);
    await backend.run(batch);
    await backend.read("logits", 0, logits);
    return likeliest(logits);
  };
  /** As an engine asks for generated tokens: the best logit is enough, and further tokens may follow. */
  const best = { ids: new Int32Array(1), logits: new Float32Array(1) };
  const runNext = async (position: number, token: number, follows: number): Promise<number> => {
    batch.clear();
    const row = batch.add(token, position, sequenceAt(position), true, true, false);
    batch.wantBest(row, 1);
    batch.expect(row, greedy, follows);
    await backend.run(batch, { phase: "generation" });
    backend.readBest(0, best);
    return best.ids[0]!;
  };
  const fillContext = async (context: number, first = 1): Promise<number> => {
    let next = first;
    for (let at = 0; at < context; at += MOST_TOKENS) {
      next = await run(Math.min(MOST_TOKENS, context - at), at, next);
    }
    return next;
  };
  const kernelsOf = async (): Promise<KernelTime[]> => {
    await backend.timeKernels(batch);
    return await backend.timeKernels(batch);
  };
  return {
    ...{ graph, backend, loadMs },
    prompt: async (tokens, repeats) => {
      const speeds: number[] = [];
      for (let i = 0; i < repeats; i++) {
        const before = performance.now();
        await fillContext(tokens, i + 1);
        speeds.push((tokens * 1000) / (performance.now() - before));
      }
      return speeds;
    },
    generate: async (context, tokens) => {
      let next = await fillContext(context);
      const times: number[] = [];
      let before = performance.now();
      for (let i = 0; i < tokens; i++) {
        next = await runNext(context + i, next, tokens - 1 - i);
        const now = performance.now();
        times.push(now - before);
        before = now;
      }
      return times;
    },
    step: async (count, context, steps) => {
      if (count > 1 && recurrentStates(graph).length > 0) {
        throw new UsageError("--users: a model with recurrent state has one user here");
      }
      batch.clear();
      for (let user = 0; user < count; user++) {
        const own = Int32Array.from({ length: each }, (_, i) => user * each + i);
        const sequence = count > 1 ? { blocks: own } : sequenceAt(context);
        batch.add((user * 91 + context * 37 + 1) % vocab, context, sequence, true);
      }
      const times: number[] = [];
      for (let i = -2; i < steps; i++) {
        const { ms } = await timed(async () => {
          await backend.run(batch);
          for (let user = 0; user < count; user++) await backend.read("logits", user, logits);
        });
        if (i >= 0) times.push(ms);
      }
      return { times, gpuMs: await backend.timeBatch(batch) };
    },
    lastKernels: () => kernelsOf(),
    gpuTime: async (context) => {
      await fillContext(context);
      fill(1, context, 1);
      return await backend.timeBatch(batch);
    },
    kernels: async (context, tokens) => {
      await fillContext(context);
      fill(tokens, context, 1);
      return await kernelsOf();
    },
  };
}

/** Each kernel of a batch once, with how often it ran. */
export function printKernels(times: readonly KernelTime[], width: number): void {
  const byName = Map.groupBy(times, ({ kernel }) => kernel.name);
  for (const [name, ones] of byName) {
    const each = ones.map(({ microseconds }) => microseconds);
    console.log(
      `  ${name.padEnd(width)} x ${String(each.length).padStart(3)}  ${median(each).toFixed(1)} us each, ${sum(each).toFixed(0)} us`,
    );
  }
}

/**
 * The sequence for the batch at a position, always the same object, as batches submitted ahead need it. Recurrent state goes back and forth between two
 * slots, from nothing at position 0.
 */
function sequences(count: number, isRecurrent: boolean): (position: number) => BatchSequence {
  const blocks = Int32Array.from({ length: count }, (_, i) => i);
  const slots = { from: NO_SLOT, to: 1 };
  const only = isRecurrent ? { blocks, slots } : { blocks };
  return (position) => {
    slots.to = 1 - slots.to;
    slots.from = position === 0 ? NO_SLOT : 1 - slots.to;
    return only;
  };
}

const greedy: NextDraw = { temperature: 0, topK: 1, topP: 1, minP: 0, uniform: () => 0 };

/** Fills a batch with tokens from a position on; the last one has logits. */
function fillBatch(
  batch: Batch,
  { tokens, position, first }: { tokens: number; position: number; first: number },
  sequence: BatchSequence,
  vocab: number,
): void {
  batch.clear();
  for (let i = 0; i < tokens; i++) {
    batch.add((first + i * 37) % vocab, position + i, sequence, i === tokens - 1);
  }
}

function likeliest(logits: Float32Array): number {
  let best = 0;
  for (let i = 1; i < logits.length; i++) if (logits[i]! > logits[best]!) best = i;
  return best;
}

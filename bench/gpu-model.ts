// A model on the GPU without an engine around it, for the benchmarks of the GPU: its file opened, its weights uploaded, and batches timed
// from run() to the logits on the host. Greedy: the next token is the likeliest.

import { evenCapacity } from "../src/backends/backend.ts";
import type { GpuDevice } from "../src/backends/webgpu/device.ts";
import type { KernelTime } from "../src/backends/webgpu/time-kernels.ts";
import { type Tuning, tuningFor } from "../src/backends/webgpu/tuning.ts";
import { WebGpuBackend } from "../src/backends/webgpu/webgpu.ts";
import { median } from "../src/base/measure.ts";
import type { KvType } from "../src/dtypes/kv-types.ts";
import { dtypeByName } from "../src/dtypes/table.ts";
import { Batch, type BatchSequence, type NextDraw, NO_SLOT } from "../src/graph/batch.ts";
import { type Graph, kvGroups, recurrentStates } from "../src/graph/graph.ts";
import { makePlan } from "../src/graph/plan.ts";
import type { Arithmetic } from "../src/kernels/arithmetic.ts";
import { sum } from "./harness.ts";
import { fillBatch, likeliest, openGraph } from "./raw-model.ts";

/** Tokens of a batch, at most. */
export const MOST_TOKENS = 512;
const limits = { maxTokens: MOST_TOKENS, maxOutputs: 4 };

export interface GpuModel {
  readonly graph: Graph;
  readonly backend: WebGpuBackend;
  readonly loadMs: number;
  /** Tokens per second of a prompt: of each repetition. */
  prompt(tokens: number, repeats: number): Promise<number[]>;
  /** Milliseconds of each token, written after a prompt of `context` tokens. */
  generate(
    context: number,
    tokens: number,
    see?: (token: number, logit: number) => void,
  ): Promise<number[]>;
  /** Of the kernels of a batch of so many tokens, at position `context`. */
  kernels(context: number, tokens: number): Promise<KernelTime[]>;
  /** Milliseconds that the GPU takes for a token at position `context`, without the host. */
  gpuTime(context: number): Promise<number>;
  retune(tuning: Tuning): Promise<void>;
}

export interface GpuModelOptions {
  readonly tuning?: Tuning | undefined;
  readonly exact?: Arithmetic | undefined;
  /** Blocks of the KV cache that are held from the start. Default: all. */
  readonly held?: number;
  readonly kvType?: KvType;
}

export async function loadGpuModel(
  path: string,
  gpu: GpuDevice,
  contextTokens: number,
  { tuning = tuningFor(gpu.facts), exact, held, kvType = "f16" }: GpuModelOptions = {},
): Promise<GpuModel> {
  const started = performance.now();
  const { graph, uploadTo } = await openGraph(path);
  const backend = new WebGpuBackend(gpu, { tuning, exact });
  const blocks = Math.ceil((contextTokens + MOST_TOKENS) / 32);
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
  return {
    ...{ graph, backend, loadMs },
    retune: async (other) => await backend.retune(other),
    prompt: async (tokens, repeats) => {
      const speeds: number[] = [];
      for (let i = 0; i < repeats; i++) {
        const before = performance.now();
        await fillContext(tokens, i + 1);
        speeds.push((tokens * 1000) / (performance.now() - before));
      }
      return speeds;
    },
    generate: async (context, tokens, see) => {
      let next = await fillContext(context);
      const times: number[] = [];
      let before = performance.now();
      for (let i = 0; i < tokens; i++) {
        next = await runNext(context + i, next, tokens - 1 - i);
        see?.(next, best.logits[0]!);
        const now = performance.now();
        times.push(now - before);
        before = now;
      }
      return times;
    },
    gpuTime: async (context) => {
      await fillContext(context);
      fill(1, context, 1);
      return await backend.timeBatch(batch);
    },
    kernels: async (context, tokens) => {
      await fillContext(context);
      fill(tokens, context, 1);
      await backend.timeKernels(batch);
      return await backend.timeKernels(batch);
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

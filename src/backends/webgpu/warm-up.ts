// A warm-up: when a model is loaded, batches of made-up tokens, of each size for which there are other kernels, so that no user waits
// for one-time work (a driver that finishes compiling, buffers that are cleared before their first use, JavaScript that is not
// optimized yet). Their writes are cleared; the backend's caller sees nothing of them.

import {
  Batch,
  type BatchSequence,
  KV_BLOCK_TOKENS,
  type NextDraw,
  NO_SLOT,
} from "../../graph/batch.ts";
import { sectionsOf } from "../../graph/graph.ts";
import type { RunOptions } from "../backend.ts";
import { crossFloats } from "../cross-values.ts";
import type { Layout } from "./buffers.ts";
import type { Program } from "./program.ts";

/** A slow GPU, for which a large batch takes long in any case, is not kept busy for longer; the batch that has begun ends. */
export const WARM_UP_MS = 500;

/** The second time a size is computed, the time is mostly that of JavaScript. */
const TIMES = 2;

/** The best logit, as in greedy sampling, and a draw from smallBatch: other kernels find them. */
const greedy: NextDraw = { temperature: 0, topK: 1, topP: 1, minP: 0, uniform: () => 0 };
const drawn: NextDraw = { ...greedy, temperature: 1, topK: 40 };

export interface WarmUpParts {
  readonly layout: Layout;
  readonly program: Program;
  /** Positions that a text may have. */
  readonly contextSize: number;
  /** No batches of other sizes than the largest. */
  readonly onlyLargest: boolean;
  /** After which no batch begins. */
  readonly mostMs: number;
  run(batch: Batch, options: RunOptions): Promise<void>;
  now(): number;
}

/** The batches that were computed, for --explain. */
export interface WarmedUp {
  /** Tokens of each batch. */
  readonly sizes: readonly number[];
  readonly ms: number;
}

export async function warmUp(parts: WarmUpParts): Promise<WarmedUp> {
  const { layout, program, mostMs, run, now } = parts;
  const { graph, limits } = layout.plan;
  const batch = new Batch(limits);
  const since = now();
  const sizes: number[] = [];
  const compute = async (size: number, draw: NextDraw): Promise<void> => {
    fill(batch, size, parts, draw);
    const phase = batch.outputCount === size ? "generation" : "prompt";
    for (const [section, { takes }] of sectionsOf(graph).entries()) {
      const input = new Float32Array(crossFloats(takes, limits));
      await run(batch, { section, phase, input });
    }
    sizes.push(size);
  };
  const kernelSizes = sizesOf(program, limits.maxTokens);
  // First the kernels of large batches, and the largest batch: of the memory that a driver only allocates when a batch is computed,
  // these take the most. On a slow GPU its buffers were cleared, which has to do.
  const [large, largest] = [kernelSizes.at(-1)!, limits.maxTokens];
  await compute(large, greedy);
  const expectedMs = ((now() - since) * largest) / large;
  if (large < largest && expectedMs <= 2 * mostMs) await compute(largest, greedy);
  for (const size of parts.onlyLargest ? [] : kernelSizes) {
    for (let time = 0; time < TIMES && now() - since < mostMs; time++) {
      await compute(size, time === 0 ? drawn : greedy);
    }
  }
  return { sizes, ms: now() - since };
}

/** The least tokens that each kernel is for. */
function sizesOf({ parts, best, bestOne }: Program, most: number): number[] {
  const kernels = [...parts.flatMap(({ dispatches }) => dispatches), ...best, ...bestOne];
  const least = kernels.map(({ kernel }) => Math.max(1, kernel.minRows));
  return [...new Set([1, ...least])].filter((size) => size <= most).sort((a, b) => a - b);
}

/** A token of each of `size` generations, or a prompt of `size` tokens if no batch has as many outputs. */
function fill(
  batch: Batch,
  size: number,
  { layout, contextSize }: WarmUpParts,
  draw: NextDraw,
): void {
  const { graph, limits } = layout.plan;
  batch.clear();
  // A model that only makes embeddings is always asked for hidden states; a part of a split one has no say in it.
  const isPart = sectionsOf(graph).some(({ takes, gives }) => takes.length + gives.length > 0);
  batch.wantsLogits = graph.outputs.logits !== undefined || isPart;
  if (size <= limits.maxOutputs) {
    for (let i = 0; i < size; i++) {
      const row = batch.add(0, 0, madeUp(layout, i, 2), true, true, isPart);
      if (isPart) continue;
      batch.wantBest(row, draw.topK);
      batch.expect(row, draw, contextSize > 1 ? 1 : 0);
    }
    return;
  }
  for (let first = 0; first < size; first += contextSize) {
    const length = Math.min(contextSize, size - first);
    const sequence = madeUp(layout, first / contextSize, length);
    for (let i = 0; i < length; i++) batch.add(0, i, sequence, first + i === size - 1);
  }
}

/** A sequence of `tokens` tokens, in blocks and slots that no other has yet, as far as there are enough. */
function madeUp({ kv, plan }: Layout, index: number, tokens: number): BatchSequence {
  const blocks = Math.ceil(tokens / KV_BLOCK_TOKENS);
  const groups = kv.groups.map(({ held }) =>
    Int32Array.from({ length: blocks }, (_, i) => (index * blocks + i) % held),
  );
  const { slots = 0 } = kv;
  return {
    blocks: groups[0] ?? new Int32Array(blocks),
    groups,
    ...(slots > 0 && { slots: { from: NO_SLOT, to: index % slots } }),
    scales: new Float32Array(plan.limits.adapters ?? 0).fill(1),
  };
}

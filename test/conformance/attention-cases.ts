// Attention with every option by itself and with others: the cases, and what they should give, computed in doubles from a
// mask that is asked for every pair of positions. Shares nothing with src/ but the types of the cache.
//
// Batches have one token and many, of two sequences, over several blocks of the cache. Entries of block tables that lie
// before every window are out of range when a batch runs: whoever reads them is wrong or stopped.

import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import type { DType } from "../../src/dtypes/dtype.ts";
import { kvPair, kvQuantizer, kvTypes } from "../../src/dtypes/kv-types.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Batch, KV_BLOCK_TOKENS } from "../../src/graph/batch.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import type { Graph, Weight } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { kvOf } from "../support/kv.ts";
import { Random } from "../support/random.ts";

export interface AttentionCase {
  readonly name: string;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** Default: headDim. */
  readonly vHeadDim?: number;
  readonly window?: number;
  /** Windows begin at multiples of their length. Default: false. */
  readonly chunked?: boolean;
  /** Default: 1 / sqrt(headDim). */
  readonly scale?: number;
  readonly softcap?: number;
  readonly causal?: boolean;
  readonly sinks?: boolean;
}

/** Heads that share a KV head in fours and otherwise, and one that shares none. */
const shapes = {
  grouped: { heads: 10, kvHeads: 2, headDim: 32 },
  plain: { heads: 3, kvHeads: 3, headDim: 64 },
} as const;

export const attentionCases: readonly AttentionCase[] = [
  { name: "all positions", ...shapes.grouped },
  { name: "a window of 40", ...shapes.grouped, window: 40 },
  { name: "a window of 40, no shared heads", ...shapes.plain, window: 40 },
  { name: "a window of a block", ...shapes.plain, window: 32 },
  { name: "a window of 7", ...shapes.plain, window: 7 },
  { name: "a window of 3", ...shapes.plain, window: 3 },
  { name: "a window of 1", ...shapes.grouped, window: 1 },
  { name: "a window that nobody leaves", ...shapes.plain, window: 1000 },
  { name: "chunks of 40", ...shapes.grouped, window: 40, chunked: true },
  { name: "chunks of 7, no shared heads", ...shapes.plain, window: 7, chunked: true },
  { name: "a scale", ...shapes.grouped, scale: 0.3 },
  { name: "a softcap", ...shapes.grouped, scale: 0.5, softcap: 2 },
  { name: "sinks", ...shapes.grouped, sinks: true },
  { name: "sinks and a window, no shared heads", ...shapes.plain, sinks: true, window: 20 },
  { name: "values that are shorter than keys", ...shapes.grouped, headDim: 64, vHeadDim: 32 },
  { name: "values that are longer than keys", ...shapes.plain, headDim: 32, vHeadDim: 96 },
  { name: "not causal", ...shapes.grouped, causal: false },
  { name: "not causal, no shared heads", ...shapes.plain, causal: false },
  { name: "not causal, a window", ...shapes.plain, causal: false, window: 9 },
  {
    name: "everything",
    ...shapes.grouped,
    vHeadDim: 64,
    window: 36,
    scale: 0.2,
    softcap: 5,
    sinks: true,
  },
  {
    name: "everything, not causal, no shared heads",
    ...shapes.plain,
    vHeadDim: 32,
    window: 41,
    softcap: 3,
    causal: false,
    sinks: true,
  },
];

/** Of a cache, and how far results may be apart: kernels and the reference round the same values in other orders. */
export const cacheTypes: readonly { readonly kvType: string; readonly tolerance: number }[] = [
  ...kvTypes,
  "q8_0/q4_0",
  "f16/q5_1",
  "iq4_nl/bf16",
].map((kvType) => ({ kvType, tolerance: 3e-6 }));

const limits = { maxTokens: 16, maxOutputs: 16 };
const vocab = 61;
const f32 = dtypeByName("f32")!;

/** Tokens of two sequences in each batch. */
const batches: readonly (readonly [first: number, second: number])[] = [
  [16, 0],
  [15, 1],
  [1, 13],
  [9, 0],
  [8, 8],
  [1, 1],
  [13, 3],
  [16, 0],
  [0, 15],
  [7, 9],
  [3, 3],
  [1, 0],
];

const tokenAt = (sequence: number, position: number): number =>
  (position * 7 + sequence * 23 + (position >> 3)) % vocab;

/** Queries, keys and values are rows of tables, so that nothing but attention is computed. */
function graphOf(one: AttentionCase): Graph {
  const { heads, kvHeads, headDim, vHeadDim = headDim, window, causal = true, softcap } = one;
  const chunked = one.chunked ?? false;
  const g = new GraphBuilder();
  g.layer(0);
  const rows = (name: string, cols: number) =>
    g.embed({ name, shape: [vocab, cols], dtype: f32 }, name);
  const kCols = kvHeads * headDim;
  const vCols = kvHeads * vHeadDim;
  const state = g.state({ kind: "kv", layer: 0, kCols, vCols, ...(window && { window, chunked }) });
  const q = rows("q", heads * headDim); // [tokens, heads * headDim]
  g.kvWrite(rows("k", kCols), rows("v", vCols), state);
  const sinks = one.sinks ? { name: "sinks", shape: [heads], dtype: f32 } : undefined;
  const shape = { state, heads, kvHeads, headDim, vHeadDim, scale: scaleOf(one) };
  const out = g.attention(q, { ...shape, softcap, causal, sinks }, "attention"); // [tokens, heads * vHeadDim]
  g.layer(undefined);
  return g.finish({ hidden: g.select(out, "selected") });
}

function scaleOf({ scale, headDim }: AttentionCase): number {
  return scale ?? headDim ** -0.5;
}

const valuesOf = new Map<string, Float32Array>();

/** Scores of a few units, so that weights are neither all alike nor all one token's. */
function floatsOf({ name, shape }: Weight): Float32Array {
  const count = shape.reduce((a, b) => a * b, 1);
  const key = `${name} ${count}`;
  const known = valuesOf.get(key);
  if (known) return known;
  const random = new Random(name.length * 31 + name.charCodeAt(0) + count);
  const made = Float32Array.from({ length: count }, () => random.normal());
  valuesOf.set(key, made);
  return made;
}

/** What a backend gives for every token, in the order of the batches. */
export async function attended(
  backend: Backend,
  one: AttentionCase,
  kvType: string,
  explained?: (lines: readonly string[]) => void,
): Promise<Float32Array[]> {
  const graph = graphOf(one);
  const totals = [0, 1].map((s) => batches.reduce((sum, counts) => sum + counts[s]!, 0));
  const held = totals.map((total) => Math.ceil(total / KV_BLOCK_TOKENS));
  const blocks = held[0]! + held[1]!;
  await backend.prepare(makePlan(graph, limits), evenCapacity(blocks, kvOf(kvType)));
  for (const weight of graph.weights) {
    const bytes = new Uint8Array(floatsOf(weight).buffer);
    await backend.upload(weight, async (target, at) => {
      target.set(bytes.subarray(at, at + target.length));
    });
  }
  // Every other block, from behind.
  const order = Array.from({ length: blocks }, (_, i) => (i * 2 + 1) % (blocks | 1)).reverse();
  const free = order.filter((block, i) => block < blocks && order.indexOf(block) === i);
  for (let block = 0; block < blocks; block++) if (!free.includes(block)) free.push(block);
  const tables = held.map((count) => ({ blocks: Int32Array.from(free.splice(0, count)) }));
  const lengths = [0, 0];
  const seen: Float32Array[] = [];
  const batch = new Batch(limits);
  const { cols } = graph.outputs.hidden!;
  for (const counts of batches) {
    batch.clear();
    counts.forEach((count, s) => {
      forget(tables[s]!.blocks, lengths[s]!, one.window);
      for (let i = 0; i < count; i++) {
        const position = lengths[s]!++;
        batch.add(tokenAt(s, position), position, tables[s]!, true);
      }
    });
    await backend.run(batch);
    for (let row = 0; row < batch.outputCount; row++) {
      const out = new Float32Array(cols);
      await backend.read("hidden", row, out);
      seen.push(out);
    }
  }
  explained?.(backend.explain());
  backend.dispose();
  return seen;
}

/** Blocks that the token at `position` and all after it do not attend to have no number any more. */
function forget(blocks: Int32Array, position: number, window: number | undefined): void {
  if (window === undefined) return;
  const gone = Math.floor(Math.max(0, position - window + 1) / KV_BLOCK_TOKENS);
  blocks.fill(0x3fffff, 0, gone);
}

/** What they should give. */
export function expectedOf(one: AttentionCase, kvType: string): Float64Array[] {
  const lengths = [0, 0];
  return batches.flatMap((counts) =>
    counts.flatMap((count, s) => {
      const from = lengths[s]!;
      lengths[s]! += count;
      return Array.from({ length: count }, (_, i) =>
        attend(one, kvType, s, from + i, from + count),
      );
    }),
  );
}

/**
 * As in llama.cpp: a key is masked if it comes later, or if it is `window` or more positions before; where attention is not
 * causal, if it is more than half the window away.
 */
function isMasked(
  { window, chunked = false, causal = true }: AttentionCase,
  key: number,
  query: number,
): boolean {
  if (chunked) return key > query || key < window! * Math.floor(query / window!);
  if (!causal) return window !== undefined && Math.abs(query - key) > Math.floor(window / 2);
  return key > query || (window !== undefined && query - key >= window);
}

function attend(
  one: AttentionCase,
  kvType: string,
  sequence: number,
  position: number,
  length: number,
): Float64Array {
  const { heads, kvHeads, headDim, vHeadDim = headDim, softcap } = one;
  const kCols = kvHeads * headDim;
  const vCols = kvHeads * vHeadDim;
  const row = (name: string, cols: number, at: number): Float32Array => {
    const all = floatsOf({ name, shape: [vocab, cols], dtype: f32 });
    const token = tokenAt(sequence, at);
    return all.subarray(token * cols, (token + 1) * cols);
  };
  const types = kvPair(kvOf(kvType));
  const q = row("q", heads * headDim, position);
  const sinks = floatsOf({ name: "sinks", shape: [heads], dtype: f32 });
  const out = new Float64Array(heads * vHeadDim);
  const seen = Array.from({ length }, (_, key) => key).filter(
    (key) => !isMasked(one, key, position),
  );
  for (let head = 0; head < heads; head++) {
    const kvHead = Math.floor((head * kvHeads) / heads);
    const scores = seen.map((key) => {
      const k = stored(row("k", kCols, key), types.k);
      let sum = 0;
      for (let i = 0; i < headDim; i++) sum += q[head * headDim + i]! * k[kvHead * headDim + i]!;
      const score = sum * scaleOf(one);
      return softcap ? softcap * Math.tanh(score / softcap) : score;
    });
    if (one.sinks) scores.push(sinks[head]!);
    const top = Math.max(...scores);
    const weights = scores.map((score) => Math.exp(score - top));
    const total = weights.reduce((a, b) => a + b, 0);
    seen.forEach((key, j) => {
      const v = stored(row("v", vCols, key), types.v);
      for (let i = 0; i < vHeadDim; i++) {
        out[head * vHeadDim + i]! += (weights[j]! / total) * v[kvHead * vHeadDim + i]!;
      }
    });
  }
  return out;
}

const storedRows = new Map<string, WeakMap<ArrayBufferLike, Map<number, Float32Array>>>();

/** A row as the cache gives it back. */
function stored(row: Float32Array, dtype: DType): Float32Array {
  const ofType = storedRows.get(dtype.name) ?? new WeakMap();
  storedRows.set(dtype.name, ofType);
  const ofTable = ofType.get(row.buffer) ?? new Map<number, Float32Array>();
  ofType.set(row.buffer, ofTable);
  const known = ofTable.get(row.byteOffset);
  if (known) return known;
  const units = row.length / dtype.blockElems;
  const bytes = new Uint8Array(units * dtype.blockBytes);
  const back = new Float32Array(row.length);
  kvQuantizer(dtype)(row, 0, bytes, 0, units);
  dtype.dequantize(bytes, 0, back, 0, units);
  ofTable.set(row.byteOffset, back);
  return back;
}

/** The first token whose result is not what it should be, as a sentence; undefined: all are. */
export function firstWrong(
  got: readonly Float32Array[],
  want: readonly Float64Array[],
  tolerance: number,
): string | undefined {
  if (got.length !== want.length) return `${got.length} tokens, expected ${want.length}`;
  for (const [token, values] of want.entries()) {
    const size = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    for (const [i, value] of values.entries()) {
      const apart = Math.abs(got[token]![i]! - value) / size;
      if (!(apart < tolerance)) {
        return `token ${token}, value ${i}: ${got[token]![i]}, expected ${value} (${apart} apart)`;
      }
    }
  }
  return undefined;
}

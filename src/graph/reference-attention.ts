// The ops of the graph that use the KV cache, in plain TypeScript (reference.ts has the others): kv_write and attention.

import { bytesFor, type DType } from "../dtypes/dtype.ts";
import { kvQuantizer } from "../dtypes/kv-types.ts";
import { attendedFrom, attendedTo, bucketOf } from "./attended.ts";
import { type Batch, KV_BLOCK_TOKENS, tableOf } from "./batch.ts";
import type { NodeOf, Value } from "./graph.ts";
import {
  dot,
  type KvOverflow,
  largestOf,
  type ReferenceMemory,
  vector,
} from "./reference-memory.ts";
import { softmaxInPlace } from "./route.ts";

const f32 = Math.fround;

export function writeKv(node: NodeOf<"kv_write">, batch: Batch, memory: ReferenceMemory): void {
  const { k: kType, v: vType } = memory.kv.dtypes;
  const stored = memory.kv.states[node.state]!;
  const { kCols, vCols, keys, values, keyStride, valueStride } = stored;
  const keyBytes = bytesFor(kType, kCols);
  const valueBytes = bytesFor(vType, vCols);
  const [quantizeKey, quantizeValue] = [kvQuantizer(kType), kvQuantizer(vType)];
  const k = memory.value(node.k);
  const v = memory.value(node.v);
  for (let t = 0; t < batch.tokenCount; t++) {
    const position = batch.positions[t]!;
    const table = tableOf(batch.sequences[t]!, stored.group);
    const keyAt = kvByte(table, position, keyStride, keyBytes);
    quantizeKey(k, t * kCols, keys, keyAt, kCols / kType.blockElems);
    memory.kvOverflow ??= kvOverflow(node.k, kType, k, t * kCols);
    const valueAt = kvByte(table, position, valueStride, valueBytes);
    quantizeValue(v, t * vCols, values, valueAt, vCols / vType.blockElems);
    memory.kvOverflow ??= kvOverflow(node.v, vType, v, t * vCols);
  }
}

/** The overflow of the row of `x` at `at` in the cache's type; undefined: the row fits, or was not finite before. */
function kvOverflow(
  { name: value, cols }: Value,
  dtype: DType,
  x: Float32Array,
  at: number,
): KvOverflow | undefined {
  const largest = largestOf(x, at, cols);
  if (!Number.isFinite(largest) || staysFinite(dtype, Math.abs(largest))) return undefined;
  return { value, dtype: dtype.name, largest };
}

/** Whether a row with this magnitude is still finite in a cache of this type. Of a block, the largest value decides. */
export function staysFinite(dtype: DType, largest: number): boolean {
  if (largest < smallestOverflow) return true;
  const row = new Float32Array(dtype.blockElems);
  const bytes = new Uint8Array(dtype.blockBytes);
  // A block of both signs has the largest scale and the largest min.
  row.fill(-largest);
  row[0] = largest;
  kvQuantizer(dtype)(row, 0, bytes, 0, 1);
  dtype.dequantize(bytes, 0, row, 0, 1);
  return row.every((value) => Number.isFinite(value));
}

/** No type of a cache holds less: the first float that rounds to an infinite half. */
export const smallestOverflow = 65520;

export function attend(node: NodeOf<"attention">, batch: Batch, memory: ReferenceMemory): void {
  const q = memory.value(node.q);
  const out = memory.value(node.out);
  const sinks = node.sinks ? Float32Array.from(vector(memory, node.sinks)) : undefined;
  const slopes = node.alibi ? Float32Array.from(vector(memory, node.alibi)) : undefined;
  const bias = node.bias && Float32Array.from(vector(memory, node.bias)); // [buckets, heads]
  const buckets = node.buckets && Float32Array.from(vector(memory, node.buckets));
  let length = 0;
  for (let t = 0; t < batch.tokenCount; t++) {
    const startsSequence = t === 0 || batch.sequences[t] !== batch.sequences[t - 1];
    if (startsSequence) {
      length = batch.lengthAfter(t);
      const first = attendedFrom(node, batch.positions[t]!);
      loadContext(node.state, batch, t, first, length, memory);
    }
    const from = attendedFrom(node, batch.positions[t]!);
    const to = attendedTo(node, batch.positions[t]!, length);
    for (let head = 0; head < node.heads; head++) {
      const range = { t, from, to, position: batch.positions[t]! };
      attendHead(
        node,
        head,
        q,
        out,
        range,
        { sink: sinks?.[head], slope: slopes?.[head], bias, buckets },
        memory,
      );
    }
  }
}

/** The byte offset of `position` of a sequence with this block table: blocks are `stride` bytes apart, rows `rowBytes`. */
function kvByte(table: Int32Array, position: number, stride: number, rowBytes: number): number {
  const block = table[Math.floor(position / KV_BLOCK_TOKENS)]!;
  return block * stride + (position % KV_BLOCK_TOKENS) * rowBytes;
}

/**
 * Loads the keys and values of the sequence of token t from position `from` up to `length` into scratch memory. Blocks that have
 * left a window must not be read: they may belong to another sequence by now.
 */
export function loadContext(
  state: number,
  batch: Batch,
  t: number,
  from: number,
  length: number,
  memory: ReferenceMemory,
): void {
  const { k: kType, v: vType } = memory.kv.dtypes;
  const stored = memory.kv.states[state]!;
  const { kCols, vCols, keys, values, keyStride, valueStride } = stored;
  const keyBytes = bytesFor(kType, kCols);
  const valueBytes = bytesFor(vType, vCols);
  const table = tableOf(batch.sequences[t]!, stored.group);
  for (let position = from; position < length; position++) {
    const keyAt = kvByte(table, position, keyStride, keyBytes);
    kType.dequantize(keys, keyAt, memory.keys, position * kCols, kCols / kType.blockElems);
    const valueAt = kvByte(table, position, valueStride, valueBytes);
    vType.dequantize(values, valueAt, memory.values, position * vCols, vCols / vType.blockElems);
  }
}

interface HeadOptions {
  readonly sink: number | undefined;
  readonly slope: number | undefined;
  readonly bias: Float32Array | undefined;
  readonly buckets: Float32Array | undefined;
}

/** One head of token `t`, which is at `position`, over positions `from` to `to` of the loaded context. */
function attendHead(
  node: NodeOf<"attention">,
  head: number,
  q: Float32Array,
  out: Float32Array,
  { t, from, to, position }: { t: number; from: number; to: number; position: number },
  { sink, slope, bias, buckets }: HeadOptions,
  memory: ReferenceMemory,
): void {
  const { headDim, vHeadDim, kvHeads, softcap } = node;
  const { keys, values, scores } = memory;
  const queryAt = t * node.q.cols + head * headDim;
  const outAt = t * node.out.cols + head * vHeadDim;
  const kvHead = Math.floor(head / (node.heads / kvHeads));
  for (let p = from; p < to; p++) {
    const keyAt = (p * kvHeads + kvHead) * headDim;
    const score = f32(f32(dot(q, queryAt, keys, keyAt, headDim)) * f32(node.scale));
    scores[p] = softcap === undefined ? score : softcap * Math.tanh(score / softcap);
    if (slope !== undefined) scores[p]! -= slope * Math.abs(position - p);
    if (bias && buckets) scores[p]! += bias[bucketOf(buckets, p - position) * node.heads + head]!;
  }
  softmaxInPlace(scores, from, to - from, sink);
  for (let i = 0; i < vHeadDim; i++) {
    let sum = 0;
    for (let p = from; p < to; p++) {
      sum += scores[p]! * values[(p * kvHeads + kvHead) * vHeadDim + i]!;
    }
    out[outAt + i] = sum;
  }
}

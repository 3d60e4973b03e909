// The memory of the reference (reference.ts has its ops): values, weights, KV cache and recurrent state, and how ops read
// them. It allocates nothing: a backend provides the memory.

import { ModelError } from "../base/errors.ts";
import type { DType } from "../dtypes/dtype.ts";
import type { KvPair } from "../dtypes/kv-types.ts";
import { dtypeByName } from "../dtypes/table.ts";
import type { Batch } from "./batch.ts";
import type { Graph, Value, Weight } from "./graph.ts";
import type { StoredRecurrent } from "./reference-recurrent.ts";

/** A weight in memory: its bytes, and the same memory as floats where the type is float32. */
export interface LoadedWeight {
  readonly dtype: DType;
  /** The type that activations are rounded to beside it; undefined: they stay float32. */
  readonly activation: DType | undefined;
  readonly bytes: Uint8Array;
  readonly floats: Float32Array | undefined;
}

/** The type that activations are rounded to beside weights of this type; undefined: they stay float32. */
export function activationTypeOf(dtype: DType): DType | undefined {
  const activation = dtypeByName(dtype.activation);
  if (activation?.asFloat32) return undefined; // floats as they are
  if (activation?.quantize) return activation;
  throw new ModelError(
    `dtype ${dtype.name}: activations should be "${dtype.activation}", which cannot be written`,
  );
}

/** The most columns of a matmul's input: the length of a row of ReferenceMemory.rounded. */
export function widestActivations({ nodes }: Graph): number {
  const multiplied = nodes.map((node) =>
    node.op === "matmul" || node.op === "matmul_id" ? node.x.cols : 0,
  );
  return Math.max(0, ...multiplied);
}

/** The first row of activations that stayed float32, because the type beside the weight cannot hold it. */
export interface Widened {
  /** The name of the value, and of the weight that it was multiplied with. */
  readonly value: string;
  readonly weight: string;
  /** The type that it would have been rounded to. */
  readonly dtype: string;
  /** The value of the largest magnitude. */
  readonly largest: number;
}

/** The first keys or values that the type of the KV cache cannot hold. */
export interface KvOverflow {
  /** The name of the value. */
  readonly value: string;
  /** The type of the cache. */
  readonly dtype: string;
  /** The number of the largest magnitude in the row. */
  readonly largest: number;
}

/** The KV cache, in blocks of 32 tokens. */
export interface KvStore {
  readonly dtypes: KvPair;
  /** By index in Graph.states; undefined: that state is no KvState. */
  readonly states: readonly (StoredKv | undefined)[];
}

/** Keys and values of one layer, [block][32][cols] each, encoded as KvStore.dtypes. */
export interface StoredKv {
  /** The group of its block table (KvState.group). */
  readonly group: number;
  readonly kCols: number;
  readonly vCols: number;
  readonly keys: Uint8Array;
  readonly values: Uint8Array;
  /** Bytes from a block to the next: those of 32 rows, or more where other layers are in between. */
  readonly keyStride: number;
  readonly valueStride: number;
}

/** Memory of the ops. Scratch memory is made once, large enough for the largest row and context. */
export interface ReferenceMemory {
  value(value: Value): Float32Array;
  weight(weight: Weight): LoadedWeight;
  readonly kv: KvStore;
  /** By index in Graph.states; undefined: that state is not recurrent. */
  readonly recurrent: readonly (StoredRecurrent | undefined)[];
  /** [longest row of any weight] */
  readonly row: Float32Array;
  /** [most tokens, widestActivations()]: activations after rounding. */
  readonly rounded: Float32Array;
  /** One row of activations in its rounded type. */
  readonly packed: Uint8Array;
  /** [longest context, widest kCols or vCols]: keys and values as floats. */
  readonly keys: Float32Array;
  readonly values: Float32Array;
  /** [longest context] */
  readonly scores: Float32Array;
  /** Set by the first op whose activations stayed float32. */
  widened?: Widened | undefined;
  /** Set by the first row of keys or values that the cache cannot hold. */
  kvOverflow?: KvOverflow | undefined;
}

export function rowCount(value: Value, batch: Batch): number {
  return batch.count(value.rows);
}

export function readRow(
  weight: LoadedWeight,
  row: number,
  cols: number,
  target: Float32Array,
  at: number,
): void {
  const { dtype } = weight;
  const blocks = cols / dtype.blockElems;
  dtype.dequantize(weight.bytes, row * blocks * dtype.blockBytes, target, at, blocks);
}

/** A vector weight as floats; unless it is float32, it is in the scratch row, and valid until the next one is read. */
export function vector(memory: ReferenceMemory, weight: Weight): Float32Array {
  const loaded = memory.weight(weight);
  if (loaded.floats) return loaded.floats;
  readRow(loaded, 0, weight.shape[0]!, memory.row, 0);
  return memory.row;
}

/**
 * x itself, or each row quantized to the weight's activation type and back, in scratch memory: [rows, cols]. A row that
 * leaves the range of a float type stays as it is, regardless of other rows: a text must not depend on its batch.
 */
export function roundActivations(
  node: { readonly x: Value; readonly weight: Weight },
  rows: number,
  cols: number,
  memory: ReferenceMemory,
): Float32Array {
  const x = memory.value(node.x);
  const dtype = memory.weight(node.weight).activation;
  if (!dtype) return x;
  const { packed, rounded } = memory;
  const blocks = cols / dtype.blockElems;
  for (let t = 0; t < rows; t++) {
    dtype.quantize!(x, t * cols, packed, 0, blocks);
    dtype.dequantize(packed, 0, rounded, t * cols, blocks);
    if (dtype.blockElems > 1 || !hasInfinity(rounded, t * cols, cols)) continue;
    rounded.set(x.subarray(t * cols, (t + 1) * cols), t * cols);
    const largest = largestOf(x, t * cols, cols);
    if (!Number.isFinite(largest)) continue; // it was infinite before
    const { name: value } = node.x;
    memory.widened ??= { value, weight: node.weight.name, dtype: dtype.name, largest };
  }
  return rounded;
}

function hasInfinity(x: Float32Array, at: number, n: number): boolean {
  for (let i = at; i < at + n; i++) if (Math.abs(x[i]!) === Number.POSITIVE_INFINITY) return true;
  return false;
}

/** The value of the largest magnitude; NaN if there is one. */
export function largestOf(x: Float32Array, at: number, n: number): number {
  let largest = 0;
  for (let i = at; i < at + n; i++) {
    if (Math.abs(x[i]!) > Math.abs(largest) || Number.isNaN(x[i]!)) largest = x[i]!;
  }
  return largest;
}

/** Sum of a[i] * b[i], in four partial sums, since a single one would wait for each addition. */
export function dot(a: Float32Array, aAt: number, b: Float32Array, bAt: number, n: number): number {
  let s0 = 0;
  let s1 = 0;
  let s2 = 0;
  let s3 = 0;
  let i = 0;
  for (; i + 4 <= n; i += 4) {
    s0 += a[aAt + i]! * b[bAt + i]!;
    s1 += a[aAt + i + 1]! * b[bAt + i + 1]!;
    s2 += a[aAt + i + 2]! * b[bAt + i + 2]!;
    s3 += a[aAt + i + 3]! * b[bAt + i + 3]!;
  }
  for (; i < n; i++) s0 += a[aAt + i]! * b[bAt + i]!;
  return s0 + s1 + (s2 + s3);
}

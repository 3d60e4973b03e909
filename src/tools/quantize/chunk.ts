// One chunk of work: some whole rows of a matrix, converted from one type to another, and the error. Runs on any
// thread.
//
// Rows are split into groups for the vectorized searches (src/tools/quantize/search.ts); the types' own quantizers do
// the rest and are the reference for every byte.

import { ModelError } from "../../base/errors.ts";
import type { DType } from "../../dtypes/dtype.ts";
import { dtypeByName } from "../../dtypes/table.ts";
import { largestMagnitude, plainWiden, type Widen } from "./widen.ts";

/** Structured-cloneable: it is sent to another thread. */
export interface Chunk {
  /** Name for messages. */
  readonly tensor: string;
  readonly source: string;
  readonly target: string;
  readonly rows: number;
  readonly cols: number;
  /** [rows, cols] in the source type. */
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** One weight for each column. */
  readonly importance: Float32Array | undefined;
  /** Whether to measure the error. */
  readonly measure: boolean;
}

/** Sums over elements: the sums of a tensor's chunks add up. */
export interface ChunkError {
  squaredError: number;
  squares: number;
  maxError: number;
  maxValue: number;
}

export interface ChunkResult {
  /** [rows, cols] in the target type. */
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly error: ChunkError | undefined;
}

/** Beyond this value a scale may exceed the range of half floats, so the result is checked. */
const suspicious = 65504;

export type Quantize = (
  target: DType,
  values: Float32Array,
  bytes: Uint8Array,
  blocks: number,
  importance: Float32Array | undefined,
) => void;

/** The type's own quantizer. */
export const plainQuantize: Quantize = (target, values, bytes, blocks, importance) =>
  target.quantize!(values, 0, bytes, 0, blocks, importance);

/** Values that are read back at a time: they stay in the caches. */
const pieceElems = 1 << 14;
const restored = new Float32Array(pieceElems);

/** Scratch for the chunk as float32: grows to the largest chunk of a thread. */
let scratch = new Float32Array(0);

export function quantizeChunk(
  chunk: Chunk,
  quantize: Quantize,
  widen: Widen = plainWiden,
): ChunkResult {
  const [source, target] = [dtypeByName(chunk.source)!, dtypeByName(chunk.target)!];
  const elems = chunk.rows * chunk.cols;
  const stored = source.asFloat32?.(chunk.bytes);
  if (!stored && scratch.length < elems) scratch = new Float32Array(elems);
  const values = stored ?? scratch.subarray(0, elems);
  const largest = stored ? largestMagnitude(values) : widen(source, chunk.bytes, values);
  if (!Number.isFinite(largest)) throw notFinite(values, chunk);
  const bytes = new Uint8Array((elems / target.blockElems) * target.blockBytes);
  quantize(target, values, bytes, elems / target.blockElems, chunk.importance);
  // Importances may be large where values are not, and sums of both overflow.
  const mayOverflow = largest > suspicious || chunk.importance !== undefined;
  if (mayOverflow && target.blockBytes !== 4) checkFinite(target, bytes, elems, chunk);
  return { bytes, error: chunk.measure ? errorOf(target, values, bytes) : undefined };
}

/** No type can represent NaN, and one such weight ruins a model. */
function notFinite(values: Float32Array, { tensor }: Chunk): ModelError {
  const at = values.findIndex((value) => !Number.isFinite(value));
  return new ModelError(
    `quantize: tensor "${tensor}" holds ${values[at]} (value ${at} of a chunk of it). The model is damaged and cannot be quantized`,
  );
}

/** A large finite value, or a scale derived from it, can still overflow as a half float. */
function checkFinite(target: DType, bytes: Uint8Array, elems: number, chunk: Chunk): void {
  const { blockElems, blockBytes } = target;
  for (let at = 0; at < elems; at += pieceElems) {
    const count = Math.min(pieceElems, elems - at);
    target.dequantize(bytes, (at / blockElems) * blockBytes, restored, 0, count / blockElems);
    for (let i = 0; i < count; i++)
      if (!Number.isFinite(restored[i]!)) throw tooLarge(target, chunk);
  }
}

function tooLarge(target: DType, { tensor, importance }: Chunk): ModelError {
  const or = importance ? " or importances" : "";
  return new ModelError(
    `quantize: tensor "${tensor}" has values${or} that are too large for ${target.name}. Choose another type for it with --tensor-type`,
  );
}

function errorOf(target: DType, values: Float32Array, bytes: Uint8Array): ChunkError {
  const { blockElems, blockBytes } = target;
  const error = { squaredError: 0, squares: 0, maxError: 0, maxValue: 0 };
  for (let at = 0; at < values.length; at += pieceElems) {
    const count = Math.min(pieceElems, values.length - at);
    const from = (at / blockElems) * blockBytes;
    target.dequantize(bytes, from, restored, 0, count / blockElems);
    for (let i = 0; i < count; i++) {
      const value = values[at + i]!;
      const difference = Math.abs(value - restored[i]!);
      error.squaredError += difference * difference;
      error.squares += value * value;
      if (difference > error.maxError) error.maxError = difference;
      const size = Math.abs(value);
      if (size > error.maxValue) error.maxValue = size;
    }
  }
  return error;
}

// The interface of a tensor type. Files named as a type implement it; table.ts lists them.
//
// A row of a tensor is a sequence of blocks; a block holds `blockElems` values in `blockBytes` bytes. `dequantize` is
// the truth about a type: tests check kernels, the reference and the conformance suite against it.
// To add a type: one file here, one line in table.ts (docs/inside/add-a-dtype.md).

import type { Block } from "./block.ts";
import type { BlockSearch } from "./block-search.ts";

export interface DType {
  /** Lower-case ggml name: "q4_k", "iq2_xxs". */
  readonly name: string;
  /** The number that stands for this type in a GGUF file (ggml_type). */
  readonly ggufId: number;
  readonly blockElems: number;
  readonly blockBytes: number;

  /**
   * The name of the type that activations are quantized to before a matmul with weights of this type (ggml's
   * vec_dot_type); "f32" where the matmul is done in floats.
   */
  readonly activation: string;

  /** The layout of a block in memory. Backends without code of their own for the type derive it from here. */
  readonly block: Block;

  /**
   * Exact values of `blocks` consecutive blocks: reads src from byte `srcOffset`, writes dst from element `dstOffset`.
   * Computes in float32 steps as ggml does (Math.fround where a double would differ).
   */
  dequantize(
    src: Uint8Array,
    srcOffset: number,
    dst: Float32Array,
    dstOffset: number,
    blocks: number,
  ): void;

  /**
   * The inverse, with the same bits as ggml's quantizer. Absent for types that this build only reads.
   * `importance` is one weight per element of a row, from an importance matrix; types that do not search ignore it.
   * `search` finds the scales of types that search. Default: plainSearch.
   */
  quantize?(
    src: Float32Array,
    srcOffset: number,
    dst: Uint8Array,
    dstOffset: number,
    blocks: number,
    importance?: Float32Array,
    search?: BlockSearch,
  ): void;

  /**
   * The quantizer for the KV cache, for types whose `quantize` searches for scales: ggml does not search while a model runs
   * (quantize_row_*_ref).
   */
  quantizeRow?(
    src: Float32Array,
    srcOffset: number,
    dst: Uint8Array,
    dstOffset: number,
    blocks: number,
  ): void;

  /**
   * Set if llama.cpp quantizes to this type only with an importance matrix: for all matrices ("always": the quantizer throws
   * without one), or for matrices of layers.
   */
  readonly needsImportance?: "always" | "layers";

  /** For types whose bytes already are float32: a view of them, so that nothing is copied. */
  asFloat32?(bytes: Uint8Array): Float32Array | undefined;
}

/** Bytes of `elems` values; elems must be a multiple of the block size. */
export function bytesFor(dtype: DType, elems: number): number {
  return (elems / dtype.blockElems) * dtype.blockBytes;
}

export function bitsPerWeight(dtype: DType): number {
  return (dtype.blockBytes * 8) / dtype.blockElems;
}

// What a tensor type is: the one contract that every file of this folder fulfils.
//
// A row of a tensor is a sequence of blocks; a block holds `blockElems` values in `blockBytes` bytes. `dequantize` is
// the truth about a type: kernels, the reference and the conformance suite are all held against it.
// To add a type: one file here, one line in table.ts (docs/add-a-dtype.md).

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
   * The name of the type that activations are quantized to before they meet weights of this type in an integer dot
   * product (ggml's vec_dot_type); "f32" where the product is done in floats.
   */
  readonly activation: string;

  /** How a block lies in memory. Backends that have no code of their own for the type derive it from here. */
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
   * The inverse, with the same bits as ggml's reference quantizer. Absent for types that this build only reads.
   * `importance` (one weight per element of a row, as from an importance matrix) is honoured by types that can.
   * `search` finds scales for types that search; the plain one unless given.
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

// A model file of any format after its header was read: metadata, a table of tensors, and a way to read tensor bytes. Tensor data
// is not read until asked for.

import type { Metadata } from "../base/metadata.ts";
import type { DType } from "../dtypes/dtype.ts";
import type { FilePart } from "../platform/platform.ts";

export interface TensorInfo {
  /** GGUF's name ("blk.3.attn_q.weight"), for any name in the file. */
  readonly name: string;
  readonly dtype: DType;
  /** Outermost dimension first: a matrix is [rows (outputs), cols (inputs)], a vector [n], experts are [experts, rows, cols]. */
  readonly shape: readonly number[];
  readonly byteLength: number;
  /** Which of the model's files holds it, and at which offset. */
  readonly file: string;
  readonly offset: number;
  /** For a tensor that is not contiguous: parts of the same size, in order. `file` and `offset` are the first part's. */
  readonly parts?: readonly TensorPart[];
}

/** The start of a part of a tensor. */
export interface TensorPart {
  readonly file: string;
  readonly offset: number;
}

/** The raw tokenizer description, in the format's own form. */
export type TokenizerData =
  | { kind: "gguf" } // in the metadata, under tokenizer.ggml.*
  | { kind: "json"; tokenizer: unknown; config: unknown } // tokenizer.json and tokenizer_config.json, parsed
  | { kind: "llama2c"; bytes: Uint8Array }; // tokenizer.bin

export interface ModelFile {
  readonly format: "gguf" | "safetensors" | "llama2c";
  /** Name for messages and listings. */
  readonly name: string;
  readonly metadata: Metadata;
  readonly tensors: ReadonlyMap<string, TensorInfo>;
  readonly tokenizer: TokenizerData;
  /** Bytes of all files together. */
  readonly totalBytes: number;
  /** Reads part or all of a tensor's bytes into the caller's memory. */
  readTensor(tensor: TensorInfo, target: Uint8Array, byteOffset?: number): Promise<void>;
  /** The location of a tensor in local files, until close(); undefined: it is elsewhere. */
  filePartsOf(tensor: TensorInfo): readonly FilePart[] | undefined;
  close(): Promise<void>;
}

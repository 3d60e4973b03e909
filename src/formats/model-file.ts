// A model file after its header has been read, whatever its format: metadata, a table of tensors, and a way to read
// tensor bytes. Tensor data stays where it is until asked for.

import type { Metadata } from "../base/metadata.ts";
import type { DType } from "../dtypes/dtype.ts";

export interface TensorInfo {
  /** GGUF's name ("blk.3.attn_q.weight"), whatever the file called it. */
  readonly name: string;
  readonly dtype: DType;
  /** Outermost dimension first: a matrix is [rows (outputs), cols (inputs)], a vector [n], experts are [experts, rows, cols]. */
  readonly shape: readonly number[];
  readonly byteLength: number;
  /** Which of the model's files holds it, and where. */
  readonly file: string;
  readonly offset: number;
  /** Where it does not lie in one piece: parts of the same size, in order. `file` and `offset` are the first's. */
  readonly parts?: readonly TensorPart[];
}

/** Where a part of a tensor begins. */
export interface TensorPart {
  readonly file: string;
  readonly offset: number;
}

/** The raw tokenizer description, in the form that the format has it. */
export type TokenizerData =
  | { kind: "gguf" } // in the metadata, under tokenizer.ggml.*
  | { kind: "json"; tokenizer: unknown; config: unknown } // tokenizer.json and tokenizer_config.json, parsed
  | { kind: "llama2c"; bytes: Uint8Array }; // tokenizer.bin

export interface ModelFile {
  readonly format: "gguf" | "safetensors" | "llama2c";
  /** For messages and listings. */
  readonly name: string;
  readonly metadata: Metadata;
  readonly tensors: ReadonlyMap<string, TensorInfo>;
  readonly tokenizer: TokenizerData;
  /** Bytes of all files together. */
  readonly totalBytes: number;
  /** Reads part or all of a tensor's bytes into memory the caller owns. */
  readTensor(tensor: TensorInfo, target: Uint8Array, byteOffset?: number): Promise<void>;
  close(): Promise<void>;
}

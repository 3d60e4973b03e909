// The key/value metadata of a model file of any format.
//
// The keys are GGUF's ("general.architecture", "llama.block_count", "tokenizer.ggml.tokens"). A Hugging Face folder or
// a llama2.c checkpoint is presented under the same names, so models/ and tokenizers/ need to know only these. A
// getter returns undefined for an absent key and throws a FormatError for a value of another type. Arrays are decoded
// when they are first asked for, not when the file is opened.

export interface Metadata {
  keys(): IterableIterator<string>;
  has(key: string): boolean;
  string(key: string): string | undefined;
  /** Any integer or float type; a 64-bit integer beyond 2^53 is a FormatError. */
  number(key: string): number | undefined;
  boolean(key: string): boolean | undefined;
  /** Element count of an array, without decoding it. */
  arrayLength(key: string): number | undefined;
  strings(key: string): string[] | undefined;
  numbers(key: string): number[] | undefined;
  booleans(key: string): boolean[] | undefined;
  /** For display: scalars as they are; arrays as their first `limit` elements. */
  preview(key: string, limit?: number): MetadataPreview | undefined;
}

export interface MetadataPreview {
  /** "u32", "f32", "string", "bool", "array<string>", ... */
  type: string;
  value: string | number | bigint | boolean | readonly (string | number | bigint | boolean)[];
  /** For arrays: the full element count. */
  length?: number;
}

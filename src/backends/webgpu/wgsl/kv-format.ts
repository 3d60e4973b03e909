// How keys and values lie in a GPU's cache: rows of whole words, one row per token. The interface; kv-formats.ts has the formats.

export interface KvFormat {
  /** Values that one thread writes: a multiple of whole words. */
  readonly unit: number;
  /** Words of a unit. */
  readonly unitWords: number;
  /** With `nearestHalfText`: WGSL that writes unit `u` of `from` (an array of floats, at value `source`) to word `at` of `to`. */
  store(from: string, to: string): string;
  /** WGSL of the functions that `store` calls. */
  readonly functions?: readonly string[];
  /** WGSL of `fn NAME4(at: u32, i: u32) -> vec4f`: values i ... i + 3 of the row at word `at`; i is a multiple of 4. */
  load4(name: string): string;
  /** Between a row here and in the type's own form; undefined: they are the same bytes. */
  readonly rows?: KvRows;
  /** Rows are half floats, one behind the other, as matrix units take them. */
  readonly isHalves?: boolean;
  /** For kernels that read and write 8 values at a time; undefined: it has none. */
  readonly eights?: KvEights;
}

/** Of keys and of values. */
export interface KvFormats {
  readonly k: KvFormat;
  readonly v: KvFormat;
}

/** Bytes of whole rows, from one form to the other. */
export interface KvRows {
  toOwn(here: Uint8Array, own: Uint8Array): void;
  fromOwn(own: Uint8Array, here: Uint8Array): void;
}

/** Over `NAME: array<vec4u>`; i is a multiple of 8, and rows are whole vectors. */
export interface KvEights {
  /** WGSL of `fn NAME8(at: u32, i: u32) -> mat2x4f`. */
  load(name: string): string;
  /** With `nearestHalfText`: WGSL of `fn NAMEStore8(at: u32, i: u32, eight: mat2x4f)`. */
  store(name: string): string;
  /** With `nearestHalfText`: WGSL of `fn kept8(values: mat2x4f) -> mat2x4f`: the values as the cache would return them. */
  readonly kept: string;
}

/** Words of one token's keys, or values, in one layer. */
export function kvRowWords(format: KvFormat, cols: number): number {
  return (cols / format.unit) * format.unitWords;
}

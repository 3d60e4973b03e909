// The layout of keys and values in a GPU's cache: rows of whole words, one row per token. The interface; kv-formats.ts has the
// formats.

import type { Exchange } from "./subgroups.ts";

export interface KvFormat {
  /** Values that one thread writes: a multiple of whole words. */
  readonly unit: number;
  /** Words of a unit. */
  readonly unitWords: number;
  /**
   * With `nearestHalfText`: WGSL that writes unit `unit` of `from` (an array of floats, at value `source`) to `to`, in a row of `cols`
   * values that begins at word `first`.
   */
  store(from: string, to: string, cols: number): string;
  /** From this magnitude on, values may become infinite in the type. Default: it holds every float. */
  readonly beyond?: number;
  /** The word, from the row's first on, whose NaN makes a unit of a row of `cols` NaN. Default: the unit's first. */
  spoiledWord?(cols: number): string;
  /** WGSL of the functions that `store` calls. */
  readonly functions?: readonly string[];
  /** WGSL of `fn NAME4(at: u32, i: u32) -> vec4f`: values i ... i + 3 of the row of `cols` at word `at`; i is a multiple of 4. */
  load4(name: string, cols: number): string;
  /** Between a row here and in the type's own form; undefined: they are the same bytes. */
  readonly rows?: KvRows;
  /** For kernels whose lanes load whole vectors; undefined: it has none. */
  readonly vectors?: KvVectors;
}

/** The formats of keys and of values. */
export interface KvFormats {
  readonly k: KvFormat;
  readonly v: KvFormat;
}

/** Bytes of whole rows of `cols` values, from one form to the other. */
export interface KvRows {
  toOwn(here: Uint8Array, own: Uint8Array, cols: number): void;
  fromOwn(own: Uint8Array, here: Uint8Array, cols: number): void;
}

/**
 * The WGSL by which a lane holds neighbouring values of a head. Over `NAME: array<vec4u>`; `i` is a multiple of `values`, and rows are whole vectors.
 * VALUES is mat2x4f for 8 values and mat4x4f for 16.
 */
export interface KvVectors {
  /** Values of a lane. */
  readonly values: 8 | 16;
  /** Values that are stored together: heads are multiples or divisors of it, and rows multiples. */
  readonly together: number;
  /** WGSL of `struct Kept`, the values of a lane as they lie in the cache, and of `fn valuesOf(kept: Kept) -> VALUES`, without their scale. */
  readonly declarations: string;
  /** WGSL of the scale of a lane's values; undefined: there is none. */
  readonly scale?: (kept: string) => string;
  /**
   * With `nearestHalfText`: WGSL of `fn keptOf(values: VALUES, lane: u32) -> Kept` and `fn onceOf(kept: Kept, lane: u32) -> vec4f`, the words that
   * the lanes of `together` values store once. Whole workgroups must execute both; neighbouring lanes have neighbouring values. And of
   * `fn spoiled(value: Kept, key: Kept, values: VALUES, keys: VALUES) -> Kept`, the value, or NaN if either is beyond the type.
   */
  keep(exchange: Exchange): string;
  /** WGSL of `fn NAMEAt(first: u32, i: u32) -> Kept`: of the row of `cols` values at word `first`. */
  load(name: string, cols: number): string;
  /** WGSL of `fn NAMEStore(first: u32, i: u32, kept: Kept, once: vec4f)`. */
  store(name: string, cols: number): string;
  /** WGSL of `fn halvesOf(kept: Kept) -> array<vec4u, values / 8>`, half floats for matrix units; undefined: not for these. */
  readonly halves?: string;
}

export const valuesType = ({ values }: KvVectors): string => `mat${values / 4}x4f`;

/** Words of one token's keys, or values, in one layer. */
export function kvRowWords(format: KvFormat, cols: number): number {
  return (cols / format.unit) * format.unitWords;
}

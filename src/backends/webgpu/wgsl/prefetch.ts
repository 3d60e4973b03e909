// Brings weights, keys and values into the GPU's cache before they are used. While a few workgroups of a layer kernel (layer.ts) compute attention, most have nothing to do, and
// neither has the memory: they load a word of each 64 bytes of the weights for the second round of the matmul behind the next one.
// Weights of its first round are loaded into registers before it begins (matmul-chunks.ts), and those of the next matmul are. Before that, they load keys and values of the
// context for those that compute attention: the positions behind the first ones, which these load themselves.

import { type KvFormat, kvRowWords } from "./kv-format.ts";

/** A matmul of a layer kernel. */
interface PrefetchedRows {
  /** Workgroups that it would have: rounds of all workgroups together. */
  readonly rounds: number;
  /** Neighbouring rows of a round; twice as many where gate and up are stacked. */
  readonly rows: number;
  readonly isGated: boolean;
  /** Rows of gate: those of up follow. */
  readonly outputs: number;
  /** Vectors of 16 bytes of a row in `wide`. */
  readonly vectors: number;
  /** Lanes of a workgroup. */
  readonly size: number;
}

/** Vectors of 16 bytes that come into the cache together. */
const LINE = 4;

/** Keys and values of attention. */
interface PrefetchedCache {
  readonly format: KvFormat;
  /** Values of a token's row, of all heads. */
  readonly cols: number;
  /** Lanes of a workgroup. */
  readonly size: number;
  /** Positions from the first on that attention loads by itself. */
  readonly loaded: number;
  /** Positions of a context that is one part. With more, most workgroups compute attention themselves. */
  readonly most: number;
  /** WGSL that sets `begin` and `length`: where the positions of the token begin and end. */
  readonly context: string;
}

/** `fn prefetchCache`: two words that a lane loads, of as many positions as the workgroups from `first` on have lanes for. */
export function prefetchCacheText({
  format,
  cols,
  size,
  loaded,
  most,
  context,
}: PrefetchedCache): string {
  const words = kvRowWords(format, cols);
  const lines = Math.ceil(words / (4 * LINE));
  return `
fn prefetchCache(first: u32, group: vec3u, lane: u32) -> vec4u {
  let index = (group.x - first) * ${size}u + lane;
  ${context}
  let position = begin + index / ${lines}u + ${loaded}u;
  if (position + 1u >= length || length > begin + ${most + 1}u) { return vec4u(); }
  let at = cacheRow(0u, position) * ${words / 4}u + (index % ${lines}u) * ${LINE}u;
  return keys[at] + values[at];
}`;
}

/** `fn prefetch`: four words that a lane loads. Their values do not matter, but some code must use them, or they are not loaded. */
export function prefetchText({
  rounds,
  rows,
  isGated,
  outputs,
  vectors,
  size,
}: PrefetchedRows): string {
  const lines = Math.floor((rows * vectors) / LINE);
  const regions = isGated ? 2 : 1;
  const loads = [0, 1, 2, 3].map((i) => {
    const line = `min(lane + ${Math.floor(i / regions) * size}u, ${lines - 1}u)`;
    return `wide[first + ${(i % regions) * outputs * vectors}u + ${line} * ${LINE}u].x`;
  });
  return `
fn prefetch(group: vec3u, groups: vec3u, lane: u32) -> vec4u {
  let first = min(group.x + groups.x, ${rounds - 1}u) * ${rows * vectors}u;
  return vec4u(${loads.join(", ")});
}`;
}

// Where the KV cache is in the arena. A block of 32 tokens holds the keys and values of all layers behind each other, so that
// the cache takes memory as it fills: the system gives pages when they are first written to, and blocks are taken from the
// front. (A layer at a time, the first token would touch a page of each layer's keys and values, which are 2 MiB each.)
//
//   block b:  [keys of layer 0][values of layer 0][keys of layer 1] ...      each a piece of 32 rows
//
// Kernels reach block b of a layer at `layer's place + entry * piece`, where the entry is read from a block table. A table
// therefore counts in pieces: block b is entry b * stride. Layers may have rows of different sizes; each size has a table of
// its own, and a block is padded to a whole number of pieces of every size.

import { bytesFor } from "../../../dtypes/dtype.ts";
import type { LayerState } from "../../../graph/graph.ts";
import type { Plan } from "../../../graph/plan.ts";
import { KV_BLOCK_TOKENS } from "../../../graph/step.ts";
import type { KvCacheOptions } from "../../backend.ts";
import type { Arena } from "./arena.ts";

export interface CachePlace {
  readonly at: number;
  readonly bytes: number;
  /** Of all layers, padding included. */
  readonly blockBytes: number;
  /** From a block to the next, in pieces, for each size of rows. */
  readonly strides: readonly number[];
  /** By index in Graph.states; undefined: that one is no KV cache. */
  readonly places: readonly (KvPlace | undefined)[];
}

/** Keys and values of one layer. */
export interface KvPlace {
  /** Byte addresses in block 0. */
  readonly keys: number;
  readonly values: number;
  /** Of keys, or values, of one token. */
  readonly rowBytes: number;
  /** Which of CachePlace.strides its table is scaled by. */
  readonly size: number;
}

export function placeCache({ graph }: Plan, kv: KvCacheOptions, arena: Arena): CachePlace {
  const rows = graph.states.map((state) => rowBytesOf(state, kv));
  const sizes = [...new Set(rows.filter((bytes) => bytes > 0))];
  const pieces = sizes.map((rowBytes) => KV_BLOCK_TOKENS * rowBytes);
  const used = rows.reduce((sum, rowBytes) => sum + 2 * KV_BLOCK_TOKENS * rowBytes, 0);
  const unit = pieces.reduce(leastCommonMultiple, 1);
  const blockBytes = Math.ceil(used / unit) * unit;
  const bytes = kv.blocks * blockBytes;
  const at = arena.allocate(bytes, "kv", "KV cache");
  let next = at;
  const places = rows.map((rowBytes) => {
    if (rowBytes === 0) return undefined;
    const piece = KV_BLOCK_TOKENS * rowBytes;
    const place = { keys: next, values: next + piece, rowBytes, size: sizes.indexOf(rowBytes) };
    next += 2 * piece;
    return place;
  });
  return { at, bytes, blockBytes, strides: pieces.map((piece) => blockBytes / piece), places };
}

/** 0: no KV cache. Keys and values are rows of one size here; the graph's attention asks for that. */
function rowBytesOf(state: LayerState, { dtype }: KvCacheOptions): number {
  return state.kind === "kv" ? bytesFor(dtype, Math.max(state.kCols, state.vCols)) : 0;
}

function leastCommonMultiple(a: number, b: number): number {
  let [x, y] = [a, b];
  while (y !== 0) [x, y] = [y, x % y];
  return (a / x) * b;
}

// Where the KV cache is in the arena. A block of 32 tokens holds the keys and values of all layers behind each other, so that
// the cache takes memory as it fills: the system gives pages when they are first written to, and blocks are taken from the
// front. (A layer at a time, the first token would touch a page of each layer's keys and values, which are 2 MiB each.)
//
//   block b:  [keys of layer 0][values of layer 0][keys of layer 1] ...      each 32 rows of kv.cols values
//
// Kernels reach block t of a layer at `layer's place + t * 32 rows`. The tables that they read therefore count in such pieces:
// block b is entry b * stride.

import { bytesFor } from "../../dtypes/dtype.ts";
import type { Plan } from "../../graph/plan.ts";
import { KV_BLOCK_TOKENS } from "../../graph/step.ts";
import type { KvCacheOptions } from "../backend.ts";
import type { Arena } from "./arena.ts";

export interface CachePlace {
  readonly at: number;
  readonly bytes: number;
  /** Of keys, or values, of one token in one layer. */
  readonly rowBytes: number;
  /** Of all layers. */
  readonly blockBytes: number;
  /** From a block to the next, in pieces of 32 rows. */
  readonly stride: number;
  /** Byte address in block 0, by layer. */
  readonly keys: readonly number[];
  readonly values: readonly number[];
}

export function placeCache({ graph }: Plan, kv: KvCacheOptions, arena: Arena): CachePlace {
  const { layers, cols } = graph.kv;
  const rowBytes = bytesFor(kv.dtype, cols);
  const piece = KV_BLOCK_TOKENS * rowBytes;
  const stride = 2 * layers;
  const blockBytes = stride * piece;
  const bytes = kv.blocks * blockBytes;
  const at = arena.allocate(bytes, "kv", "KV cache");
  const places = (first: number) =>
    Array.from({ length: layers }, (_, layer) => at + (2 * layer + first) * piece);
  return { at, bytes, rowBytes, blockBytes, stride, keys: places(0), values: places(1) };
}

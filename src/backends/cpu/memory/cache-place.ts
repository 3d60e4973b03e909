// The layout of the state of sequences in the arena. A block of the KV cache holds the keys and values of 32 tokens, for all
// layers of a group (those of one window), one layer after the other. So the cache takes memory as it fills: the system gives
// pages when they are first written to, and blocks are taken from the front. (Stored layer by layer, the first token would
// touch a 2 MiB page of each layer's keys and values.) A slot of recurrent state holds that of all layers.
//
//   block b:  [keys of layer 0][values of layer 0][keys of layer 1] ...      each a piece of 32 rows
//
// Kernels address block b of a layer as `layer's address + entry * piece`, where the entry comes from a block table. A table
// therefore counts in pieces: block b is entry b * stride. Layers may have rows of different sizes; each size has its own
// table, and a block is padded to a multiple of the pieces of every size.

import { bytesFor } from "../../../dtypes/dtype.ts";
import { KV_BLOCK_TOKENS } from "../../../graph/batch.ts";
import { type KvState, kvGroups, type LayerState, recurrentStates } from "../../../graph/graph.ts";
import type { Plan } from "../../../graph/plan.ts";
import { groupRoom, type KvCacheOptions } from "../../backend.ts";
import type { Arena } from "./arena.ts";

export interface CachePlace {
  /** By group of KV states. */
  readonly groups: readonly GroupPlace[];
  /** One table for each size of rows in each group. */
  readonly tables: readonly TablePlace[];
  /** By index in Graph.states; undefined: that state is no KvState. */
  readonly places: readonly (KvPlace | undefined)[];
  readonly recurrent: RecurrentPlace;
}

export interface GroupPlace {
  readonly at: number;
  readonly bytes: number;
  /** Bytes of a block: all layers, padding included. */
  readonly blockBytes: number;
}

export interface TablePlace {
  readonly group: number;
  /** Pieces from a block to the next. */
  readonly stride: number;
}

/** Keys and values of one layer. */
export interface KvPlace {
  readonly group: number;
  /** Byte addresses in block 0. */
  readonly keys: number;
  readonly values: number;
  /** Bytes of the keys, or values, of one token. */
  readonly rowBytes: number;
  /** Index in CachePlace.tables. */
  readonly table: number;
}

export interface RecurrentPlace {
  /** Addresses in slot 0, by index in Graph.states; undefined: that state is not recurrent. */
  readonly places: readonly (number | undefined)[];
  /** Bytes from a slot to the next. */
  readonly slotBytes: number;
  /** Where the last slot ends. */
  readonly end: number;
}

export function placeCache({ graph }: Plan, kv: KvCacheOptions, arena: Arena): CachePlace {
  const places: (KvPlace | undefined)[] = graph.states.map(() => undefined);
  const tables: TablePlace[] = [];
  const groups = kvGroups(graph).map(({ states }, group): GroupPlace => {
    const rowBytes = (state: KvState) => rowBytesOf(state, kv);
    const sizes = [...new Set(states.map(rowBytes))];
    const pieces = sizes.map((size) => KV_BLOCK_TOKENS * size);
    const used = states.reduce((sum, state) => sum + 2 * KV_BLOCK_TOKENS * rowBytes(state), 0);
    const unit = pieces.reduce(leastCommonMultiple, 1);
    const blockBytes = Math.ceil(used / unit) * unit;
    const bytes = groupRoom(kv, group).blocks * blockBytes;
    const at = arena.allocate(bytes, "kv", "KV cache");
    const firstTable = tables.length;
    for (const piece of pieces) tables.push({ group, stride: blockBytes / piece });
    let next = at;
    for (const state of states) {
      const size = rowBytes(state);
      const piece = KV_BLOCK_TOKENS * size;
      const table = firstTable + sizes.indexOf(size);
      const place = { group, keys: next, values: next + piece, rowBytes: size, table };
      places[graph.states.indexOf(state)] = place;
      next += 2 * piece;
    }
    return { at, bytes, blockBytes };
  });
  return { groups, tables, places, recurrent: placeRecurrent(graph, kv, arena) };
}

function placeRecurrent(
  graph: Plan["graph"],
  { slots = 0 }: KvCacheOptions,
  arena: Arena,
): RecurrentPlace {
  const none = { places: graph.states.map(() => undefined), slotBytes: 0, end: 0 };
  if (recurrentStates(graph).length === 0) return none;
  const bytesOf = (state: LayerState) => (state.kind === "recurrent" ? state.floats * 4 : 0);
  const slotBytes = graph.states.reduce((sum, state) => sum + bytesOf(state), 0);
  let next = arena.allocate(slots * slotBytes, "kv", "recurrent state");
  const end = next + slots * slotBytes;
  const places = graph.states.map((state) => {
    const at = next;
    next += bytesOf(state);
    return state.kind === "recurrent" ? at : undefined;
  });
  return { places, slotBytes, end };
}

/** Bytes of a row of keys or values, which have the same size on this backend. */
function rowBytesOf({ kCols, vCols }: KvState, { dtype }: KvCacheOptions): number {
  return bytesFor(dtype, Math.max(kCols, vCols));
}

function leastCommonMultiple(a: number, b: number): number {
  let [x, y] = [a, b];
  while (y !== 0) [x, y] = [y, x % y];
  return (a / x) * b;
}

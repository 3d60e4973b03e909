// The layout of the state of sequences in the arena. A block of the KV cache holds the keys and values of 32 tokens, for all
// layers of a group (those of one window), one layer after the other. So the cache takes memory as it fills: the system gives
// pages when they are first written to, and blocks are taken from the front. (Stored layer by layer, the first token would
// touch a 2 MiB page of each layer's keys and values.) A slot of recurrent state holds that of all layers.
//
//   block b:  [keys of layer 0][values of layer 0][keys of layer 1] ...      each a piece of 32 rows
//
// Kernels address block b of a layer as `layer's address + entry * piece`, where the entry comes from a block table. A table
// therefore counts in pieces: block b is entry b * stride. Rows may have different sizes (layers, or types of keys and of
// values); each size has an area of its own, in which all pieces are alike, and a table.

import { bytesFor } from "../../../dtypes/dtype.ts";
import { kvPair } from "../../../dtypes/kv-types.ts";
import { KV_BLOCK_TOKENS } from "../../../graph/batch.ts";
import { type KvState, kvGroups, type LayerState, recurrentStates } from "../../../graph/graph.ts";
import type { Plan } from "../../../graph/plan.ts";
import { groupCapacity, type KvCacheOptions } from "../../backend.ts";
import type { Arena } from "./arena.ts";

export interface CachePlace {
  /** One for each size of rows in each group. */
  readonly areas: readonly AreaPlace[];
  /** By index in Graph.states; undefined: that state is no KvState. */
  readonly places: readonly (KvPlace | undefined)[];
  readonly recurrent: RecurrentPlace;
}

/** The rows of one size in the layers of a group. */
export interface AreaPlace {
  readonly group: number;
  readonly at: number;
  readonly bytes: number;
  /** Bytes of a block: all layers. */
  readonly blockBytes: number;
  /** Pieces from a block to the next. */
  readonly stride: number;
}

/** One layer. */
export interface KvPlace {
  readonly group: number;
  readonly keys: RowsPlace;
  readonly values: RowsPlace;
}

/** Keys, or values, of one layer. */
export interface RowsPlace {
  /** The byte address in block 0. */
  readonly at: number;
  /** Bytes of one token. */
  readonly rowBytes: number;
  /** Index in CachePlace.areas. */
  readonly area: number;
}

export interface RecurrentPlace {
  /** Addresses in slot 0, by index in Graph.states; undefined: that state is not recurrent. */
  readonly places: readonly (number | undefined)[];
  /** Bytes from a slot to the next. */
  readonly slotBytes: number;
  /** The end of the last slot. */
  readonly end: number;
}

export function placeCache({ graph }: Plan, kv: KvCacheOptions, arena: Arena): CachePlace {
  const places: (KvPlace | undefined)[] = graph.states.map(() => undefined);
  const areas: AreaPlace[] = [];
  const { k, v } = kvPair(kv.dtype);
  for (const [group, { states }] of kvGroups(graph).entries()) {
    const sizesOf = ({ kCols, vCols }: KvState) =>
      [bytesFor(k, kCols), bytesFor(v, vCols)] as const;
    const rows = states.flatMap(sizesOf);
    const next = new Map<number, { area: number; at: number }>();
    for (const rowBytes of new Set(rows)) {
      const stride = rows.filter((size) => size === rowBytes).length;
      const blockBytes = stride * KV_BLOCK_TOKENS * rowBytes;
      const bytes = groupCapacity(kv, group).blocks * blockBytes;
      const at = arena.allocate(bytes, "kv", "KV cache");
      next.set(rowBytes, { area: areas.length, at });
      areas.push({ group, at, bytes, blockBytes, stride });
    }
    const place = (rowBytes: number): RowsPlace => {
      const { area, at } = next.get(rowBytes)!;
      next.set(rowBytes, { area, at: at + KV_BLOCK_TOKENS * rowBytes });
      return { at, rowBytes, area };
    };
    for (const state of states) {
      const [keyBytes, valueBytes] = sizesOf(state);
      const keys = place(keyBytes);
      places[graph.states.indexOf(state)] = { group, keys, values: place(valueBytes) };
    }
  }
  return { areas, places, recurrent: placeRecurrent(graph, kv, arena) };
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

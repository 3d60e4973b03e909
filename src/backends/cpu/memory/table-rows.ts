// Rows of a matrix as floats, out of whichever layout it has in memory: embeddings. The values are those of the type's own
// dequantize(), bit for bit. Plain TypeScript, on whichever thread; types with a kernel for raw rows (ops/embed.ts)
// come here only when they lie in tiles.

import { dtypeByName } from "../../../dtypes/table.ts";
import { TILE_ROWS } from "../../../kernels/ops/packed/packed.ts";
import { packingOf } from "../../../kernels/ops/packed/packings.ts";
import { unpackRow } from "../../../kernels/ops/packed/unpack.ts";
import type { TableRows } from "../program.ts";
import type { ArenaViews } from "./arena.ts";
import { floatTilesFor, floatTypeOf } from "./float-tiles.ts";
import { tileWindow } from "./repack.ts";

/** Row `row` as floats, into target[to...]. */
export type RowReader = (row: number, target: Float32Array, to: number) => void;

type TableOf<L extends TableRows["layout"]> = Extract<TableRows, { layout: L }>;

export function makeRowReader(table: TableRows, views: ArenaViews): RowReader {
  const make = makers[table.layout] as (table: TableRows, views: ArenaViews) => RowReader;
  return make(table, views);
}

const makers: {
  readonly [L in TableRows["layout"]]: (table: TableOf<L>, views: ArenaViews) => RowReader;
} = {
  raw: ({ at, cols, dtype: name, rowBytes }, { u8 }) => {
    const dtype = dtypeByName(name)!;
    const blocks = cols / dtype.blockElems;
    return (row, target, to) => {
      const source = u8.subarray(at + row * rowBytes, at + (row + 1) * rowBytes);
      dtype.dequantize(source, 0, target, to, blocks);
    };
  },

  blocks: ({ at, cols, dtype, tileBytes, target: layout }, views) => {
    const packing = packingOf(dtype)!;
    return (row, target, to) => {
      const tile = Math.floor(row / TILE_ROWS);
      const memory = tileWindow(views, at + tile * tileBytes, tileBytes);
      unpackRow(packing, layout, memory, 0, row % TILE_ROWS, cols, target, to);
    };
  },

  floats: ({ at, cols, dtype, tileBytes, target: layout }, { buffer }) => {
    const tiles = floatTilesFor(floatTypeOf(dtype)!, layout);
    return (row, target, to) => {
      const tile = at + Math.floor(row / TILE_ROWS) * tileBytes;
      tiles.read(buffer, tile, row % TILE_ROWS, cols, target, to);
    };
  },
};

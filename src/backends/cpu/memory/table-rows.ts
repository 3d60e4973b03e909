// Reads rows of a matrix as floats, from any layout, for embeddings. The values are the bits of the type's dequantize(). Plain
// TypeScript, on any thread; types with a kernel for raw rows (ops/embed.ts) use it only where they are in row panels.

import { dtypeByName } from "../../../dtypes/table.ts";
import { PANEL_ROWS } from "../../../kernels/ops/packed/packed.ts";
import { packingOf } from "../../../kernels/ops/packed/packings.ts";
import { unpackRow } from "../../../kernels/ops/packed/unpack.ts";
import type { TableRows } from "../program.ts";
import type { ArenaViews } from "./arena.ts";
import { floatPanelsFor, floatTypeOf } from "./float-panels.ts";
import { panelWindow } from "./repack.ts";

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

  blocks: ({ at, cols, dtype, rowPanelBytes, target: layout }, views) => {
    const packing = packingOf(dtype)!;
    return (row, target, to) => {
      const panel = Math.floor(row / PANEL_ROWS);
      const memory = panelWindow(views, at + panel * rowPanelBytes, rowPanelBytes);
      unpackRow(packing, layout, memory, 0, row % PANEL_ROWS, cols, target, to);
    };
  },

  floats: ({ at, cols, dtype, rowPanelBytes, target: layout }, { buffer }) => {
    const panels = floatPanelsFor(floatTypeOf(dtype)!, layout);
    return (row, target, to) => {
      const panel = at + Math.floor(row / PANEL_ROWS) * rowPanelBytes;
      panels.read(buffer, panel, row % PANEL_ROWS, cols, target, to);
    };
  },
};

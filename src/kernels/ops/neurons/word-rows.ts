// Neuron rows of types whose row panels have a word of each row side by side, which are the K types (packed.ts: headers, small scales
// and quants are all 32-bit lanes). A row is its words of the panel, in their order; 16 rows are the words of a panel in another
// order, and take as much memory.
//
// The rows that a token needs, 16 at a time, become a panel in the cache, which the kernels of all other matmuls compute: the same
// bits for any such type, without a kernel of its own. Words are copied one by one, which takes as long as computing a panel; with
// vectors of 16 bytes, transposing four words of four rows at a time was no faster (Neoverse-N1). Batches make panels of rows that
// follow each other.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel } from "../../ir/kernel.ts";
import { CACHE_LINE } from "../matmul/prefetch.ts";
import {
  groupRows,
  groupsPerPanel,
  hasSmallScales,
  headerBytes,
  PANEL_ROWS,
  quantsAt,
  quantsBytes,
  runAt,
  runBlocks,
  scalesAt,
  spanBytes,
} from "../packed/packed.ts";
import { type LayoutTarget, layoutFor } from "../packed/packing.ts";
import { packingOf } from "../packed/packings.ts";
import { ROW_ENTRY_BYTES } from "./neuron-rows.ts";

export interface WordRows {
  readonly width: number;
  /** Rows of a group, and groups of a panel. */
  readonly lanes: number;
  readonly groups: number;
  /** Bytes of a span in a panel. */
  readonly panelBytes: number;
  /** The offset of each word of a row's span in a panel: bytes to that of the first row, and from a group to the next. */
  readonly words: readonly { readonly at: number; readonly apart: number }[];
}

/** undefined: the type has no such rows. */
export function wordRowsFor(dtype: string, target: LayoutTarget): WordRows | undefined {
  const packing = packingOf(dtype);
  const layout = packing && layoutFor(packing, target);
  if (!layout || !hasSmallScales(layout) || layout.lookup || layout.paired) return undefined;
  const { width } = layout;
  const words: { at: number; apart: number }[] = [];
  for (let at = 0; at < headerBytes(layout); at += width) {
    words.push({ at, apart: headerBytes(layout) });
  }
  const inRun = runBlocks(layout);
  for (let block = 0; block < layout.spanBlocks; block++) {
    const run = runAt(layout, Math.floor(block / inRun));
    if (block % inRun === 0) {
      words.push({ at: run, apart: scalesAt(layout, 1) - scalesAt(layout, 0) });
    }
    const quants = run + quantsAt(layout, block % inRun);
    for (let v = 0; v < layout.bits; v++) {
      words.push({ at: quants + v * width, apart: quantsBytes(layout) });
    }
  }
  const [lanes, groups] = [groupRows(layout), groupsPerPanel(layout)];
  return { width, lanes, groups, panelBytes: spanBytes(layout), words };
}

/** Bytes of a row of `spans` spans. */
function wordRowBytes({ words }: WordRows, spans: number): number {
  return 4 * words.length * spans;
}

/** Makes rows of a panel of `spans` spans, in place. `copy` has room for the panel. */
export function splitPanel(
  { lanes, panelBytes, words }: WordRows,
  spans: number,
  panel: Uint32Array,
  copy: Uint32Array,
): void {
  copy.set(panel);
  let to = 0;
  for (let row = 0; row < PANEL_ROWS; row++) {
    const [group, lane] = [Math.floor(row / lanes), row % lanes];
    for (let span = 0; span < spans; span++) {
      const from = (span * panelBytes) / 4 + lane;
      for (const { at, apart } of words) panel[to++] = copy[from + (at + group * apart) / 4]!;
    }
  }
}

/** (w, list, out, spans): the panel of the 16 rows that a list names first; those of the next 16 are prefetched. */
export function gatherRowsKernel(name: string, rows: WordRows): Kernel {
  const { width, lanes, groups, panelBytes, words } = rows;
  const k = new KernelBuilder(name, width);
  const w = k.variable(k.param("ptr", "w"), "w_at");
  const list = k.param("ptr", "list");
  const out = k.variable(k.param("ptr", "out"), "out_at");
  const spans = k.param("i32", "spans");
  const [entry, to] = [k.variable(list, "entry"), k.variable(out, "to")];
  const bytes = wordRowBytes(rows, 1);
  k.loop(spans, () => {
    for (let group = 0; group < groups; group++) {
      k.set(entry, k.plus(list, group * lanes * ROW_ENTRY_BYTES));
      k.set(to, out);
      k.loop(k.i32(lanes), () => {
        const row = k.op("ptr.add", [w, k.op("i32.load", [entry])]);
        const later = k.op("i32.load", [entry], PANEL_ROWS * ROW_ENTRY_BYTES);
        const next = k.op("ptr.add", [w, later]);
        for (let line = 0; line < bytes; line += CACHE_LINE) k.op("ptr.prefetch", [next], line);
        words.forEach(({ at, apart }, word) => {
          k.op("i32.store", [to, k.op("i32.load", [row], 4 * word)], at + group * apart);
        });
        k.advance(entry, ROW_ENTRY_BYTES);
        k.advance(to, 4);
      });
    }
    k.advance(w, bytes);
    k.advance(out, panelBytes);
  });
  return k.finish();
}

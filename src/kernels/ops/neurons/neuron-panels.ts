// Row panels (packed.ts) made of neuron rows or columns (neuron-layouts.ts), as IR: a batch of several tokens needs nearly all
// neurons, and is then computed as from any other weight, a few panels at a time. They have the bytes that packing the file makes.
//
// Neuron columns: the zips of four columns are the vectors of a panel, but for the nibbles that share a byte where neither is
// paired. Per block and tile: 32 loads and prefetches, 64 zips, 32 stores, and without pairs 48 ops on nibbles.
// Neuron rows: lanes are blocks there and rows here, so that words are copied one by one: a load and a store for each.
//
// Only where half floats are stored unchanged: coded ones (half-panels.ts) need a factor for each row.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import {
  BLOCK_COLS,
  type BlockLayout,
  groupRows,
  groupsPerPanel,
  PANEL_ROWS,
  quantsAt,
  quantsBytes,
  rowPanelBytes,
  scalesAt,
  spanBytes,
} from "../packed/packed.ts";
import { zipFour } from "./neuron-columns.ts";
import { lanesOf, type NeuronLayout, slabBytes, slabsOf, tileRows } from "./neuron-layouts.ts";

/** Vectors of interleaved columns: four, of as many rows as a vector has lanes. */
const ZIPPED = 4;

/** Panels that neuronColumnPanelsKernel makes at once. */
export function panelsOfTile(layout: NeuronLayout): number {
  return tileRows(layout) / PANEL_ROWS;
}

/** Bytes of a panel that neuronRowPanelKernel makes: rows are filled up to whole slabs. */
export function panelBytesOfRows(layout: NeuronLayout, panel: BlockLayout, cols: number): number {
  const blocks = slabsOf(layout, cols) * lanesOf(layout);
  return rowPanelBytes(panel, blocks * BLOCK_COLS) + layout.width;
}

/**
 * (scales, quants, out, blocks, blockBytes, columnBytes, panelBytes): the panels of a tile, `panelBytes` apart. `scales` and
 * `quants` are the tile's of the first block.
 */
export function neuronColumnPanelsKernel(
  name: string,
  layout: NeuronLayout,
  panel: BlockLayout,
): Kernel {
  const k = new KernelBuilder(name, layout.width);
  const scales = k.variable(k.param("ptr", "scales"), "scales_at");
  const quants = k.variable(k.param("ptr", "quants"), "quants_at");
  const out = k.variable(k.param("ptr", "out"), "out_at");
  const blocks = k.param("i32", "blocks");
  const blockBytes = k.param("i32", "blockBytes");
  const columnBytes = k.param("i32", "columnBytes");
  const panelBytes = k.param("i32", "panelBytes");
  const to = k.variable(out, "to");
  const [first, second] = [k.variable(quants, "first"), k.variable(quants, "second")];
  const columns = (from: Reg<"ptr">) => zippedColumns(k, from, columnBytes, blockBytes);
  /** Stores the vectors of a tile's rows, the first lanes' first. */
  const store = (vectors: readonly Reg<"i8v">[], at: (group: number) => number) => {
    const inPanel = vectors.length / panelsOfTile(layout);
    vectors.forEach((vector, a) => {
      if (a === 0) k.set(to, out);
      else if (a % inPanel === 0) k.update(to, "ptr.add", [to, panelBytes]);
      k.op("i8v.store", [to, vector], at(a % inPanel));
    });
  };
  k.loop(blocks, () => {
    copyScales(k, layout, scales, out, to, panelBytes);
    k.set(first, quants);
    if (layout.bits === 8 || panel.paired) {
      for (let v = 0; v < BLOCK_COLS / 4; v++) {
        const apart = (panel.paired ? 2 : 1) * quantsBytes(panel);
        store(columns(first), (group) => quantsAt(panel, 0) + group * apart + k.width * v);
      }
    } else {
      k.set(second, k.op("ptr.add", [quants, k.op("i32.mul", [columnBytes, k.i32(16)])]));
      for (let v = 0; v < BLOCK_COLS / 8; v++) {
        const vectors = halfBlocks(k, layout, columns(first), columns(second));
        store(vectors, (group) => quantsAt(panel, 0) + group * quantsBytes(panel) + k.width * v);
      }
    }
    k.update(scales, "ptr.add", [scales, blockBytes]);
    k.update(quants, "ptr.add", [quants, blockBytes]);
    k.advance(out, spanBytes(panel));
  });
  return k.finish();
}

/** The scales of a block: a vector may be longer than those of a panel, whose quants then overwrite the rest. */
function copyScales(
  k: KernelBuilder,
  layout: NeuronLayout,
  scales: Reg<"ptr">,
  out: Reg<"ptr">,
  to: Reg<"ptr">,
  panelBytes: Reg<"i32">,
): void {
  for (let index = 0; index < panelsOfTile(layout); index++) {
    if (index === 0) k.set(to, out);
    else k.update(to, "ptr.add", [to, panelBytes]);
    for (let at = 0; at < 2 * PANEL_ROWS; at += k.width) {
      const loaded = k.op("i8v.load", [scales], 2 * PANEL_ROWS * index + at);
      k.op("i8v.store", [to, loaded], at);
    }
  }
}

/** Four columns, interleaved; moves the pointer to the next, and prefetches those of the next block. */
function zippedColumns(
  k: KernelBuilder,
  from: Reg<"ptr">,
  columnBytes: Reg<"i32">,
  blockBytes: Reg<"i32">,
): Reg<"i8v">[] {
  const load = () => {
    const loaded = k.op("i8v.load", [from]);
    k.op("ptr.prefetch", [k.op("ptr.add", [from, blockBytes])]);
    k.update(from, "ptr.add", [from, columnBytes]);
    return loaded;
  };
  return zipFour(k, [load(), load(), load(), load()]);
}

/** Nibbles of both halves of a block share a byte: columns 4v.. in the low one, 16 + 4v.. in the high one. */
function halfBlocks(
  k: KernelBuilder,
  { paired }: NeuronLayout,
  first: readonly Reg<"i8v">[],
  second: readonly Reg<"i8v">[],
): Reg<"i8v">[] {
  const low = k.op("i8v.splat", [], 0x0f);
  const high = k.op("i8v.splat", [], 0xf0);
  const each = Array.from({ length: ZIPPED }, (_, j) => [first[j]!, second[j]!] as const);
  const ofLow = each.map(([a, b]) =>
    k.op("i8v.or", [k.op("i8v.and", [a, low]), k.op("i8v.shl", [b], 4)]),
  );
  const ofHigh = each.map(([a, b]) =>
    k.op("i8v.or", [k.op("i8v.shr_u", [a], 4), k.op("i8v.and", [b, high])]),
  );
  if (!paired) return [...ofLow, ...ofHigh];
  const less8 = k.op("i8v.splat", [], 0x88);
  return ofLow.flatMap((vector, j) => [vector, k.op("i8v.xor", [ofHigh[j]!, less8])]);
}

/** (w, out, rowBytes, slabs): the panel of 16 neuron rows, `rowBytes` apart. */
export function neuronRowPanelKernel(
  name: string,
  layout: NeuronLayout,
  panel: BlockLayout,
): Kernel {
  const k = new KernelBuilder(name, layout.width);
  const w = k.variable(k.param("ptr", "w"), "w_at");
  const out = k.variable(k.param("ptr", "out"), "out_at");
  const rowBytes = k.param("i32", "rowBytes");
  const slabs = k.param("i32", "slabs");
  const lanes = lanesOf(layout);
  const blockBytes = spanBytes(panel);
  const [row, to] = [k.variable(w, "row"), k.variable(out, "to")];
  const rows = (count: number, step: number, copy: () => void) =>
    k.loop(k.i32(count), () => {
      copy();
      k.update(row, "ptr.add", [row, rowBytes]);
      k.advance(to, step);
    });
  const copyWord = (from: number, at: number) =>
    k.op("i32.store", [to, k.op("i32.load", [row], from)], at);
  k.loop(slabs, () => {
    // Half floats, as words whose second half the next row overwrites; behind the last row lie quants, which come later.
    k.set(row, w);
    k.set(to, out);
    rows(PANEL_ROWS, 2, () => {
      for (let block = 0; block < lanes; block++) {
        copyWord(2 * block, block * blockBytes + scalesAt(panel, 0));
      }
    });
    k.set(row, w);
    for (let group = 0; group < groupsPerPanel(panel); group++) {
      k.set(to, k.plus(out, quantsAt(panel, 0) + group * quantsBytes(panel)));
      rows(groupRows(panel), 4, () => {
        for (let block = 0; block < lanes; block++) {
          for (let v = 0; v < layout.bits; v++) {
            copyWord(2 * lanes + k.width * v + 4 * block, block * blockBytes + k.width * v);
          }
        }
      });
    }
    if (panel.paired) {
      k.set(to, k.plus(out, quantsAt(panel, 0)));
      k.loop(k.i32(lanes), () => {
        for (let group = 0; group < groupsPerPanel(panel); group += 2) {
          pairGroups(k, to, group * quantsBytes(panel), quantsBytes(panel));
        }
        k.advance(to, blockBytes);
      });
    }
    k.advance(w, slabBytes(layout));
    k.advance(out, lanes * blockBytes);
  });
  return k.finish();
}

/** Two groups' quants, each with both halves of a block in a byte, become bytes that they share. */
function pairGroups(k: KernelBuilder, to: Reg<"ptr">, at: number, bytes: number): void {
  const vectors = bytes / k.width;
  const low = k.op("i8v.splat", [], 0x0f);
  const high = k.op("i8v.splat", [], 0xf0);
  const offset = k.op("i8v.splat", [], 0x80);
  const loaded = Array.from({ length: 2 * vectors }, (_, v) =>
    k.op("i8v.load", [to], at + k.width * v),
  );
  for (let v = 0; v < vectors; v++) {
    const [a, b] = [loaded[v]!, loaded[v + vectors]!];
    const begin = k.op("i8v.xor", [k.op("i8v.shl", [b], 4), offset]);
    const end = k.op("i8v.xor", [k.op("i8v.and", [b, high]), offset]);
    k.op("i8v.store", [to, k.op("i8v.or", [k.op("i8v.and", [a, low]), begin])], at + k.width * v);
    const upper = at + k.width * (v + vectors);
    k.op("i8v.store", [to, k.op("i8v.or", [k.op("i8v.shr_u", [a], 4), end])], upper);
  }
}

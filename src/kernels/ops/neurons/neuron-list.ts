// The list of a token's activations that are not zero, for the kernel of neuron columns (neuron-columns.ts), and the kernel that
// makes it of quantized activations (packed.ts). A list has
//   headers  one for each block of 32 columns that has any: i32 entries, i32 byte of the block in the matrix, f32 scale of the
//            activations, i32 -offset * sum of their quants; and the last two again, the scale divided by 16, the sum times 16
//   columns  i32 byte of each column in the matrix, four for an entry
//   xs       the activations' quants, a byte each, four for an entry; 0 for columns beyond the last
//
// Zero quants cannot be predicted, so no branch depends on them: every column is written, and the next one overwrites a
// zero. 10 instructions for a column; in TypeScript 50 us for 5632 columns (Neoverse-N1), as a kernel 20.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import type { Halves } from "../../target.ts";
import { RAISED_SCALE } from "../packed/half-panels.ts";
import {
  ACTIVATION_FIELDS,
  ACTIVATION_QUANTS_AT,
  activationBlockBytes,
  BLOCK_COLS,
} from "../packed/packed.ts";

export const COLUMN_HEADER = {
  bytes: 24,
  count: 0,
  block: 4,
  scale: 8,
  start: 12,
  highScale: 16,
  highStart: 20,
} as const;

/** Columns of an entry. */
export const COLUMN_ENTRY = 4;

/** Entries ahead whose columns are prefetched: a list must have this many more, of any columns, and one more header. */
export const ENTRIES_AHEAD = 3;

/**
 * Description of a part of a list, at the list's beginning: the numbers of its headers and entries, and their addresses in the
 * list.
 */
export const LIST_PART = {
  bytes: 20,
  headers: 0,
  entries: 4,
  headersAt: 8,
  columnsAt: 12,
  xsAt: 16,
} as const;

/** The factor of sums of high nibbles, and the divisor of their scales. */
const HIGH_FACTOR = 16;

/** Bytes of a block of quantized activations. */
const X_BLOCK_BYTES = activationBlockBytes(false, 16);

/**
 * (x, headers, columns, xs, blocks, first, blockBytes, columnBytes, firstColumn, written): the list of `blocks` blocks at x.
 * The first one is `first` bytes into the matrix, its columns begin `firstColumn` bytes into a block. Writes the numbers of
 * headers and entries to i32 written[2] (LIST_PART).
 */
export function neuronListKernel(
  name: string,
  width: number,
  halves: Halves,
  offset: number,
): Kernel {
  const k = new KernelBuilder(name, width);
  const x = k.variable(k.param("ptr", "x"), "x_at");
  const header = k.variable(k.param("ptr", "headers"), "header");
  const columns = k.variable(k.param("ptr", "columns"), "columns_at");
  const xs = k.variable(k.param("ptr", "xs"), "xs_at");
  const blocks = k.param("i32", "blocks");
  const block = k.variable(k.param("i32", "first"), "block");
  const blockBytes = k.param("i32", "blockBytes");
  const columnBytes = k.param("i32", "columnBytes");
  const firstColumn = k.param("i32", "firstColumn");
  const written = k.param("ptr", "written");
  const isCoded = halves === "coded";
  const allHeaders = k.variable(k.i32(0), "all_headers");
  const allEntries = k.variable(k.i32(0), "all_entries");
  const four = k.i32(4);
  k.loop(blocks, () => {
    const start = k.op("i32.add", [block, firstColumn]);
    const column = k.variable(start, "column");
    const count = k.variable(k.i32(0), "count");
    for (let i = 0; i < BLOCK_COLS; i++) {
      const word = k.op("i32.load", [x], ACTIVATION_QUANTS_AT + i - 3);
      const quant = k.op("i32.shr_u", [word], 24);
      k.op("i32.store", [k.op("ptr.add_product", [columns, count, four]), column]);
      k.op("i32.store", [k.op("ptr.add", [xs, count]), quant]);
      const isOne = k.op("i32.shr_u", [k.op("i32.add", [quant, k.i32(255)])], 8);
      k.update(count, "i32.add", [count, isOne]);
      k.update(column, "i32.add", [column, columnBytes]);
    }
    // The rest of the last entry: its activations are zeros already. The last column again, since another would be read from memory.
    const end = k.op("ptr.add_product", [columns, count, four]);
    const before = k.op("i32.sub", [count, k.i32(1)]);
    const last = k.op("i32.load", [k.op("ptr.add_product", [columns, before, four])]);
    for (let i = 0; i < COLUMN_ENTRY - 1; i++) k.op("i32.store", [end, last], 4 * i);
    const entries = k.op("i32.shr_u", [k.op("i32.add", [count, k.i32(COLUMN_ENTRY - 1)])], 2);
    const stored = k.op("f32.load", [x], 4 * ACTIVATION_FIELDS.scale);
    const scale = isCoded ? k.op("f32.mul", [stored, k.f32(1 / RAISED_SCALE)]) : stored;
    const sum = k.op("i32.load", [x], 4 * ACTIVATION_FIELDS.sum);
    const offsets = k.op("i32.mul", [sum, k.i32(isCoded ? -offset : offset)]);
    k.op("i32.store", [header, entries], COLUMN_HEADER.count);
    k.op("i32.store", [header, block], COLUMN_HEADER.block);
    k.op("f32.store", [header, scale], COLUMN_HEADER.scale);
    k.op("i32.store", [header, offsets], COLUMN_HEADER.start);
    const highScale = k.op("f32.mul", [scale, k.f32(1 / HIGH_FACTOR)]);
    k.op("f32.store", [header, highScale], COLUMN_HEADER.highScale);
    const highStart = k.op("i32.mul", [offsets, k.i32(HIGH_FACTOR)]);
    k.op("i32.store", [header, highStart], COLUMN_HEADER.highStart);
    // A block of zeros adds nothing, unless its scale is not a number: then nor are the results. Exponents of those are 255.
    const bits = k.op("i32.load", [header], COLUMN_HEADER.scale);
    const exponent = k.op("i32.shr_u", [bits], 23);
    const isStrange = k.op("i32.shr_u", [k.op("i32.add", [exponent, k.i32(1)])], 8);
    const needs = k.op("i32.add", [k.op("i32.add", [entries, isStrange]), k.i32(15)]);
    const isNeeded = k.op("i32.shr_u", [needs], 4);
    k.update(header, "ptr.add_product", [header, isNeeded, k.i32(COLUMN_HEADER.bytes)]);
    k.update(columns, "ptr.add_product", [columns, entries, k.i32(4 * COLUMN_ENTRY)]);
    k.update(xs, "ptr.add_product", [xs, entries, k.i32(COLUMN_ENTRY)]);
    k.update(allHeaders, "i32.add", [allHeaders, isNeeded]);
    k.update(allEntries, "i32.add", [allEntries, entries]);
    k.update(block, "i32.add", [block, blockBytes]);
    k.advance(x, X_BLOCK_BYTES);
  });
  storeListEnd(k, header, columns);
  k.op("i32.store", [written, allHeaders], 0);
  k.op("i32.store", [written, allEntries], 4);
  return k.finish();
}

/** Stores the entries that are prefetched beyond the last header and the last entry. */
export function storeListEnd(k: KernelBuilder, header: Reg<"ptr">, columns: Reg<"ptr">): void {
  const zero = k.i32(0);
  k.op("i32.store", [header, zero], COLUMN_HEADER.block);
  for (let i = 0; i < ENTRIES_AHEAD * COLUMN_ENTRY; i++) k.op("i32.store", [columns, zero], 4 * i);
}

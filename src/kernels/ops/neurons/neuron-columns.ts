// The kernel of neuron columns (neuron-layouts.ts): one token, some tiles of results, of the columns that a list names
// (neuron-list.ts). The bytes of four columns are interleaved, so that a dot4 multiplies all four at once.
//
// Cost per entry and tile, nibbles: 4 loads, 8 zips, 8 masks, 8 dot4 for 8 rows per lane; per block and tile, for each vector of
// sums, a widened scale, a multiply, a convert, an fma, a load and a store. Tiles are the inner loop, so that a column is read
// from its first byte to its last: one tile after the other, with its sums in registers, took twice as long, and 1.2 times as long
// where the matrix was stored that way, since prefetchers then read unneeded bytes. High nibbles are not shifted where dot4 takes any unsigned byte: their sums
// are 16 times as large, and their scales are divided by 16. Paired bytes (arm64) are not even masked: without the sums of the low nibbles, theirs are 16 times
// those of the high ones, for 4 masks instead of 8. Integer sums are exact, and they are scaled and added block by block, so that results have the bits of the
// kernels that read all columns (dot4.ts): a block without columns would add zero.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import { lessStart, startOfSum, valueOfSum } from "../matmul/float-sums.ts";
import { CACHE_LINE } from "../matmul/prefetch.ts";
import { type NeuronLayout, tileRows } from "./neuron-layouts.ts";
import { COLUMN_ENTRY, COLUMN_HEADER, ENTRIES_AHEAD } from "./neuron-list.ts";

/** Tiles that are computed at once, as far as their sums fit the registers: a multiple of which a matrix must have. */
export function tilesTogether({ width, bits }: NeuronLayout): number {
  return width === 16 ? bits / 2 : 1;
}

/** Rows of the tiles that are computed at once. */
export function rowsTogether(layout: NeuronLayout): number {
  return tilesTogether(layout) * tileRows(layout);
}

/**
 * (scales, quants, headers, columns, xs, sums, blocks, tiles): `scales` and `quants` are the address of the matrix, advanced to
 * the first tile's; `columns` and `xs` the entries' columns and activations; `tiles` counts those that are computed at once. Adds
 * to f32 sums[tile][rows of a tile].
 */
export function neuronColumnsKernel(name: string, layout: NeuronLayout): Kernel {
  const k = new KernelBuilder(name, layout.width);
  const scales = k.param("ptr", "scales");
  const quants = k.param("ptr", "quants");
  const header = k.variable(k.param("ptr", "headers"), "header");
  const columns = k.variable(k.param("ptr", "columns"), "columns_at");
  const xs = k.variable(k.param("ptr", "xs"), "xs_at");
  const sums = k.param("ptr", "sums");
  const blocks = k.param("i32", "blocks");
  const tiles = k.param("i32", "tiles");
  const together = tilesTogether(layout);
  const vectors = tileRows(layout) / k.lanes;
  const [column, x] = [k.variable(columns, "column"), k.variable(xs, "x")];
  const [s, out, w] = [k.variable(scales, "s"), k.variable(sums, "out"), k.variable(quants, "w")];
  const next = k.variable(scales, "next");
  k.loop(blocks, () => {
    const count = k.op("i32.load", [header], COLUMN_HEADER.count);
    const place = (at: number) => k.op("ptr.add", [scales, k.op("i32.load", [header], at)]);
    k.set(s, place(COLUMN_HEADER.block));
    k.set(next, place(COLUMN_HEADER.bytes + COLUMN_HEADER.block));
    k.set(w, quants);
    k.set(out, sums);
    k.loop(tiles, () => {
      for (let line = 0; line < 2 * k.lanes * vectors * together; line += CACHE_LINE) {
        k.op("ptr.prefetch", [next], line);
      }
      const starts = (v: number) =>
        layout.floatSums
          ? startOfSum(k)
          : k.op("i32v.load_splat", [header], startAt(layout, v % vectors));
      const dots = Array.from({ length: vectors * together }, (_, v) => k.variable(starts(v)));
      k.set(column, columns);
      k.set(x, xs);
      k.loop(count, () => {
        addColumns(k, layout, w, column, x, dots);
        k.advance(column, 4 * COLUMN_ENTRY);
        k.advance(x, COLUMN_ENTRY);
      });
      const factors = new Map<number, Reg<"f32v">>();
      const ofBlock = (at: number) => {
        const known = factors.get(at) ?? k.op("f32v.load_splat", [header], at);
        factors.set(at, known);
        return known;
      };
      const less = layout.floatSums
        ? lessStart(k, k.op("i32v.load_splat", [header], COLUMN_HEADER.start))
        : undefined;
      /** The second of a pair has the sums of whole bytes: without the first one's, they are 16 times its own. */
      const lessOf = (v: number) =>
        isSecond(layout, v) ? k.op("i32v.as_f32v", [dots[v - 1]!]) : less!;
      dots.forEach((dot, v) => {
        const scale = k.op("f32v.load_f16_finite", [s], 2 * k.lanes * v);
        const factor = k.op("f32v.mul", [scale, ofBlock(scaleAt(layout, v % vectors))]);
        const sum = k.op("f32v.load", [out], k.width * v);
        const value = less ? valueOfSum(k, dot, lessOf(v)) : k.op("f32v.from_i32v", [dot]);
        k.op("f32v.store", [out, k.op("f32v.fma", [value, factor, sum])], k.width * v);
      });
      k.advance(s, 2 * k.lanes * vectors * together);
      k.advance(next, 2 * k.lanes * vectors * together);
      k.advance(w, k.width * together);
      k.advance(out, k.width * vectors * together);
    });
    k.update(columns, "ptr.add_product", [columns, count, k.i32(4 * COLUMN_ENTRY)]);
    k.update(xs, "ptr.add_product", [xs, count, k.i32(COLUMN_ENTRY)]);
    k.advance(header, COLUMN_HEADER.bytes);
  });
  return k.finish();
}

/** Whether vector v of sums has high nibbles that are not shifted. */
function isHigh({ bits, unsigned }: NeuronLayout, v: number): boolean {
  return bits === 4 && unsigned && v >= 4;
}

/** Whether vector v of sums has whole bytes, which have another vector's rows in their low nibbles. */
function isSecond({ paired }: NeuronLayout, v: number): boolean {
  return paired && v % 2 === 1;
}

function startAt(layout: NeuronLayout, v: number): number {
  return isHigh(layout, v) ? COLUMN_HEADER.highStart : COLUMN_HEADER.start;
}

function scaleAt(layout: NeuronLayout, v: number): number {
  return isHigh(layout, v) || isSecond(layout, v) ? COLUMN_HEADER.highScale : COLUMN_HEADER.scale;
}

/** Adds the products of four columns' quants to the integer sums of the tiles. */
function addColumns(
  k: KernelBuilder,
  layout: NeuronLayout,
  w: Reg<"ptr">,
  column: Reg<"ptr">,
  x: Reg<"ptr">,
  dots: readonly Reg<"i32v">[],
): void {
  const place = (i: number) => k.op("ptr.add", [w, k.op("i32.load", [column], 4 * i)]);
  for (let i = 0; i < COLUMN_ENTRY; i++) {
    k.op("ptr.prefetch", [place(i + ENTRIES_AHEAD * COLUMN_ENTRY)]);
  }
  const [a, b, c, d] = [place(0), place(1), place(2), place(3)];
  const four = k.op("i8v.load_splat32", [x]);
  const vectors = tileRows(layout) / k.lanes;
  for (let tile = 0; tile < tilesTogether(layout); tile++) {
    const load = (from: Reg<"ptr">) => k.op("i8v.load", [from], k.width * tile);
    zipFour(k, [load(a), load(b), load(c), load(d)]).forEach((rows, v) => {
      const add = (index: number, bytesOfRows: Reg<"i8v">) => {
        const dot = dots[tile * vectors + index]!;
        k.update(dot, layout.widened ? "i32v.dot4_ss" : "i32v.dot4", [four, bytesOfRows, dot]);
      };
      if (layout.bits === 8) add(v, rows);
      else if (layout.paired) {
        add(2 * v, k.op("i8v.and", [rows, k.op("i8v.splat", [], 15)]));
        add(2 * v + 1, rows);
      } else {
        add(v, k.op("i8v.and", [rows, k.op("i8v.splat", [], 15)]));
        const high = isHigh(layout, v + 4)
          ? k.op("i8v.and", [rows, k.op("i8v.splat", [], 0xf0)])
          : k.op("i8v.shr_u", [rows], 4);
        add(v + 4, high);
      }
    });
  }
}

/** Four vectors, byte by byte: bytes 0..3 of each 16-byte group, then 4..7, 8..11 and 12..15. */
export function zipFour(
  k: KernelBuilder,
  [a, b, c, d]: readonly [Reg<"i8v">, Reg<"i8v">, Reg<"i8v">, Reg<"i8v">],
): Reg<"i8v">[] {
  const low = [k.op("i8v.zip8_low", [a, b]), k.op("i8v.zip8_low", [c, d])] as const;
  const high = [k.op("i8v.zip8_high", [a, b]), k.op("i8v.zip8_high", [c, d])] as const;
  return [
    k.op("i8v.zip16_low", [...low]),
    k.op("i8v.zip16_high", [...low]),
    k.op("i8v.zip16_low", [...high]),
    k.op("i8v.zip16_high", [...high]),
  ];
}

// The kernel of neuron columns (neuron-layouts.ts): one token, some tiles of results, of the columns that a list names.
//
// A list has a header for each block of 32 columns that has any, and an entry for each four columns of it:
//   header  i32 entries, i32 byte of the block, f32 scale of the activations, i32 -offset * sum of their quants; and the
//           last two again, the scale divided by 16 and the sum times 16
//   entry   i32 byte of each column, then their activations' quants, a byte each; 0 for columns beyond the last
// The bytes of four columns are interleaved, so that a dot4 multiplies all four at once.
//
// Cost per entry and tile, nibbles: 4 loads, 8 zips, 8 masks, 8 dot4 for 8 rows per lane, 4 prefetches; per block and tile, for
// each vector of sums, a widened scale, a multiply, a convert, an fma, a load and a store. Tiles are the inner loop, so that a
// column is read from its first byte to its last: one tile after the other, with its sums in registers, took twice as long, and
// 1.2 times as long where the matrix was stored that way, since prefetchers then read what is not needed. High nibbles are not shifted where dot4 takes any
// unsigned byte: their sums are 16 times as large, and their scales are divided by 16. Integer sums are exact, and they are
// scaled and added block by block, so that results have the bits of the kernels that read all columns (dot4.ts): a block without
// columns would add zero.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import { CACHE_LINE } from "../matmul/prefetch.ts";
import { type NeuronLayout, tileRows } from "./neuron-layouts.ts";

export const COLUMN_HEADER = {
  bytes: 24,
  count: 0,
  block: 4,
  scale: 8,
  start: 12,
  highScale: 16,
  highStart: 20,
} as const;
export const COLUMN_ENTRY = { bytes: 20, columns: 4, quants: 16 } as const;

/** Entries ahead whose columns are prefetched: a list must have so many more, of any columns, and one more header. */
export const ENTRIES_AHEAD = 3;

/** What sums of high nibbles are multiplied by, and their scales divided. */
export const HIGH_FACTOR = 16;

/**
 * (scales, quants, headers, entries, sums, blocks, tiles): `scales` and `quants` are the address of the matrix, advanced to the
 * first tile's. Adds to f32 sums[tile][rows of a tile], in the order of rowsOfSums().
 */
export function neuronColumnsKernel(name: string, layout: NeuronLayout): Kernel {
  const k = new KernelBuilder(name, layout.width);
  const scales = k.param("ptr", "scales");
  const quants = k.param("ptr", "quants");
  const header = k.variable(k.param("ptr", "headers"), "header");
  const first = k.variable(k.param("ptr", "entries"), "first");
  const sums = k.param("ptr", "sums");
  const blocks = k.param("i32", "blocks");
  const tiles = k.param("i32", "tiles");
  const vectors = tileRows(layout) / k.lanes;
  const [entry, w] = [k.variable(first, "entry"), k.variable(quants, "w")];
  const [s, out] = [k.variable(scales, "s"), k.variable(sums, "out")];
  const next = k.variable(scales, "next");
  k.loop(blocks, () => {
    const count = k.op("i32.load", [header], COLUMN_HEADER.count);
    const place = (at: number) => k.op("ptr.add", [scales, k.op("i32.load", [header], at)]);
    k.set(s, place(COLUMN_HEADER.block));
    k.set(next, place(COLUMN_HEADER.bytes + COLUMN_HEADER.block));
    k.set(w, quants);
    k.set(out, sums);
    k.loop(tiles, () => {
      for (let line = 0; line < 2 * k.lanes * vectors; line += CACHE_LINE) {
        k.op("ptr.prefetch", [next], line);
      }
      const dots = Array.from({ length: vectors }, (_, v) =>
        k.variable(k.op("i32v.load_splat", [header], startAt(layout, v))),
      );
      k.set(entry, first);
      k.loop(count, () => addColumns(k, layout, w, entry, dots));
      dots.forEach((dot, v) => {
        const scale = k.op("f32v.load_f16_finite", [s], 2 * k.lanes * v);
        const ofBlock = k.op("f32v.load_splat", [header], scaleAt(layout, v));
        const factor = k.op("f32v.mul", [scale, ofBlock]);
        const sum = k.op("f32v.load", [out], k.width * v);
        const value = k.op("f32v.from_i32v", [dot]);
        k.op("f32v.store", [out, k.op("f32v.fma", [value, factor, sum])], k.width * v);
      });
      k.advance(s, 2 * k.lanes * vectors);
      k.advance(next, 2 * k.lanes * vectors);
      k.advance(w, k.width);
      k.advance(out, k.width * vectors);
    });
    k.set(first, entry);
    k.advance(header, COLUMN_HEADER.bytes);
  });
  return k.finish();
}

/** Whether vector v of sums is of high nibbles that are not shifted. */
function isHigh({ bits, unsigned }: NeuronLayout, v: number): boolean {
  return bits === 4 && unsigned && v >= 4;
}

function startAt(layout: NeuronLayout, v: number): number {
  return isHigh(layout, v) ? COLUMN_HEADER.highStart : COLUMN_HEADER.start;
}

function scaleAt(layout: NeuronLayout, v: number): number {
  return isHigh(layout, v) ? COLUMN_HEADER.highScale : COLUMN_HEADER.scale;
}

/** Adds the products of four columns' quants to the integer sums of a tile. */
function addColumns(
  k: KernelBuilder,
  layout: NeuronLayout,
  w: Reg<"ptr">,
  entry: Reg<"ptr">,
  dots: readonly Reg<"i32v">[],
): void {
  const { bytes, quants } = COLUMN_ENTRY;
  const place = (at: number) => k.op("ptr.add", [w, k.op("i32.load", [entry], at)]);
  for (let i = 0; i < COLUMN_ENTRY.columns; i++) {
    k.op("ptr.prefetch", [place(4 * i + ENTRIES_AHEAD * bytes)]);
  }
  const x = k.op("i8v.load_splat32", [entry], quants);
  const load = (i: number) => k.op("i8v.load", [place(4 * i)]);
  const [a, b, c, d] = [load(0), load(1), load(2), load(3)];
  const pairs = [
    [k.op("i8v.zip8_low", [a, b]), k.op("i8v.zip8_low", [c, d])],
    [k.op("i8v.zip8_high", [a, b]), k.op("i8v.zip8_high", [c, d])],
  ] as const;
  pairs.forEach(([ab, cd], pair) => {
    (["i8v.zip16_low", "i8v.zip16_high"] as const).forEach((zip, part) => {
      const four = k.op(zip, [ab, cd]);
      const v = 2 * pair + part;
      const add = (index: number, bytesOfRows: Reg<"i8v">) => {
        const dot = dots[index]!;
        k.update(dot, layout.widened ? "i32v.dot4_ss" : "i32v.dot4", [x, bytesOfRows, dot]);
      };
      if (layout.bits === 8) add(v, four);
      else {
        add(v, k.op("i8v.and", [four, k.op("i8v.splat", [], 15)]));
        const isShifted = !isHigh(layout, v + 4);
        const high = isShifted
          ? k.op("i8v.shr_u", [four], 4)
          : k.op("i8v.and", [four, k.op("i8v.splat", [], 0xf0)]);
        add(v + 4, high);
      }
    });
  });
  k.advance(entry, bytes);
}

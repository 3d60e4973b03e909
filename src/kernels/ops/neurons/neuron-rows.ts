// The kernel of neuron rows (neuron-layouts.ts): one token, the rows that a list names, four at a time.
//
// Lanes are blocks: a slab gives the exact integer sums of as many blocks as there are lanes, and the factor of each.
// They are then added block by block, in order, so that a row has the bits of the kernels that compute all rows (dot4.ts): both
// go through scratch memory, from where they are loaded lane by lane, and four rows are four independent chains of additions. On
// arm64, where a vector has as many lanes as there are rows, they are transposed instead: one chain, whose lanes are rows.
//
// Cost per row and slab, nibbles: 4 loads, 8 ops to unpack, 8 dot4, a convert, a multiply and two stores; and for each block an
// fma and two loads (Neoverse-N1: 7.8 ns). Transposed: 4 zips and an fma instead of the stores and of the work for each block.
//
// The activations of a token (slabs of x): slab -> { f32 scale and i32 -offset * sum of the quants of each block; 8 vectors of
// quants, of which number v has columns 4v..4v+3 of every block }.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import { lessStart, startOfSum, valueOfSum } from "../matmul/float-sums.ts";
import { CACHE_LINE } from "../matmul/prefetch.ts";
import { zip } from "../packed/unpack-pairs.ts";
import { lanesOf, type NeuronLayout, slabBytes } from "./neuron-layouts.ts";

/** Rows of a group; a list has whole groups, and one more, of any rows, to prefetch. */
export const ROWS_TOGETHER = 4;
/** i32 byte of the row, i32 byte of its result. */
export const ROW_ENTRY_BYTES = 8;
/** Vectors of a slab of activations: scales, starts, 8 of quants. */
export const X_SLAB_VECTORS = 10;

/** Scratch bytes of the kernel: value and factor of each block of a slab, for each row. */
export function neuronRowsScratch({ width }: NeuronLayout): number {
  return ROWS_TOGETHER * 2 * width;
}

/** (w, x, out, list, scratch, groups, slabs): writes a float for each row of the list. */
export function neuronRowsKernel(name: string, layout: NeuronLayout): Kernel {
  const k = new KernelBuilder(name, layout.width);
  const w = k.param("ptr", "w");
  const x = k.param("ptr", "x");
  const out = k.param("ptr", "out");
  const list = k.variable(k.param("ptr", "list"), "entry");
  const scratch = k.param("ptr", "scratch");
  const groups = k.param("i32", "groups");
  const slabs = k.param("i32", "slabs");
  const each = Array.from({ length: ROWS_TOGETHER }, (_, row) => row);
  const row = each.map(() => k.variable(w, "row"));
  const next = each.map(() => k.variable(w, "next"));
  const xAt = k.variable(x, "x_at");
  k.loop(groups, () => {
    const place = (index: number) =>
      k.op("ptr.add", [w, k.op("i32.load", [list], index * ROW_ENTRY_BYTES)]);
    each.forEach((r) => {
      k.set(row[r]!, place(r));
      k.set(next[r]!, place(r + ROWS_TOGETHER));
    });
    k.set(xAt, x);
    const slab = () => {
      each.forEach((r) => {
        for (let line = 0; line < slabBytes(layout); line += CACHE_LINE) {
          k.op("ptr.prefetch", [next[r]!], line);
        }
      });
      const blocks = slabBlocks(k, layout, row, xAt);
      each.forEach((r) => {
        k.advance(row[r]!, slabBytes(layout));
        k.advance(next[r]!, slabBytes(layout));
      });
      k.advance(xAt, X_SLAB_VECTORS * k.width);
      return blocks;
    };
    const resultOf = (r: number) =>
      k.op("ptr.add", [out, k.op("i32.load", [list], r * ROW_ENTRY_BYTES + 4)]);
    if (layout.floatSums) {
      const sum = k.variable(k.op("f32v.const", [], 0)); // lanes are rows
      k.loop(slabs, () => addTransposed(k, slab(), sum));
      k.op("f32v.store", [scratch, sum]);
      each.forEach((r) => {
        k.op("f32.store", [resultOf(r), k.op("f32.load", [scratch], 4 * r)]);
      });
    } else {
      const zero = k.op("f32v.const", [], 0);
      const sums = each.map(() => k.variable(zero));
      k.loop(slabs, () => {
        slab().forEach(({ value, factor }, r) => {
          k.op("f32v.store", [scratch, value], 2 * r * k.width);
          k.op("f32v.store", [scratch, factor], (2 * r + 1) * k.width);
        });
        addBlocks(k, layout, scratch, sums);
      });
      sums.forEach((sum, r) => {
        k.op("f32v.store", [scratch, sum]);
        k.op("f32.store", [resultOf(r), k.op("f32.load", [scratch])]);
      });
    }
    k.advance(list, ROWS_TOGETHER * ROW_ENTRY_BYTES);
  });
  return k.finish();
}

/** Of each block of a slab of a row, in lanes: the integer sum as a float, and its factor. */
interface SlabBlocks {
  readonly value: Reg<"f32v">;
  readonly factor: Reg<"f32v">;
}

/** Vector by vector of activations, each for all rows: on targets with few registers, loads take the most time. */
function slabBlocks(
  k: KernelBuilder,
  layout: NeuronLayout,
  rows: readonly Reg<"ptr">[],
  x: Reg<"ptr">,
): SlabBlocks[] {
  const { bits, widened, floatSums } = layout;
  const starts = k.op("i32v.load", [x], k.width);
  const first = floatSums ? startOfSum(k) : starts;
  const less = floatSums ? lessStart(k, starts) : undefined;
  const dots = rows.map(() => k.variable(first));
  const activations = (v: number) => k.op("i8v.load", [x], k.width * (2 + v));
  for (let v = 0; v < bits; v++) {
    const low = activations(v);
    const high = bits === 8 ? undefined : activations(v + 4);
    rows.forEach((row, r) => {
      const add = (by: Reg<"i8v">, quants: Reg<"i8v">) =>
        k.update(dots[r]!, widened ? "i32v.dot4_ss" : "i32v.dot4", [by, quants, dots[r]!]);
      const loaded = k.op("i8v.load", [row], 2 * k.lanes + k.width * v);
      add(low, high ? k.op("i8v.and", [loaded, k.op("i8v.splat", [], 15)]) : loaded);
      if (high) add(high, k.op("i8v.shr_u", [loaded], 4));
    });
  }
  const scales = k.op("f32v.load", [x]);
  return rows.map((row, r) => {
    const scale = k.op("f32v.load_f16_finite", [row]);
    const factor = k.op("f32v.mul", [scale, scales]);
    const dot = dots[r]!;
    const value = less ? valueOfSum(k, dot, less) : k.op("f32v.from_i32v", [dot]);
    return { value, factor };
  });
}

/** Four rows of four blocks become four blocks of four rows, which are added one after the other. */
function addTransposed(k: KernelBuilder, rows: readonly SlabBlocks[], sum: Reg<"f32v">): void {
  const values = transposed(
    k,
    rows.map(({ value }) => value),
  );
  const factors = transposed(
    k,
    rows.map(({ factor }) => factor),
  );
  values.forEach((value, block) => {
    k.update(sum, "f32v.fma", [value, factors[block]!, sum]);
  });
}

function transposed(k: KernelBuilder, [a, b, c, d]: readonly Reg<"f32v">[]): Reg<"f32v">[] {
  const [ac, bd] = [zip(k, "zip32", a!, c!), zip(k, "zip32", b!, d!)];
  return [...zip(k, "zip32", ac[0], bd[0]), ...zip(k, "zip32", ac[1], bd[1])];
}

/** Adds the blocks of a slab to each row's sum, one after the other. */
function addBlocks(
  k: KernelBuilder,
  layout: NeuronLayout,
  scratch: Reg<"ptr">,
  sums: readonly Reg<"f32v">[],
): void {
  for (let block = 0; block < lanesOf(layout); block++) {
    sums.forEach((sum, r) => {
      const value = k.op("f32v.load_splat", [scratch], 2 * r * k.width + 4 * block);
      const factor = k.op("f32v.load_splat", [scratch], (2 * r + 1) * k.width + 4 * block);
      k.update(sum, "f32v.fma", [value, factor, sum]);
    });
  }
}

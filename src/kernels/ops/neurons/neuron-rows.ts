// The kernel of neuron rows (neuron-layouts.ts): one token, the rows that a list names, four at a time.
//
// Lanes are blocks: a slab gives the exact integer sums of as many blocks as there are lanes, and what each is multiplied by.
// They are then added block by block, in order, so that a row has the bits of the kernels that compute all rows (dot4.ts): both
// go through scratch memory, from where they are loaded lane by lane. Four rows are four independent chains of additions.
//
// Cost per row and slab, nibbles: 4 loads, 12 ops to unpack, 8 dot4, a convert, a multiply and two stores; and for each block an
// fma and two loads.
//
// The activations of a token (slabs of x): slab -> { f32 scale and i32 -offset * sum of the quants of each block; 8 vectors of
// quants, of which number v has columns 4v..4v+3 of every block }.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import { lessStart, startOfSum, valueOfSum } from "../matmul/float-sums.ts";
import { CACHE_LINE } from "../matmul/prefetch.ts";
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
    const zero = k.op("f32v.const", [], 0);
    const sums = each.map(() => k.variable(zero));
    k.loop(slabs, () => {
      const starts = k.op("i32v.load", [xAt], k.width);
      const start = layout.floatSums
        ? { first: startOfSum(k), less: lessStart(k, starts) }
        : { first: starts, less: undefined };
      each.forEach((r) => {
        for (let line = 0; line < slabBytes(layout); line += CACHE_LINE) {
          k.op("ptr.prefetch", [next[r]!], line);
        }
        storeSlab(k, layout, row[r]!, xAt, start, scratch, r);
        k.advance(row[r]!, slabBytes(layout));
        k.advance(next[r]!, slabBytes(layout));
      });
      addBlocks(k, layout, scratch, sums);
      k.advance(xAt, X_SLAB_VECTORS * k.width);
    });
    sums.forEach((sum, r) => {
      k.op("f32v.store", [scratch, sum]);
      const at = k.op("ptr.add", [out, k.op("i32.load", [list], r * ROW_ENTRY_BYTES + 4)]);
      k.op("f32.store", [at, k.op("f32.load", [scratch])]);
    });
    k.advance(list, ROWS_TOGETHER * ROW_ENTRY_BYTES);
  });
  return k.finish();
}

/** Stores the integer sums of a slab, as floats, and their factors. */
function storeSlab(
  k: KernelBuilder,
  layout: NeuronLayout,
  row: Reg<"ptr">,
  x: Reg<"ptr">,
  { first, less }: { first: Reg<"i32v">; less: Reg<"f32v"> | undefined },
  scratch: Reg<"ptr">,
  index: number,
): void {
  const { bits, widened } = layout;
  const dot = k.variable(first);
  const add = (v: number, quants: Reg<"i8v">) => {
    const activations = k.op("i8v.load", [x], k.width * (2 + v));
    k.update(dot, widened ? "i32v.dot4_ss" : "i32v.dot4", [activations, quants, dot]);
  };
  for (let v = 0; v < bits; v++) {
    const loaded = k.op("i8v.load", [row], 2 * k.lanes + k.width * v);
    if (bits === 8) add(v, loaded);
    else {
      add(v, k.op("i8v.and", [loaded, k.op("i8v.splat", [], 15)]));
      add(v + 4, k.op("i8v.shr_u", [loaded], 4));
    }
  }
  const scale = k.op("f32v.load_f16_finite", [row]);
  const factor = k.op("f32v.mul", [scale, k.op("f32v.load", [x])]);
  const value = less ? valueOfSum(k, dot, less) : k.op("f32v.from_i32v", [dot]);
  k.op("f32v.store", [scratch, value], 2 * index * k.width);
  k.op("f32v.store", [scratch, factor], (2 * index + 1) * k.width);
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

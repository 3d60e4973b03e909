// The list of the rows that a token's gates need, for the kernel of neuron rows (neuron-rows.ts), and the kernel that makes it. An
// entry is the byte of a row in the matrix and the byte of its result. The list is filled up with its last row: to whole groups, and
// another group to prefetch.
//
// A gate opens if it is above zero or not a number. As in neuron-list.ts, no branch depends on it: every row is written, and the next
// one overwrites a closed one. Results of all rows become zeros. 18 instructions for a row.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel } from "../../ir/kernel.ts";
import { ROW_ENTRY_BYTES, ROWS_TOGETHER } from "./neuron-rows.ts";

/** Bits of an infinite float. */
const INFINITE = 0x7f800000;

/** Entries behind the last row: to the end of its group, and another group. */
export const ENTRIES_BEHIND: number = 2 * ROWS_TOGETHER;

/**
 * (gates, results, list, rows, first, rowBytes, result, written): the list of `rows` rows, the first one `first` bytes into the matrix
 * and its result `result` bytes into the results, whose address here is that of the first row. Writes the number of entries to i32
 * written[1], without the `behind` ones after the last. An empty list reads the memory before it.
 */
export function neuronRowListKernel(
  name: string,
  width: number,
  behind: number = ENTRIES_BEHIND,
): Kernel {
  const k = new KernelBuilder(name, width);
  const gate = k.variable(k.param("ptr", "gates"), "gate_at");
  const result = k.variable(k.param("ptr", "results"), "result_at");
  const list = k.param("ptr", "list");
  const rows = k.param("i32", "rows");
  const row = k.variable(k.param("i32", "first"), "row");
  const rowBytes = k.param("i32", "rowBytes");
  const to = k.variable(k.param("i32", "result"), "to");
  const written = k.param("ptr", "written");
  const count = k.variable(k.i32(0), "count");
  const [zero, entryBytes] = [k.i32(0), k.i32(ROW_ENTRY_BYTES)];
  k.loop(rows, () => {
    const bits = k.op("i32.load", [gate]);
    const size = k.op("i32.shr_u", [k.op("i32.add", [bits, bits])], 1);
    const sign = k.op("i32.shr_u", [bits], 31);
    const isSome = k.op("i32.shr_u", [k.op("i32.sub", [zero, size])], 31);
    const isStrange = k.op("i32.shr_u", [k.op("i32.sub", [k.i32(INFINITE), size])], 31);
    const closed = k.op("i32.mul", [sign, k.op("i32.sub", [isSome, isStrange])]);
    const entry = k.op("ptr.add_product", [list, count, entryBytes]);
    k.op("i32.store", [entry, row], 0);
    k.op("i32.store", [entry, to], 4);
    k.op("i32.store", [result, zero]);
    k.update(count, "i32.add", [count, k.op("i32.sub", [isSome, closed])]);
    k.update(row, "i32.add", [row, rowBytes]);
    k.update(to, "i32.add", [to, k.i32(4)]);
    k.advance(gate, 4);
    k.advance(result, 4);
  });
  const end = k.op("ptr.add_product", [list, count, entryBytes]);
  const before = k.op("i32.sub", [count, k.i32(1)]);
  const last = k.op("ptr.add_product", [list, before, entryBytes]);
  const [lastRow, lastTo] = [k.op("i32.load", [last], 0), k.op("i32.load", [last], 4)];
  for (let i = 0; i < behind; i++) {
    k.op("i32.store", [end, lastRow], i * ROW_ENTRY_BYTES);
    k.op("i32.store", [end, lastTo], i * ROW_ENTRY_BYTES + 4);
  }
  k.op("i32.store", [written, count]);
  return k.finish();
}

/** (out, vectors): writes `vectors` vectors of zeros. */
export function zerosKernel(name: string, width: number): Kernel {
  const k = new KernelBuilder(name, width);
  const out = k.variable(k.param("ptr", "out"), "out_at");
  const vectors = k.param("i32", "vectors");
  const zero = k.op("f32v.const", [], 0);
  k.loop(vectors, () => {
    k.op("f32v.store", [out, zero]);
    k.advance(out, k.width);
  });
  return k.finish();
}

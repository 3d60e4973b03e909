// The kernel that puts the parts of a list of columns (neuron-list.ts) one behind the other, so that the kernel of neuron columns
// prefetches from one part into the next. Every thread does so for itself: some microseconds in TypeScript, since memory is shared.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import { COLUMN_ENTRY, COLUMN_HEADER, LIST_PART, storeListEnd } from "./neuron-list.ts";

/** (list, headers, columns, xs, parts, written): copies the parts of a list, whole vectors at a time; writes the number of headers to i32 written[1]. */
export function neuronGatherKernel(name: string, width: number): Kernel {
  const k = new KernelBuilder(name, width);
  const list = k.param("ptr", "list");
  const part = k.variable(list, "part");
  const headers = k.variable(k.param("ptr", "headers"), "headers_at");
  const columns = k.variable(k.param("ptr", "columns"), "columns_at");
  const xs = k.variable(k.param("ptr", "xs"), "xs_at");
  const parts = k.param("i32", "parts");
  const written = k.param("ptr", "written");
  const all = k.variable(k.i32(0), "all");
  const [from, out] = [k.variable(list, "from"), k.variable(headers, "out")];
  const copy = (field: number, to: Reg<"ptr">, count: Reg<"i32">, bytes: number) => {
    k.set(from, k.op("ptr.add", [list, k.op("i32.load", [part], field)]));
    k.set(out, to);
    const size = k.op("i32.mul", [count, k.i32(bytes)]);
    const steps = k.op("i32.shr_u", [k.op("i32.add", [size, k.i32(width - 1)])], Math.log2(width));
    k.loop(steps, () => {
      k.op("i8v.store", [out, k.op("i8v.load", [from])]);
      k.advance(from, width);
      k.advance(out, width);
    });
    k.update(to, "ptr.add", [to, size]);
  };
  k.loop(parts, () => {
    const count = k.op("i32.load", [part], LIST_PART.headers);
    const entries = k.op("i32.load", [part], LIST_PART.entries);
    copy(LIST_PART.headersAt, headers, count, COLUMN_HEADER.bytes);
    copy(LIST_PART.columnsAt, columns, entries, 4 * COLUMN_ENTRY);
    copy(LIST_PART.xsAt, xs, entries, COLUMN_ENTRY);
    k.update(all, "i32.add", [all, count]);
    k.advance(part, LIST_PART.bytes);
  });
  storeListEnd(k, headers, columns);
  k.op("i32.store", [written, all]);
  return k.finish();
}

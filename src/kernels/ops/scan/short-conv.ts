// short_conv, short_conv_on: one row of a convolution over each of n columns: out = sum over taps k of weight[k] * x[k]. Rows of x and
// of the weights lie `rowBytes` apart. short_conv_on adds the sum to n values at `start` (a bias, or the taps before, where out
// may be the same address). Each column is summed in the order of its taps, for any vector width. n is a multiple of the lanes.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import { type KernelMaker, lazily } from "../../ir/lazy-kernel.ts";
import { manyRegisters, remainder } from "../loops.ts";

/** Each takes the bytes of a vector register and the number of registers. */
export const shortConvs: readonly KernelMaker[] = [
  convKernel("short_conv", false),
  convKernel("short_conv_on", true),
];

function convKernel(name: string, hasStart: boolean): KernelMaker {
  return lazily(name, (width, registers = manyRegisters) => {
    const k = new KernelBuilder(name, width);
    const x = k.variable(k.param("ptr", "x"));
    const weight = k.variable(k.param("ptr", "weight"));
    const out = k.variable(k.param("ptr", "out"));
    const n = k.param("i32", "n");
    const taps = k.param("i32", "taps");
    const rowBytes = k.param("i32", "rowBytes");
    const start = hasStart ? k.variable(k.param("ptr", "start")) : undefined;
    const pointers = start ? [x, weight, out, start] : [x, weight, out];
    let left = n;
    for (const vectors of registers < manyRegisters ? [4, 1] : [8, 1]) {
      const count = vectors * k.lanes;
      const rounds = k.op("i32.shr_u", [left], Math.log2(count));
      k.loop(rounds, () => {
        const sums = Array.from({ length: vectors }, (_, i) => k.variable(first(k, start, i)));
        const [row, factors] = [k.variable(x), k.variable(weight)];
        k.loop(taps, () => {
          sums.forEach((sum, i) => {
            const [value, factor] = [row, factors].map((at) =>
              k.op("f32v.load", [at], i * k.width),
            ) as [Reg<"f32v">, Reg<"f32v">];
            k.update(sum, "f32v.fma", [value, factor, sum]);
          });
          for (const at of [row, factors]) k.update(at, "ptr.add", [at, rowBytes]);
        });
        sums.forEach((sum, i) => {
          k.op("f32v.store", [out, sum], i * k.width);
        });
        for (const pointer of pointers) k.advance(pointer, count * 4);
      });
      left = remainder(k, left, rounds, count);
    }
    return k.finish();
  });
}

function first(k: KernelBuilder, start: Reg<"ptr"> | undefined, i: number): Reg<"f32v"> {
  return start ? k.op("f32v.load", [start], i * k.width) : k.op("f32v.const", [], 0);
}

// dot_rows: one row of float32 weights times every token. The second half of the generic matmul, which dequantizes a row of
// any type first (opt level 2: SIMD, but no register tiles). scalar_rows: the same as one writes it first, for comparison.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";

const UNROLL = 4;

/** Adds up a product of `columns` floats at `a` and `b`, which it advances. */
type Product = (
  k: KernelBuilder,
  columns: Reg<"i32">,
  a: Reg<"ptr">,
  b: Reg<"ptr">,
) => () => Reg<"f32">;

/** (w, x, out, columns, tokens, xStride, outStride): out[t] = sum of w * x[t]. */
function rowsKernel(name: string, width: number, product: Product): Kernel {
  const k = new KernelBuilder(name, width);
  const w = k.param("ptr", "w");
  const x = k.param("ptr", "x");
  const out = k.param("ptr", "out");
  const columns = k.param("i32", "columns");
  const tokens = k.param("i32", "tokens");
  const xStride = k.param("i32", "xStride");
  const outStride = k.param("i32", "outStride");
  const a = k.variable(w);
  const b = k.variable(x);
  const sum = product(k, columns, a, b);
  k.loop(tokens, () => {
    k.set(a, w);
    k.set(b, x);
    k.op("f32.store", [out, sum()]);
    k.update(x, "ptr.add", [x, xStride]);
    k.update(out, "ptr.add", [out, outStride]);
  });
  return k.finish();
}

/** Columns are a multiple of the lanes. */
export function dotRows(width: number): Kernel {
  return rowsKernel("dot_rows", width, (k, columns, a, b) => {
    const vectors = k.op("i32.shr_u", [columns], Math.log2(k.lanes));
    const rounds = k.op("i32.shr_u", [vectors], Math.log2(UNROLL));
    const rest = k.op("i32.sub", [vectors, k.op("i32.mul", [rounds, k.i32(UNROLL)])]);
    const zero = k.op("f32v.const", [], 0);
    return () => {
      const sums = Array.from({ length: UNROLL }, () => k.variable(zero));
      const accumulate = (count: number) => {
        for (let i = 0; i < count; i++) {
          const sum = sums[i]!;
          const at = i * width;
          k.update(sum, "f32v.fma", [k.op("f32v.load", [a], at), k.op("f32v.load", [b], at), sum]);
        }
        k.advance(a, count * width);
        k.advance(b, count * width);
      };
      k.loop(rounds, () => accumulate(UNROLL));
      k.loop(rest, () => accumulate(1));
      return k.op("f32v.sum", [sums.reduce((left, right) => k.op("f32v.add", [left, right]))]);
    };
  });
}

/** The same, a product and a sum at a time: the code of a compiler for a loop over floats in C. */
export function scalarRows(width: number): Kernel {
  return rowsKernel("scalar_rows", width, (k, columns, a, b) => {
    const zero = k.op("f32.const", [], 0);
    return () => {
      const sum = k.variable(zero);
      k.loop(columns, () => {
        const product = k.op("f32.mul", [k.op("f32.load", [a], 0), k.op("f32.load", [b], 0)]);
        k.update(sum, "f32.add", [sum, product]);
        k.advance(a, 4);
        k.advance(b, 4);
      });
      return sum;
    };
  });
}

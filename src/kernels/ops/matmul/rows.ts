// dot_rows: one row of float32 weights times every token. The second half of the generic matmul, which dequantizes a row of
// any type first (opt level 2: SIMD, but no register tiles).

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel } from "../../ir/kernel.ts";

const UNROLL = 4;

/** (w, x, out, columns, tokens, xStride, outStride): out[t] = sum of w * x[t]. Columns are a multiple of the lanes. */
export function dotRows(width: number): Kernel {
  const k = new KernelBuilder("dot_rows", width);
  const w = k.param("ptr", "w");
  const x = k.param("ptr", "x");
  const out = k.param("ptr", "out");
  const columns = k.param("i32", "columns");
  const tokens = k.param("i32", "tokens");
  const xStride = k.param("i32", "xStride");
  const outStride = k.param("i32", "outStride");
  const vectors = k.op("i32.shr_u", [columns], Math.log2(k.lanes));
  const rounds = k.op("i32.shr_u", [vectors], Math.log2(UNROLL));
  const rest = k.op("i32.sub", [vectors, k.op("i32.mul", [rounds, k.i32(UNROLL)])]);
  const zero = k.op("f32v.const", [], 0);
  const a = k.variable(w);
  const b = k.variable(x);
  k.loop(tokens, () => {
    k.set(a, w);
    k.set(b, x);
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
    const total = sums.reduce((left, right) => k.op("f32v.add", [left, right]));
    k.op("f32.store", [out, k.op("f32v.sum", [total])]);
    k.update(x, "ptr.add", [x, xStride]);
    k.update(out, "ptr.add", [out, outStride]);
  });
  return k.finish();
}

// layer_norm, layer_norm_bias: (x - mean) / sqrt(variance + eps) * weight (+ bias) over one row of `size` values. In
// place allowed. The variance is summed from the differences, in a second pass: E[x^2] - mean^2 loses digits where the
// mean is large.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import { forEachVector, load, store, stream } from "../loops.ts";

const unroll = 4;

export const layerNorm = (width: number): Kernel => layerNormKernel("layer_norm", width, false);
export const layerNormBias = (width: number): Kernel =>
  layerNormKernel("layer_norm_bias", width, true);

function layerNormKernel(name: string, width: number, hasBias: boolean): Kernel {
  const k = new KernelBuilder(name, width);
  const x = k.param("ptr", "x");
  const weights = stream(k, k.param("ptr", "weight"));
  const out = stream(k, k.param("ptr", "out"));
  const size = k.param("i32", "size");
  const eps = k.param("f32", "eps");
  const biases = hasBias ? stream(k, k.param("ptr", "bias")) : undefined;

  const count = k.op("f32.from_i32", [size]);
  const sum = sumOver(k, x, size, (v) => v);
  const mean = k.op("f32v.splat", [k.op("f32.div", [sum, count])]);
  const squares = sumOver(k, x, size, (v) => {
    const difference = k.op("f32v.sub", [v, mean]);
    return k.op("f32v.mul", [difference, difference]);
  });
  const variance = k.op("f32.div", [squares, count]);
  const root = k.op("f32.sqrt", [k.op("f32.add", [variance, eps])]);
  const factor = k.op("f32v.splat", [k.op("f32.div", [k.f32(1), root])]);

  const reader = stream(k, x);
  forEachVector(k, size, unroll, [reader, weights, out, ...(biases ? [biases] : [])], (i) => {
    const centred = k.op("f32v.sub", [load(k, reader, i), mean]);
    const scaled = k.op("f32v.mul", [k.op("f32v.mul", [centred, factor]), load(k, weights, i)]);
    store(k, out, i, biases ? k.op("f32v.add", [scaled, load(k, biases, i)]) : scaled);
  });
  return k.finish();
}

/** The sum of term(v) over all `size` values from x on. */
function sumOver(
  k: KernelBuilder,
  x: Reg<"ptr">,
  size: Reg<"i32">,
  term: (v: Reg<"f32v">) => Reg<"f32v">,
): Reg<"f32"> {
  const zero = k.op("f32v.const", [], 0);
  const sums = Array.from({ length: unroll }, () => k.variable(zero));
  const reader = stream(k, x);
  forEachVector(k, size, unroll, [reader], (i) =>
    k.update(sums[i]!, "f32v.add", [sums[i]!, term(load(k, reader, i))]),
  );
  const low = k.op("f32v.add", [sums[0]!, sums[1]!]);
  const high = k.op("f32v.add", [sums[2]!, sums[3]!]);
  return k.op("f32v.sum", [k.op("f32v.add", [low, high])]);
}

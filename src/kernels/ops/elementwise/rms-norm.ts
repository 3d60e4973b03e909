// rms_norm: x / sqrt(mean(x^2) + eps) * weight over each of `groups` consecutive groups of `size` values (the rows of a
// matrix, or the heads of a row), all with the same weights. In place allowed. x times the factor is rounded before it is
// multiplied by the weight, as in graph/reference.ts.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel } from "../../ir/kernel.ts";
import { forEachVector, load, store, stream } from "../loops.ts";

const unroll = 4;

export function rmsNorm(width: number): Kernel {
  const k = new KernelBuilder("rms_norm", width);
  const x = stream(k, k.param("ptr", "x"));
  const weight = k.param("ptr", "weight");
  const out = stream(k, k.param("ptr", "out"));
  const groups = k.param("i32", "groups");
  const size = k.param("i32", "size");
  const eps = k.param("f32", "eps");

  k.loop(groups, () => {
    const zero = k.op("f32v.const", [], 0);
    const sums = Array.from({ length: unroll }, () => k.variable(zero));
    const reader = stream(k, x.pointer);
    forEachVector(k, size, unroll, [reader], (i) => {
      const v = load(k, reader, i);
      k.update(sums[i]!, "f32v.fma", [v, v, sums[i]!]);
    });
    const low = k.op("f32v.add", [sums[0]!, sums[1]!]);
    const high = k.op("f32v.add", [sums[2]!, sums[3]!]);
    const squares = k.op("f32v.sum", [k.op("f32v.add", [low, high])]);
    const mean = k.op("f32.div", [squares, k.op("f32.from_i32", [size])]);
    const root = k.op("f32.sqrt", [k.op("f32.add", [mean, eps])]);
    const factor = k.op("f32v.splat", [k.op("f32.div", [k.f32(1), root])]);
    const weights = stream(k, weight);
    forEachVector(k, size, unroll, [x, weights, out], (i) => {
      const scaled = k.op("f32v.mul", [load(k, x, i), factor]);
      store(k, out, i, k.op("f32v.mul", [scaled, load(k, weights, i)]));
    });
  });
  return k.finish();
}

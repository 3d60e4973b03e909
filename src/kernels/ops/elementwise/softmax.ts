// softmax: e^(scale * (x - max)) / sum over one row of any n >= 1 values; scale > 0. In place allowed.
//
// The memory of x and out must reach to the next multiple of the lanes. The values after the n values there are overwritten: in
// x by -Infinity, in out by 0.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import { forEachVector, load, store, stream } from "../loops.ts";
import { exp } from "../math.ts";

const unroll = 2;

export function softmax(width: number): Kernel {
  const k = new KernelBuilder("softmax", width);
  const x = k.param("ptr", "x");
  const out = k.param("ptr", "out");
  const n = k.param("i32", "n");
  const scale = k.op("f32v.splat", [k.param("f32", "scale")]);
  const padded = padRow(k, x, n);

  const least = k.op("f32v.const", [], Number.NEGATIVE_INFINITY);
  const maxima = [k.variable(least), k.variable(least)];
  const reader = stream(k, x);
  forEachVector(k, padded, unroll, [reader], (i) =>
    k.update(maxima[i]!, "f32v.max", [maxima[i]!, load(k, reader, i)]),
  );
  const max = k.op("f32v.splat", [k.op("f32v.hmax", [k.op("f32v.max", [maxima[0]!, maxima[1]!])])]);

  const zero = k.op("f32v.const", [], 0);
  const sums = [k.variable(zero), k.variable(zero)];
  const [source, target] = [stream(k, x), stream(k, out)];
  forEachVector(k, padded, unroll, [source, target], (i) => {
    const below = k.op("f32v.sub", [load(k, source, i), max]);
    const e = exp(k, k.op("f32v.mul", [below, scale]));
    k.update(sums[i]!, "f32v.add", [sums[i]!, e]);
    store(k, target, i, e);
  });
  const sum = k.op("f32v.sum", [k.op("f32v.add", [sums[0]!, sums[1]!])]);
  const factor = k.op("f32v.splat", [k.op("f32.div", [k.f32(1), sum])]);

  const result = stream(k, out);
  forEachVector(k, padded, unroll, [result], (i) =>
    store(k, result, i, k.op("f32v.mul", [load(k, result, i), factor])),
  );
  return k.finish();
}

/** Pads the row with -Infinity to a multiple of the lanes, and returns that multiple. */
function padRow(k: KernelBuilder, x: Reg<"ptr">, n: Reg<"i32">): Reg<"i32"> {
  const up = k.op("i32.add", [n, k.i32(k.lanes - 1)]);
  const vectors = k.op("i32.shr_u", [up], Math.log2(k.lanes));
  const padded = k.op("i32.mul", [vectors, k.i32(k.lanes)]);
  const end = k.variable(k.at(x, n, 4));
  k.loop(k.op("i32.sub", [padded, n]), () => {
    k.op("f32.store", [end, k.f32(Number.NEGATIVE_INFINITY)]);
    k.advance(end, 4);
  });
  return padded;
}

// scale: out = x * factor over n values. In place allowed. scale_add: out += x * factor, the product rounded first.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel } from "../../ir/kernel.ts";
import { forEachVector, load, store, stream } from "../loops.ts";

export function scale(width: number): Kernel {
  const k = new KernelBuilder("scale", width);
  const x = stream(k, k.param("ptr", "x"));
  const out = stream(k, k.param("ptr", "out"));
  const n = k.param("i32", "n");
  const factor = k.op("f32v.splat", [k.param("f32", "factor")]);
  forEachVector(k, n, 4, [x, out], (i) =>
    store(k, out, i, k.op("f32v.mul", [load(k, x, i), factor])),
  );
  return k.finish();
}

export function scaleAdd(width: number): Kernel {
  const k = new KernelBuilder("scale_add", width);
  const x = stream(k, k.param("ptr", "x"));
  const out = stream(k, k.param("ptr", "out"));
  const n = k.param("i32", "n");
  const factor = k.op("f32v.splat", [k.param("f32", "factor")]);
  forEachVector(k, n, 4, [x, out], (i) => {
    const product = k.op("f32v.mul", [load(k, x, i), factor]);
    store(k, out, i, k.op("f32v.add", [load(k, out, i), product]));
  });
  return k.finish();
}

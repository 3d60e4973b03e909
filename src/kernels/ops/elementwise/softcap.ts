// softcap: out = cap * tanh(x / cap) over n values. In place allowed.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel } from "../../ir/kernel.ts";
import { forEachVector, load, store, stream } from "../loops.ts";
import { tanh } from "../math.ts";

export function softcap(width: number): Kernel {
  const k = new KernelBuilder("softcap", width);
  const x = stream(k, k.param("ptr", "x"));
  const out = stream(k, k.param("ptr", "out"));
  const n = k.param("i32", "n");
  const cap = k.op("f32v.splat", [k.param("f32", "cap")]);
  forEachVector(k, n, 2, [x, out], (i) => {
    const bent = tanh(k, k.op("f32v.div", [load(k, x, i), cap]));
    store(k, out, i, k.op("f32v.mul", [cap, bent]));
  });
  return k.finish();
}

// copy: n float32 values from x to out, which must not overlap.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel } from "../../ir/kernel.ts";
import { forEachVector, load, store, stream } from "../loops.ts";

export function copy(width: number): Kernel {
  const k = new KernelBuilder("copy", width);
  const x = stream(k, k.param("ptr", "x"));
  const out = stream(k, k.param("ptr", "out"));
  const n = k.param("i32", "n");
  forEachVector(k, n, 4, [x, out], (i) => store(k, out, i, load(k, x, i)));
  return k.finish();
}

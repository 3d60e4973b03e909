// add and mul: out = a + b, out = a * b, over n values. In place allowed.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel } from "../../ir/kernel.ts";
import { forEachVector, load, store, stream } from "../loops.ts";

export const add: (width: number) => Kernel = binaryKernel("add", "f32v.add");
export const mul: (width: number) => Kernel = binaryKernel("mul", "f32v.mul");

function binaryKernel(name: string, op: "f32v.add" | "f32v.mul"): (width: number) => Kernel {
  return (width) => {
    const k = new KernelBuilder(name, width);
    const a = stream(k, k.param("ptr", "a"));
    const b = stream(k, k.param("ptr", "b"));
    const out = stream(k, k.param("ptr", "out"));
    const n = k.param("i32", "n");
    forEachVector(k, n, 4, [a, b, out], (i) =>
      store(k, out, i, k.op(op, [load(k, a, i), load(k, b, i)])),
    );
    return k.finish();
  };
}

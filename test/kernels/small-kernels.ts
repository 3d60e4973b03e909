// Two small kernels for golden texts.

import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";

/** y += 2.5 x, over n vectors. */
export function axpy(): Kernel {
  const k = new KernelBuilder("axpy", 16);
  const [x, y, n] = [k.param("ptr", "x"), k.param("ptr", "y"), k.param("i32", "n")];
  const scale = k.op("f32v.const", [], 2.5);
  k.loop(n, () => {
    const sum = k.op("f32v.fma", [k.op("f32v.load", [x]), scale, k.op("f32v.load", [y])]);
    k.op("f32v.store", [y, sum]);
    k.advance(x, 16);
    k.advance(y, 16);
  });
  return k.finish();
}

/** Dot products of nibbles and bytes, a row at a time: loops in loops, variables, shifts, displacements. */
export function nibbleDots(): Kernel {
  const k = new KernelBuilder("nibble_dots", 16);
  const [w, x, out] = [k.param("ptr", "w"), k.param("ptr", "x"), k.param("ptr", "out")];
  const [rows, blocks] = [k.param("i32", "rows"), k.param("i32", "blocks")];
  const mask = k.op("i8v.splat", [], 15);
  k.loop(rows, () => {
    const acc = k.variable(k.op("i32v.const", [], -8), "acc");
    const xp = k.variable(x, "xp");
    k.loop(blocks, () => {
      const nibbles = k.op("i8v.load", [w]);
      const low = k.op("i8v.and", [nibbles, mask]);
      const high = k.op("i8v.shr_u", [nibbles], 4);
      k.update(acc, "i32v.dot4", [k.op("i8v.load", [xp]), low, acc]);
      k.update(acc, "i32v.dot4", [k.op("i8v.load", [xp], 16), high, acc]);
      k.advance(w, 16);
      k.advance(xp, 32);
    });
    k.op("i32.store", [out, k.op("i32v.sum", [acc])], 4);
    k.advance(out, 4);
  });
  return k.finish();
}

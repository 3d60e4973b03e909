// Kernels as text: golden, and with names that stay apart.

import { expect, test } from "vitest";
import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import { print } from "../../src/kernels/ir/print.ts";
import { axpy, nibbleDots } from "./small-kernels.ts";

test("axpy", () => {
  expect(print(axpy())).toBe(`kernel axpy(x: ptr, y: ptr, n: i32), vectors of 16 bytes
  v0 = f32v.const 2.5
  loop n
    v1 = f32v.load [x]
    v2 = f32v.load [y]
    v3 = f32v.fma v1, v0, v2
    f32v.store [y], v3
    v4 = i32.const 16
    v5 = ptr.add x, v4
    x = v5
    v6 = i32.const 16
    v7 = ptr.add y, v6
    y = v7
`);
});

test("nibble_dots", () => {
  expect(
    print(nibbleDots()),
  ).toBe(`kernel nibble_dots(w: ptr, x: ptr, out: ptr, rows: i32, blocks: i32), vectors of 16 bytes
  v0 = i8v.splat 15
  loop rows
    v1 = i32v.const -8
    acc = v1
    xp = x
    loop blocks
      v2 = i8v.load [w]
      v3 = i8v.and v2, v0
      v4 = i8v.shr_u v2, 4
      v5 = i8v.load [xp]
      v6 = i32v.dot4 v5, v3, acc
      acc = v6
      v7 = i8v.load [xp + 16]
      v8 = i32v.dot4 v7, v4, acc
      acc = v8
      v9 = i32.const 16
      v10 = ptr.add w, v9
      w = v10
      v11 = i32.const 32
      v12 = ptr.add xp, v11
      xp = v12
    v13 = i32v.sum acc
    i32.store [out + 4], v13
    v14 = i32.const 4
    v15 = ptr.add out, v14
    out = v15
`);
});

test("names: its own where a register has one, apart where two have the same", () => {
  const k = new KernelBuilder("names", 32);
  const v0 = k.param("i32", "v0");
  const one = k.i32(1);
  const acc = k.variable(one, "acc");
  const other = k.variable(k.f32(-0), "acc");
  k.set(acc, k.op("i32.add", [acc, v0]));
  k.set(other, k.f32(0.1));
  expect(print(k.finish())).toBe(`kernel names(v0: i32), vectors of 32 bytes
  v1 = i32.const 1
  acc = v1
  v2 = f32.const -0
  acc.2 = v2
  v3 = i32.add acc, v0
  acc = v3
  v4 = f32.const 0.1
  acc.2 = v4
`);
});

// The verifier: each rule refuses a kernel that breaks it and names the statement; what the builder makes passes.

import { describe, expect, test } from "vitest";
import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import type { Kernel, Reg, Statement } from "../../src/kernels/ir/kernel.ts";
import type { OpName, Type } from "../../src/kernels/ir/ops.ts";
import { verify } from "../../src/kernels/ir/verify.ts";
import { anyOp } from "./op-cases.ts";
import { axpy, nibbleDots } from "./small-kernels.ts";

/** A kernel of these statements; p: ptr is register 0, n: i32 is 1, x: f32v (variable) is 2, the rest are free. */
function kernel(...body: Statement[]): Kernel {
  return { name: "wrong", width: 16, params: [p, n], body: [define, ...body], registers: 20 };
}

const reg = <T extends Type>(id: number, type: T): Reg<T> => ({ id, type });
const p: Reg<"ptr"> = { id: 0, type: "ptr", name: "p" };
const n: Reg<"i32"> = { id: 1, type: "i32", name: "n" };
const x = reg(2, "f32v");
const op = (name: string, args: readonly Reg[], out?: Reg, imm = 0): Statement => ({
  kind: "op",
  op: name as OpName,
  args,
  imm,
  out,
});
const set = (variable: Reg, value: Reg): Statement => ({ kind: "set", variable, value });
const loop = (count: Reg, ...body: Statement[]): Statement => ({
  kind: "loop",
  count: count as Reg<"i32">,
  body,
});
const define = op("f32v.load", [p], x, 16);

const wrong: readonly (readonly [string, Kernel, string])[] = [
  [
    "an op that is not in the table",
    kernel(op("f32v.tanh", [x], reg(3, "f32v"))),
    "line 3 (v1 = f32v.tanh v0): no such op in the table",
  ],
  [
    "a name that only objects have",
    kernel(op("constructor", [x], reg(3, "f32v"))),
    "no such op in the table",
  ],
  [
    "too few operands",
    kernel(op("f32v.add", [x], reg(3, "f32v"))),
    "line 3 (v1 = f32v.add v0): 1 operands, expected 2",
  ],
  [
    "too many operands",
    kernel(op("f32v.neg", [x, x], reg(3, "f32v"))),
    "(v1 = f32v.neg v0, v0): 2 operands, expected 1",
  ],
  [
    "an operand of another type",
    kernel(op("f32v.add", [x, n], reg(3, "f32v"))),
    "(v1 = f32v.add v0, n): operand 2, n, is i32, expected f32v",
  ],
  [
    "a vector of another kind",
    kernel(op("i32v.add", [x, x], reg(3, "i32v"))),
    "operand 1, v0, is f32v, expected i32v",
  ],
  [
    "a result of another type",
    kernel(op("f32v.neg", [x], reg(3, "i32v"))),
    "the result is i32v, expected f32v",
  ],
  ["no result", kernel(op("f32v.neg", [x])), "the result is none, expected f32v"],
  [
    "a store with a result",
    kernel(op("f32v.store", [p, x], reg(3, "f32v"))),
    "the result is f32v, expected none",
  ],
  [
    "use before definition",
    kernel(op("f32v.neg", [reg(3, "f32v")], reg(4, "f32v"))),
    "line 3 (v1 = f32v.neg v2): operand 1, v2, is used before it is defined",
  ],
  [
    "use of itself",
    kernel(op("f32v.neg", [reg(3, "f32v")], reg(3, "f32v"))),
    "is used before it is defined",
  ],
  [
    "use after the loop that defines it",
    kernel(
      loop(n, op("f32v.neg", [x], reg(3, "f32v"))),
      op("f32v.store", [p, reg(3, "f32v")], undefined, 4),
    ),
    "line 5 (f32v.store [p + 4], v1): operand 2, v1, is used outside the loop that defines it",
  ],
  [
    "use after the loop of a variable that starts in it",
    kernel(loop(n, set(reg(3, "f32v"), x)), op("f32v.neg", [reg(3, "f32v")], reg(4, "f32v"))),
    "is used outside the loop that defines it",
  ],
  [
    "use in a loop of what is defined later in it",
    kernel(loop(n, set(reg(3, "f32v"), reg(4, "f32v")), op("f32v.neg", [x], reg(4, "f32v")))),
    "line 4 (v1 = v2): the value, v2, is used before it is defined",
  ],
  ["a result twice", kernel(define), "line 3 (v0 = f32v.load [p + 16]): v0 is set already"],
  [
    "a result twice, in loops apart",
    kernel(
      loop(n, op("f32v.neg", [x], reg(3, "f32v"))),
      loop(n, op("f32v.neg", [x], reg(3, "f32v"))),
    ),
    "line 6 (v1 = f32v.neg v0): v1 is set already",
  ],
  [
    "a result set again",
    kernel(set(x, x)),
    "line 3 (v0 = v0): v0 is the result of an op, not a variable",
  ],
  [
    "a variable as a result",
    kernel(set(reg(3, "f32v"), x), op("f32v.neg", [x], reg(3, "f32v"))),
    "v1 is set already",
  ],
  ["a parameter as a result", kernel(op("i32.const", [], n, 4)), "n is set already"],
  [
    "a variable set to another type",
    kernel(set(reg(3, "f32v"), n)),
    "the value, n, is i32, expected f32v",
  ],
  [
    "a register of two types",
    kernel(set(reg(3, "f32v"), x), set(reg(3, "i32"), n)),
    "v1 is i32 here, f32v before",
  ],
  ["a count that is no i32", kernel(loop(x)), "line 3 (loop v0): the count, v0, is f32v"],
  [
    "a count before its definition",
    kernel(loop(reg(3, "i32"))),
    "the count, v1, is used before it is defined",
  ],
  [
    "a byte shift of 8",
    kernel(op("i8v.splat", [], reg(3, "i8v"), 1), op("i8v.shl", [reg(3, "i8v")], reg(4, "i8v"), 8)),
    "(v2 = i8v.shl v1, 8): shift 8, expected a whole number from 0 to 7",
  ],
  [
    "an i32 shift of 32",
    kernel(op("i32.shr_u", [n], reg(3, "i32"), 32)),
    "shift 32, expected a whole number from 0 to 31",
  ],
  ["a shift of -1", kernel(op("i32.shr_u", [n], reg(3, "i32"), -1)), "shift -1, expected"],
  ["half a shift", kernel(op("i32.shr_u", [n], reg(3, "i32"), 0.5)), "shift 0.5, expected"],
  [
    "a negative displacement",
    kernel(op("f32v.load", [p], reg(3, "f32v"), -16)),
    "(v1 = f32v.load [p + -16]): displacement -16, expected a whole number from 0",
  ],
  [
    "a displacement of 4 GiB",
    kernel(op("f32v.load", [p], reg(3, "f32v"), 2 ** 32)),
    "displacement 4294967296, expected",
  ],
  [
    "a displacement that is no number",
    kernel(op("f32v.load", [p], reg(3, "f32v"), Number.NaN)),
    "displacement NaN, expected",
  ],
  [
    "a byte of 256",
    kernel(op("i8v.splat", [], reg(3, "i8v"), 256)),
    "constant 256, expected a whole number from -128 to 255",
  ],
  [
    "an i32 of 2^32",
    kernel(op("i32.const", [], reg(3, "i32"), 2 ** 32)),
    "constant 4294967296, expected",
  ],
  ["an i32 of 1.5", kernel(op("i32v.const", [], reg(3, "i32v"), 1.5)), "constant 1.5, expected"],
  [
    "a float beyond f32",
    kernel(op("f32.const", [], reg(3, "f32"), 1e39)),
    "constant 1e+39, expected a number that f32 can hold",
  ],
  ["NaN", kernel(op("f32v.const", [], reg(3, "f32v"), Number.NaN)), "constant NaN, expected"],
  [
    "an immediate where there is none",
    kernel(op("f32v.neg", [x], reg(3, "f32v"), 4)),
    "(v1 = f32v.neg v0, 4): an immediate of 4; f32v.neg has none",
  ],
  [
    "a register beyond the kernel's",
    kernel(op("f32v.neg", [x], reg(20, "f32v"))),
    "register 20, expected a whole number below 20",
  ],
  ["a negative register", kernel(set(reg(-1, "f32v"), x)), "register -1, expected"],
  [
    "a vector as a parameter",
    { ...kernel(), params: [p, n, reg(5, "f32v")] },
    "line 1 (its head): parameter v0 is a vector",
  ],
  ["a parameter twice", { ...kernel(), params: [p, n, n] }, "parameter n has register 1, which"],
  ["vectors of 24 bytes", { ...kernel(), width: 24 }, "vectors of 24 bytes, expected 16, 32, 64"],
];

describe("refuses", () => {
  test.each(wrong)("%s", (_, kernel, message) => {
    expect(() => verify(kernel)).toThrow(message);
    expect(() => verify(kernel)).toThrow(/^kernel wrong, line \d+ \(/);
  });
});

describe("accepts", () => {
  test("the kernel that the wrong ones start from", () => {
    verify(kernel());
  });

  test("what the builder makes", () => {
    verify(axpy());
    verify(nibbleDots());
    verify(new KernelBuilder("empty", 64).finish());
  });

  test("parameters set, variables set in loops, names of outer loops, all immediates at their ends", () => {
    const k = new KernelBuilder("fine", 32);
    const [p, n] = [k.param("ptr", "p"), k.param("i32", "n")];
    k.set(n, k.i32(2));
    const sum = k.variable(k.f32(Number.NEGATIVE_INFINITY));
    k.loop(n, () => {
      const outer = k.op("f32.load", [p], 2 ** 32 - 1);
      k.loop(n, () => k.update(sum, "f32.add", [sum, outer]));
      k.advance(p, -4);
    });
    k.op("f32.store", [p, sum]);
    for (const byte of [-128, 255]) k.op("i8v.shl", [k.op("i8v.splat", [], byte)], 7);
    for (const int of [-(2 ** 31), 2 ** 32 - 1]) k.op("i32.shr_u", [k.i32(int)], 31);
    anyOp(k, "f32v.const", [], 3.4e38);
    verify(k.finish());
  });
});

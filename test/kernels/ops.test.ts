// Every op of the kernel IR: the interpreter and the WebAssembly lowering agree on extremes and on random values; and
// the interpreter agrees with arithmetic done by hand at every width.

import { describe, expect, test } from "vitest";
import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import { fusedMultiplyAdd } from "../../src/kernels/ir/meanings.ts";
import { wordOps } from "../../src/kernels/ir/ops.ts";
import { isLanewise, everyOp as names, opCase } from "./op-cases.ts";
import { firstDifference } from "./same-memory.ts";
import { compile, describeTargets, semanticsOf } from "./wasm-runner.ts";

describeTargets((target) => {
  test.each([...names, ...wordOps])("%s", (op) => {
    const semantics = semanticsOf(target);
    const { kernel, memory, args, floats } = opCase(op, 16, semantics.dot4);
    const meant = memory.slice();
    interpret(kernel, meant.buffer, args, semantics);
    expect(meant, "the kernel writes something").not.toEqual(memory);
    const got = compile(kernel, target)(memory, args);
    const kinds = [{ from: args[1]!, to: memory.length, kind: floats ? "f32" : "bytes" } as const];
    expect(firstDifference(got, meant, kinds)).toBeUndefined();
  });
});

describe("any width", () => {
  test.each([...names, ...wordOps].filter(isLanewise))(
    "%s does to each 16 bytes what it does to 16",
    (op) => {
      // The operands and results have 64 bytes each: one wide run, or narrower ones side by side.
      const [narrow, wide, widest] = [16, 32, 64].map((width) => {
        const { kernel, memory, args } = opCase(op, width, "i7");
        for (let shift = 0; shift < 64; shift += width) {
          interpret(kernel, memory.buffer, [args[0]! + shift, args[1]! + shift, args[2]!]);
        }
        return memory;
      });
      const { args, floats } = opCase(op, 16, "i7");
      const kinds = [
        { from: args[1]!, to: narrow!.length, kind: floats ? "f32" : "bytes" } as const,
      ];
      expect(firstDifference(wide!, narrow!, kinds)).toBeUndefined();
      expect(firstDifference(widest!, narrow!, kinds)).toBeUndefined();
    },
  );

  test.each([16, 32, 64])("what crosses lanes, at %i bytes", (width) => {
    const lanes = width / 4;
    const k = new KernelBuilder("crossing", width);
    const [input, output] = [k.param("ptr", "input"), k.param("ptr", "output")];
    const x = k.op("i32v.load_i8", [input]);
    const scaled = k.op("i32v.mul", [x, k.op("i32v.const", [], 100)]);
    const negative = k.op("i32v.sub", [k.op("i32v.const", [], 0), x]);
    k.op("i8v.store", [output, k.op("i8v.pack_i32", [x, scaled, negative, x])]);
    k.op("i32.store", [output, k.op("i32v.sum", [x])], 64);
    const floats = k.op("f32v.from_i32v", [x]);
    k.op("f32.store", [output, k.op("f32v.sum", [floats])], 68);
    k.op("f32.store", [output, k.op("f32v.hmax", [floats])], 72);
    k.op("f32v.store", [output, k.op("f32v.swap_pairs", [floats])], 128);
    k.op("f32v.store_f16", [output, floats], 192);
    k.op("f32v.store", [output, k.op("f32v.load_f16", [output], 192)], 256);
    const memory = new ArrayBuffer(1024);
    const values = new Array(lanes).fill(0).map((_, i) => i + 1);
    new Uint8Array(memory).set(values);
    interpret(k.finish(), memory, [0, 512]);

    const bytes = new Int8Array(memory, 512, width);
    const clamped = values.map((value) => Math.min(value * 100, 127));
    const minus = values.map((value) => -value);
    expect([...bytes]).toEqual([...values, ...clamped, ...minus, ...values]);
    const sum = (lanes * (lanes + 1)) / 2;
    expect(new Int32Array(memory, 512 + 64, 1)[0]).toBe(sum);
    expect([...new Float32Array(memory, 512 + 68, 2)]).toEqual([sum, lanes]);
    const swapped = values.map((_, i) => values[i ^ 1]!);
    expect([...new Float32Array(memory, 512 + 128, lanes)]).toEqual(swapped);
    expect([...new Float32Array(memory, 512 + 256, lanes)]).toEqual(values);
  });
});

describe("the interpreter refuses", () => {
  const run = (build: (k: KernelBuilder) => void, size = 64) => {
    const k = new KernelBuilder("wrong", 16);
    build(k);
    return () => interpret(k.finish(), new ArrayBuffer(size), []);
  };
  const pointer = (k: KernelBuilder, address: number) => {
    const zero = k.variable(k.op("i32.const", []));
    return k.op("ptr.add", [k.param("ptr", "base"), k.op("i32.add", [zero, k.i32(address)])]);
  };
  const at = (address: number, op: (k: KernelBuilder, p: ReturnType<typeof pointer>) => void) => {
    const k = new KernelBuilder("wrong", 16);
    op(k, pointer(k, address));
    return () => interpret(k.finish(), new ArrayBuffer(64), [0]);
  };

  test("addresses outside the memory, with kernel, op and address", () => {
    expect(at(44, (k, p) => k.op("f32v.load", [p], 4))).not.toThrow();
    expect(at(45, (k, p) => k.op("f32v.load", [p], 4))).toThrow(
      /^wrong: f32v.load: address 49 \(pointer 45, displacement 4\), 16 bytes: outside .* 64 bytes$/,
    );
    expect(at(-1, (k, p) => k.op("i32.store", [p, k.i32(1)]))).toThrow(/address -1/);
    expect(at(57, (k, p) => k.op("f32v.load_f16", [p]))).toThrow(/address 57/);
    expect(at(61, (k, p) => k.op("i32v.load_i8", [p]))).toThrow(/address 61/);
  });

  test("operands that some target does not take", () => {
    const dot4 = (byte: number) =>
      run((k) => {
        const x = k.op("i8v.splat", [], byte);
        k.op("i32v.dot4", [x, x, k.op("i32v.const", [])]);
      });
    expect(dot4(127)).not.toThrow();
    expect(dot4(128)).toThrow(/wrong: i32v.dot4: 128 in the second operand, expected 0..127/);
    const lookup = (byte: number) =>
      run((k) => k.op("i8v.lookup16", [k.op("i8v.splat", []), k.op("i8v.splat", [], byte)]));
    expect(lookup(15)).not.toThrow();
    expect(lookup(128)).not.toThrow();
    expect(lookup(16)).toThrow(/index 16 in byte 0/);
    expect(lookup(127)).toThrow(/index 127 in byte 0, expected 0..15, or 128 and more/);
    const toInt = (value: number) =>
      run((k) => k.op("i32v.from_f32v", [k.op("f32v.const", [], value)]));
    expect(toInt(-(2 ** 31))).not.toThrow();
    expect(toInt(2 ** 31)).toThrow(/2147483648 in lane 0 does not fit/);
  });

  test("a wrong number of arguments", () => {
    const k = new KernelBuilder("two", 16);
    k.param("i32", "a");
    k.param("i32", "b");
    expect(() => interpret(k.finish(), new ArrayBuffer(0), [1])).toThrow(
      "two: 1 arguments, expected 2",
    );
  });
});

test("the fused multiply-add rounds once", () => {
  const one = 1 + 2 ** -23;
  expect(fusedMultiplyAdd(one, one, -1 - 2 ** -22)).toBe(2 ** -46);
  // Half way between two floats, but for a bit far below what f64 holds.
  const x = 1 + 2 ** -12;
  expect(fusedMultiplyAdd(x, x, 0)).toBe(1 + 2 ** -11);
  expect(fusedMultiplyAdd(x, x, 2 ** -100)).toBe(1 + 2 ** -11 + 2 ** -23);
  expect(fusedMultiplyAdd(x, x, -(2 ** -100))).toBe(1 + 2 ** -11);
  expect(fusedMultiplyAdd(-x, x, -(2 ** -100))).toBe(-(1 + 2 ** -11 + 2 ** -23));
  expect(fusedMultiplyAdd(2 ** -75, 2 ** -75, 2 ** -149)).toBe(2 ** -148);
  expect(fusedMultiplyAdd(2 ** 127, 2, -(2 ** 127))).toBe(2 ** 127);
  expect(fusedMultiplyAdd(2 ** 127, 2, 1)).toBe(Number.POSITIVE_INFINITY);
  expect(fusedMultiplyAdd(0, -1, -0)).toBe(-0);
  expect(fusedMultiplyAdd(Number.POSITIVE_INFINITY, 0, 1)).toBeNaN();
});

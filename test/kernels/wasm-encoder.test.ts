// The WebAssembly encoder: what it writes means to the engine, and to wabt, what was asked for.
// Held against: bytes written here, values that the engine computes, and wabt.

import { describe, expect, test } from "vitest";
import wabt from "wabt";
import {
  assembleModule,
  type Instruction,
  opcodes,
  WasmFunction,
  type WasmMemory,
} from "../../src/kernels/asm/wasm.ts";
import { wabtFeatures } from "./wabt-text.ts";

const tools = await wabt();
const memory: WasmMemory = { initial: 1, maximum: 1, shared: false, memory64: false };

function bytesOf(build: (f: WasmFunction) => void): string {
  const f = new WasmFunction("f", []);
  build(f);
  return f.bytes.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

function instantiate(functions: readonly WasmFunction[], limits = memory): WebAssembly.Exports {
  const module = new WebAssembly.Module(assembleModule(functions, limits));
  const memory = new WebAssembly.Memory({ initial: 1, maximum: limits.maximum });
  return new WebAssembly.Instance(module, { env: { memory } }).exports;
}

function call(f: WasmFunction, ...args: (number | bigint)[]): unknown {
  return (instantiate([f])[f.name] as (...args: (number | bigint)[]) => unknown)(...args);
}

/** The module as wabt writes it. */
function textOf(f: WasmFunction, limits: WasmMemory, check = true): string {
  const module = tools.readWasm(assembleModule([f], limits), { ...wabtFeatures, check });
  const text = module.toText({});
  module.destroy();
  return text;
}

describe("LEB128", () => {
  test.each([
    [0, "41 00"],
    [1, "41 01"],
    [63, "41 3f"],
    [64, "41 c0 00"],
    [127, "41 ff 00"],
    [128, "41 80 01"],
    [-1, "41 7f"],
    [-64, "41 40"],
    [-65, "41 bf 7f"],
    [-128, "41 80 7f"],
    [8191, "41 ff 3f"],
    [8192, "41 80 c0 00"],
    [2 ** 31 - 1, "41 ff ff ff ff 07"],
    [-(2 ** 31), "41 80 80 80 80 78"],
  ])("i32.const %i", (value, bytes) => {
    expect(bytesOf((f) => f.op("i32.const", value))).toBe(bytes);
    const f = new WasmFunction("f", [], ["i32"]);
    f.op("i32.const", value);
    expect(call(f)).toBe(value);
  });

  test.each([0n, -1n, 2n ** 32n, 2n ** 63n - 1n, -(2n ** 63n), 2n ** 53n + 1n])(
    "i64.const %i",
    (value) => {
      const f = new WasmFunction("f", [], ["i64"]);
      f.op("i64.const", value);
      expect(call(f)).toBe(value);
    },
  );

  test.each([
    [0, "20 00"],
    [127, "20 7f"],
    [128, "20 80 01"],
    [16383, "20 ff 7f"],
    [16384, "20 80 80 01"],
  ])("local.get %i", (index, bytes) => {
    expect(bytesOf((f) => f.op("local.get", index))).toBe(bytes);
  });

  test("the 300th local is the 300th", () => {
    const f = new WasmFunction("f", ["i32"], ["i32"]);
    const locals = [...new Array(300).keys()].map(() => f.local("i32"));
    expect(locals.at(-1)).toBe(300);
    for (const local of locals) {
      f.op("i32.const", local * 1000);
      f.op("local.set", local);
    }
    f.op("local.get", 256);
    expect(call(f, 7)).toBe(256000);
  });
});

test.each([0, -0, 1.5, 0.1, 2 ** -149, 3.4e38, Number.POSITIVE_INFINITY, Number.NaN])(
  "f32.const %d",
  (value) => {
    const f = new WasmFunction("f", [], ["f32"]);
    f.op("f32.const", value);
    expect(call(f)).toBe(Math.fround(value));
  },
);

describe("displacements", () => {
  const load = (offset: number, memory64: boolean) => {
    const f = new WasmFunction("f", [memory64 ? "i64" : "i32"], ["i32"]);
    f.op("local.get", 0);
    f.op("i32.load", offset);
    return f;
  };

  test.each([1, 127, 128, 16383, 16384, 2 ** 31, 2 ** 32 - 1])("of %i", (offset) => {
    expect(textOf(load(offset, false), memory)).toContain(`i32.load offset=${offset} align=1`);
  });

  test.each([2 ** 32, 2 ** 40 + 1, Number.MAX_SAFE_INTEGER])("of %i, 64-bit", (offset) => {
    const wide = { ...memory, memory64: true };
    const f = load(offset, true);
    expect(textOf(f, wide)).toContain(`i32.load offset=${offset} align=1`);
    expect(WebAssembly.validate(assembleModule([f], wide))).toBe(true);
    expect(WebAssembly.validate(assembleModule([load(offset, false)], memory))).toBe(false);
  });

  test("are added without wrapping around", () => {
    expect(() => call(load(2 ** 32 - 1, false), 1)).toThrow(WebAssembly.RuntimeError);
    expect(call(load(65000, false), 100)).toBe(0);
  });
});

describe("memories", () => {
  test.each([
    [{ initial: 1, maximum: 65536, shared: false, memory64: false }, "(memory (;0;) 1 65536)"],
    [{ initial: 0, maximum: 200, shared: true, memory64: false }, "(memory (;0;) 0 200 shared)"],
    [{ initial: 1, maximum: 262144, shared: true, memory64: true }, "i64 1 262144 shared)"],
  ])("%o", (limits, text) => {
    const f = new WasmFunction("f", []);
    expect(textOf(f, limits)).toContain(text);
    expect(WebAssembly.validate(assembleModule([f], limits))).toBe(true);
  });
});

test("several functions, each with its own type, locals and name", () => {
  const add = new WasmFunction("add.i32", ["i32", "i32"], ["i32"]);
  add.op("local.get", 0);
  add.op("local.get", 1);
  add.op("i32.add");
  const twice = new WasmFunction("twice ×2", ["f32"], ["f32"]);
  const copy = twice.local("f32");
  twice.op("local.get", 0);
  twice.op("local.tee", copy);
  twice.op("local.get", copy);
  twice.op("f32.add");
  const nothing = new WasmFunction("nothing", []);
  const { "add.i32": a, "twice ×2": t, nothing: no } = instantiate([add, twice, nothing]);
  expect((a as (x: number, y: number) => number)(2 ** 31 - 1, 1)).toBe(-(2 ** 31));
  expect((t as (x: number) => number)(1.5)).toBe(3);
  expect((no as () => void)()).toBeUndefined();
});

test("more functions than one byte counts", () => {
  const functions = [...new Array(200).keys()].map((index) => {
    const f = new WasmFunction(`f${index}`, [], ["i32"]);
    f.op("i32.const", index);
    return f;
  });
  const exports = instantiate(functions);
  expect((exports.f199 as () => number)()).toBe(199);
});

test("a function of a megabyte", () => {
  const f = new WasmFunction("f", [], ["i32"]);
  f.op("i32.const", 0);
  for (let i = 0; i < 250_000; i++) {
    f.op("i32.const", 1000);
    f.op("i32.add");
  }
  expect(call(f)).toBe(250_000_000);
});

/** An instruction by itself does not validate; its name can be read all the same. */
test.each(Object.keys(opcodes) as Instruction[])("%s is what wabt calls it", (name) => {
  if (name === "end") return; // every function has one, and no line of its own
  const f = new WasmFunction("f", []);
  const [, , immediate] = opcodes[name] as readonly [number, number, string?];
  if (immediate === "v128") f.op16(name, new Array(16).fill(1));
  else if (name.endsWith("_lane") && immediate === "memory") f.op(name, 5, 1);
  else f.op(name, immediate === "memory" ? 5 : 0);
  if (immediate === "block") f.op("end");
  const text = textOf(f, { ...memory, shared: true }, false);
  const line = text.split("\n").find((_, i, all) => all[i - 1]?.includes("(func (;0;)"));
  expect(line?.trim().split(/[ )]/)[0]).toBe(name);
});

// Half floats in kernels: every half there is, and floats around every half and every tie, against the half floats of
// the JavaScript engine, which we did not write.

import { expect, test } from "vitest";
import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import type { Kernel, Reg } from "../../src/kernels/ir/kernel.ts";
import type { OpName } from "../../src/kernels/ir/ops.ts";
import { Random } from "../support/random.ts";
import { anyOp } from "./op-cases.ts";
import { firstDifference } from "./same-memory.ts";
import { compile, describeTargets } from "./wasm-runner.ts";

// Newer than the types.
const { Float16Array } = globalThis as unknown as {
  Float16Array: new (
    from: ArrayLike<number> | ArrayBuffer,
  ) => ArrayLike<number> & {
    buffer: ArrayBuffer;
  };
};

const halves = 65536;

/** Reads 4 at a time from `input` by one op, writes to `output` by another. */
function convert(load: OpName, store: OpName, bytes: { input: number; output: number }): Kernel {
  const k = new KernelBuilder(`${load}.${store}`, 16);
  const [input, output] = [k.param("ptr", "input"), k.param("ptr", "output")];
  k.loop(k.param("i32", "vectors"), () => {
    anyOp(k, store, [output, anyOp(k, load, [input]) as Reg]);
    k.advance(input, bytes.input);
    k.advance(output, bytes.output);
  });
  return k.finish();
}

const everyHalf = Uint16Array.from({ length: halves }, (_, bits) => bits);

/** The halves as input, with room for as many floats after them. */
function halvesMemory(): Uint8Array<ArrayBuffer> {
  const memory = new Uint8Array(halves * 6);
  memory.set(new Uint8Array(everyHalf.buffer));
  return memory;
}

/** Around every half: itself, the tie with the next, and the floats next to both. */
function floatsAroundHalves(): Float32Array<ArrayBuffer> {
  const positive = [...new Array(0x7c00).keys()];
  const values = new Float32Array(new Float16Array(Uint16Array.from(positive).buffer));
  const bits = new Uint32Array(values.buffer);
  const around = positive.flatMap((half) => {
    const next = half + 1 < positive.length ? values[half + 1]! : 65536;
    const tie = new Uint32Array(Float32Array.of((values[half]! + next) / 2).buffer)[0]!;
    return [bits[half]!, bits[half]! + 1, tie - 1, tie, tie + 1];
  });
  const random = new Random(7);
  const anything = Array.from({ length: 4000 }, () => Math.floor(random.unit() * 2 ** 31));
  const extremes = [0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff, 0x7f7fffff, 1, 0x007fffff];
  const all = [...around, ...anything, ...extremes];
  return new Float32Array(Uint32Array.from([...all, ...all.map((x) => x + 2 ** 31)]).buffer);
}

describeTargets((target) => {
  test("load_f16 reads all 65536 halves", () => {
    const kernel = convert("f32v.load_f16", "f32v.store", { input: 8, output: 16 });
    const expected = halvesMemory();
    const floats = Float32Array.from(new Float16Array(everyHalf.slice().buffer));
    expected.set(new Uint8Array(floats.buffer), halves * 2);
    const args = [0, halves * 2, halves / 4];
    const region = [{ from: halves * 2, to: expected.length, kind: "f32" } as const];
    const meant = halvesMemory();
    interpret(kernel, meant.buffer, args);
    expect(firstDifference(meant, expected, region)).toBeUndefined();
    const got = compile(kernel, target)(halvesMemory(), args);
    expect(firstDifference(got, expected, region)).toBeUndefined();
  });

  test("load_f16_finite reads all finite halves", () => {
    const kernel = convert("f32v.load_f16_finite", "f32v.store", { input: 8, output: 16 });
    const hasValue = (half: number) => (half & 0x7c00) !== 0x7c00;
    const finite = everyHalf.map((half) => (hasValue(half) ? half : 0));
    const memory = new Uint8Array(halves * 6);
    memory.set(new Uint8Array(finite.buffer));
    const expected = memory.slice();
    const floats = Float32Array.from(new Float16Array(finite.buffer));
    expected.set(new Uint8Array(floats.buffer), halves * 2);
    const args = [0, halves * 2, halves / 4];
    const meant = memory.slice();
    interpret(kernel, meant.buffer, args);
    expect(firstDifference(meant, expected, [])).toBeUndefined();
    expect(firstDifference(compile(kernel, target)(memory, args), expected, [])).toBeUndefined();
  });

  test("load_bf16 reads all 65536", () => {
    const kernel = convert("f32v.load_bf16", "f32v.store", { input: 8, output: 16 });
    const expected = halvesMemory();
    const floats = Uint32Array.from(everyHalf, (bits) => bits * 65536);
    expected.set(new Uint8Array(floats.buffer), halves * 2);
    const args = [0, halves * 2, halves / 4];
    const region = [{ from: halves * 2, to: expected.length, kind: "f32" } as const];
    const meant = halvesMemory();
    interpret(kernel, meant.buffer, args);
    expect(firstDifference(meant, expected, region)).toBeUndefined();
    const got = compile(kernel, target)(halvesMemory(), args);
    expect(firstDifference(got, expected, region)).toBeUndefined();
  });

  test("store_f16 rounds to the nearest half, ties to even", () => {
    const kernel = convert("f32v.load", "f32v.store_f16", { input: 16, output: 8 });
    const floats = floatsAroundHalves();
    const vectors = Math.floor(floats.length / 4);
    const memory = new Uint8Array(floats.length * 6);
    memory.set(new Uint8Array(floats.buffer));
    const expected = memory.slice();
    const rounded = new Float16Array(floats.subarray(0, vectors * 4));
    expected.set(new Uint8Array(rounded.buffer), floats.length * 4);
    const args = [0, floats.length * 4, vectors];
    const region = [{ from: floats.length * 4, to: memory.length, kind: "f16" } as const];
    const meant = memory.slice();
    interpret(kernel, meant.buffer, args);
    expect(firstDifference(meant, expected, region)).toBeUndefined();
    const got = compile(kernel, target)(memory, args);
    expect(firstDifference(got, expected, region)).toBeUndefined();
  });
});

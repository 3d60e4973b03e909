// Matmuls of float weights through WebAssembly: packed into row panels, one token at a time, in streams, and in
// register tiles (with widened half floats), compared with the plain matmul; all with the same bits, since all add in
// the same order. Halves are also tested at the edges of their encoding: subnormals, values of 64 and more, infinity.
// The kernels of machine code run in the interpreter.

import { describe, expect, test } from "vitest";
import { type FloatType, floatPanelsFor } from "../../src/backends/cpu/memory/float-panels.ts";
import { bytesFor } from "../../src/dtypes/dtype.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { assembleModule } from "../../src/kernels/asm/wasm.ts";
import { detectWasmFeatures } from "../../src/kernels/features.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import { lowerToWasm } from "../../src/kernels/lower/wasm.ts";
import { widenBf16, widenPanelF16 } from "../../src/kernels/ops/elementwise/widen.ts";
import { type FloatMatmul, floatMatmulKernel } from "../../src/kernels/ops/matmul/floats.ts";
import { type KernelTarget, nativeTargets, wasmTarget } from "../../src/kernels/target.ts";
import { Random } from "../support/random.ts";

const pages = 80;
const [W, X, OUT, WIDE] = [0, 1 << 20, 2 << 20, 3 << 20];
const [rows, cols, tokens] = [32, 40, 6];
const tiles = rows / 16;

const target = wasmTarget(detectWasmFeatures());
type Calls = Record<string, (...args: number[]) => void>;

/** Kernels over a memory that holds tiles of the weights and the activations. */
function setUp(
  type: FloatType,
  weights: Float32Array,
  x: Float32Array,
  layout: KernelTarget = target,
) {
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages });
  const dtype = dtypeByName(type)!;
  const bytes = new Uint8Array(bytesFor(dtype, rows * cols));
  dtype.quantize!(weights, 0, bytes, 0, rows * cols);
  const exact = new Float32Array(rows * cols);
  dtype.dequantize(bytes, 0, exact, 0, rows * cols);
  const apart = floatPanelsFor(type, layout).rowPanelBytes(cols);
  for (let tile = 0; tile < tiles; tile++) {
    const source = new DataView(bytes.buffer, (tile * bytes.length) / tiles, bytes.length / tiles);
    floatPanelsFor(type, layout).pack(source, 16, cols, memory.buffer, W + tile * apart);
  }
  new Float32Array(memory.buffer).set(x, X / 4);
  return { memory, exact, apart, out: new Float32Array(memory.buffer, OUT, tokens * rows) };
}

function compile(type: FloatType, memory: WebAssembly.Memory): Calls {
  const one = { weights: type, groups: 4, tokens: 1, order: "vector", target } as const;
  const several = { weights: "f32", order: "matrix", target } as const;
  const kernels = [
    floatMatmulKernel({ ...one, name: "vector" }),
    floatMatmulKernel({ ...one, name: "streams", streams: 2 }),
    ...[1, 2, 4].flatMap((groups) =>
      [2, 3, 6].map((width) =>
        floatMatmulKernel({ ...several, name: `${groups}x${width}`, groups, tokens: width }),
      ),
    ),
    widenBf16(16),
    widenPanelF16(16),
  ];
  const { relaxed } = detectWasmFeatures();
  const functions = kernels.map((kernel) => lowerToWasm(kernel, { relaxed, memory64: false }));
  const limits = { initial: pages, maximum: pages, shared: false, memory64: false };
  const module = new WebAssembly.Module(assembleModule(functions, limits));
  return new WebAssembly.Instance(module, { env: { memory } }).exports as unknown as Calls;
}

/** [tokens][rows]: one token at a time, after checking that every other way gives the same bits. */
function product(type: FloatType, weights: Float32Array, x: Float32Array) {
  const { memory, exact, apart, out } = setUp(type, weights, x);
  const call = compile(type, memory);
  const stride = cols * 4;
  for (let t = 0; t < tokens; t++) {
    call.vector!(W, X + t * stride, OUT + t * rows * 4, cols / 4, tiles, 0, 0);
  }
  const result = out.slice();
  out.fill(0);
  for (let t = 0; t < tokens; t++) {
    call.streams!(W, X + t * stride, OUT + t * rows * 4, cols / 4, 1, apart, 16 * 4);
  }
  expect(out, "streams").toEqual(result);
  for (const groups of [1, 2, 4]) {
    for (const width of [2, 3, 6]) {
      out.fill(0);
      for (let tile = 0; tile < tiles; tile++) {
        const { widen } = floatPanelsFor(type, target);
        if (widen) call[widen]!(W + tile * apart, WIDE, 16 * cols);
        const base = widen ? WIDE : W + tile * apart;
        for (let g = 0; g < 4; g += groups) {
          const to = OUT + (tile * 16 + g * 4) * 4;
          const kernel = call[`${groups}x${width}`]!;
          kernel(base + g * 16, X, to, cols / 4, tokens / width, stride, rows * 4);
        }
      }
      expect(out, `${groups * 4}x${width}`).toEqual(result);
    }
  }
  return { result, exact };
}

function expectProduct(result: Float32Array, exact: Float32Array, x: Float32Array): void {
  for (let t = 0; t < tokens; t++) {
    for (let row = 0; row < rows; row++) {
      let [sum, size] = [0, 0];
      for (let c = 0; c < cols; c++) {
        const term = x[t * cols + c]! * exact[row * cols + c]!;
        sum += term;
        size += Math.abs(term);
      }
      const got = result[t * rows + row]!;
      expect(Math.abs(got - sum), `token ${t} row ${row}: ${got}`).toBeLessThanOrEqual(1e-6 * size);
    }
  }
}

describe.each(["f32", "f16", "bf16"] as const)("%s", (type) => {
  test("ordinary weights", () => {
    const random = new Random(7);
    const weights = Float32Array.from({ length: rows * cols }, () => random.normal() * 0.02);
    const x = Float32Array.from({ length: tokens * cols }, () => random.normal());
    const { result, exact } = product(type, weights, x);
    expectProduct(result, exact, x);
  });
});

/** The same by the interpreter, for a target of machine code: [tokens][rows] and the weights. */
function nativeProduct(
  type: FloatType,
  native: KernelTarget,
  weights: Float32Array,
  x: Float32Array,
) {
  const { memory, exact, apart, out } = setUp(type, weights, x, native);
  const all = 64 / native.width;
  const run = (shape: Omit<FloatMatmul, "name" | "weights" | "target">, ...args: number[]) =>
    interpret(
      floatMatmulKernel({ ...shape, name: "float", weights: type, target: native }),
      memory.buffer,
      args,
      { fused: true },
    );
  const [stride, one] = [cols * 4, { groups: all, tokens: 1, order: "vector" } as const];
  for (let t = 0; t < tokens; t++) {
    run(one, W, X + t * stride, OUT + t * rows * 4, cols / 4, tiles, 0, 0);
  }
  const result = out.slice();
  out.fill(0);
  for (let t = 0; t < tokens; t++) {
    run({ ...one, streams: 2 }, W, X + t * stride, OUT + t * rows * 4, cols / 4, 1, apart, 64);
  }
  expect(out, "streams").toEqual(result);
  for (const groups of new Set([1, all])) {
    out.fill(0);
    for (let tile = 0; tile < tiles; tile++) {
      for (let g = 0; g < all; g += groups) {
        const w = W + tile * apart + (g * bytesFor(dtypeByName(type)!, native.width)) / 4;
        const to = OUT + tile * 64 + g * native.width;
        const shape = { groups, tokens: 3, order: "matrix" } as const;
        run(shape, w, X, to, cols / 4, tokens / 3, stride, rows * 4);
      }
    }
    expect(out, `${groups} groups`).toEqual(result);
  }
  return { result, exact };
}

describe.each(Object.values(nativeTargets))("$name", (native) => {
  test.each(["f32", "f16", "bf16"] as const)("%s", (type) => {
    const random = new Random(7);
    const weights = Float32Array.from({ length: rows * cols }, (_, i) =>
      i % 5 === 0 ? random.normal() * 2 ** -18 : random.normal() * 0.02,
    );
    const x = Float32Array.from({ length: tokens * cols }, () => random.normal());
    const { result, exact } = nativeProduct(type, native, weights, x);
    expectProduct(result, exact, x);
  });
});

describe("halves", () => {
  const random = new Random(8);
  const x = Float32Array.from({ length: tokens * cols }, () => random.normal());
  x.set([65504, 2 ** -24, 0, -0]);

  test("subnormal ones, zeros, and the largest that is raised", () => {
    const weights = Float32Array.from({ length: rows * cols }, (_, i) =>
      i % 3 === 0 ? random.normal() * 2 ** -16 : (i % 2048) * 2 ** -24,
    );
    weights.set([63.96875, -63.96875, 0, -0, 2 ** -24, -(2 ** -24)]);
    const { result, exact } = product("f16", weights, x);
    expect(exact.subarray(0, 6)).toEqual(weights.subarray(0, 6));
    expectProduct(result, exact, x);
  });

  test("large ones beside subnormal ones: a tile that is not raised", () => {
    const weights = Float32Array.from({ length: rows * cols }, (_, i) =>
      i % 2 === 0 ? random.normal() * 2 ** -16 : 30_000 * random.normal(),
    );
    const { result, exact } = product(
      "f16",
      weights.map((v) => Math.max(-65504, Math.min(65504, v))),
      x,
    );
    expectProduct(result, exact, x);
  });

  test("an infinity makes the results of its tile no numbers, and of no other", () => {
    const weights = new Float32Array(rows * cols).fill(0.5);
    weights[3] = Number.NEGATIVE_INFINITY;
    const { result } = product("f16", weights, x);
    for (let t = 0; t < tokens; t++) {
      const row = [...result.subarray(t * rows, (t + 1) * rows)];
      expect(row.slice(0, 16).every(Number.isNaN)).toBe(true);
      expect(row.slice(16).every(Number.isFinite)).toBe(true);
    }
  });

  test("rows come out of a tile as they went in", () => {
    const dtype = dtypeByName("f16")!;
    const f16 = floatPanelsFor("f16", target);
    // All 65536 halves, in rows of 4096: the tiles with infinities and those without.
    const wide = 2048;
    for (let start = 0; start < 65536; start += 16 * wide) {
      const bytes = new Uint8Array(
        Uint16Array.from({ length: 16 * wide }, (_, i) => start + i).buffer,
      );
      const want = new Float32Array(16 * wide);
      dtype.dequantize(bytes, 0, want, 0, want.length);
      for (const rowCount of [16, 10]) {
        const buffer = new ArrayBuffer(f16.rowPanelBytes(wide));
        f16.pack(new DataView(bytes.buffer), rowCount, wide, buffer, 0);
        const got = new Float32Array(wide);
        for (let row = 0; row < rowCount; row++) {
          f16.read(buffer, 0, row, wide, got, 0);
          expect(got).toEqual(want.subarray(row * wide, (row + 1) * wide));
        }
      }
    }
  });
});

// The kernels that are not matmuls, lowered to WebAssembly with and without relaxed SIMD and interpreted with
// wider vectors, against the same functions in double precision. Tolerances are relative to the largest value that enters the result, and stated per
// kernel; sizes are odd multiples of a vector, so that unrolled loops and their tails both run.

import { describe, expect, it } from "vitest";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import { gelu, relu, silu, softplus } from "../../src/kernels/ops/elementwise/activate.ts";
import { add, mul } from "../../src/kernels/ops/elementwise/binary.ts";
import { blockMax, MAX_BLOCK } from "../../src/kernels/ops/elementwise/block-max.ts";
import { copy } from "../../src/kernels/ops/elementwise/copy.ts";
import {
  geluGate,
  reluGate,
  siluGate,
  softplusGate,
} from "../../src/kernels/ops/elementwise/gate.ts";
import { layerNorm, layerNormBias } from "../../src/kernels/ops/elementwise/layer-norm.ts";
import { rmsNorm } from "../../src/kernels/ops/elementwise/rms-norm.ts";
import {
  ropeHalf,
  ropeInterleaved,
  ropeTable,
  ropeTableSize,
} from "../../src/kernels/ops/elementwise/rope.ts";
import { roundBf16, roundF16 } from "../../src/kernels/ops/elementwise/round.ts";
import { scale } from "../../src/kernels/ops/elementwise/scale.ts";
import { softcap } from "../../src/kernels/ops/elementwise/softcap.ts";
import { softmax } from "../../src/kernels/ops/elementwise/softmax.ts";
import { forEachVector, load, store, stream } from "../../src/kernels/ops/loops.ts";
import { exp, tanh } from "../../src/kernels/ops/math.ts";
import { Random } from "../support/random.ts";
import { type Arena, arenaFor, targets } from "./arena.ts";

function randoms(random: Random, n: number, spread = 1): Float32Array {
  return Float32Array.from({ length: n }, () => random.normal() * spread);
}

/** Each value within `tolerance` times its own magnitude (or `floor`, if that is larger). */
function expectClose(
  got: ArrayLike<number>,
  want: ArrayLike<number>,
  tolerance: number,
  floor = 1e-30,
): void {
  expect(got.length).toBe(want.length);
  for (let i = 0; i < want.length; i++) {
    if (Object.is(got[i], Math.fround(want[i]!))) continue;
    const error = Math.abs(got[i]! - want[i]!) / Math.max(Math.abs(want[i]!), floor);
    if (!(error <= tolerance)) {
      expect.fail(`[${i}] is ${got[i]}, expected ${want[i]}: relative error ${error}`);
    }
  }
}

/** out = helper(x) over n values. */
function mapKernel(width: number, helper: typeof exp): Kernel {
  const k = new KernelBuilder("map", width);
  const [x, out] = [stream(k, k.param("ptr", "x")), stream(k, k.param("ptr", "out"))];
  forEachVector(k, k.param("i32", "n"), 1, [x, out], (i) =>
    store(k, out, i, helper(k, load(k, x, i))),
  );
  return k.finish();
}

for (const target of targets) {
  const lanes = target.width / 4;
  const sizes = [4, 8, 12, 16, 20, 28, 32, 44, 288, 2048].filter((n) => n % lanes === 0);
  const lowered = (build: (width: number) => Kernel): Arena => arenaFor(build, target);

  describe(`elementwise kernels, ${target.name}`, () => {
    it.each(sizes)("rms_norm: 3 groups of %i, 1e-6", (size) => {
      const random = new Random(size);
      const arena = lowered(rmsNorm);
      const x = arena.f32(randoms(random, 3 * size, 2));
      const weight = arena.f32(randoms(random, size));
      const out = arena.f32(3 * size);
      arena.call(x.byteOffset, weight.byteOffset, out.byteOffset, 3, size, 1e-5);
      const want = Float64Array.from(x, (value, i) => {
        const group = x.subarray(i - (i % size), i - (i % size) + size);
        const squares = group.reduce((sum, v) => sum + v * v, 0);
        return (value / Math.sqrt(squares / size + Math.fround(1e-5))) * weight[i % size]!;
      });
      expectClose(out, want, 1e-6);
      arena.checkGuards();
    });

    const rotations = (
      [
        ["interleaved", ropeInterleaved, 1, 16, 8],
        ["interleaved", ropeInterleaved, 3, 48, 48],
        ["interleaved", ropeInterleaved, 2, 80, 40],
        ["interleaved", ropeInterleaved, 2, 80, 64],
        ["half", ropeHalf, 1, 16, 16],
        ["half", ropeHalf, 3, 48, 48],
        ["half", ropeHalf, 2, 80, 32],
      ] as const
    ).filter(([layout, , , headDim, dims]) =>
      [layout === "half" ? dims / 2 : dims, headDim - dims].every((n) => n % lanes === 0),
    );
    it.each(rotations)("rope_%s: %#, 2e-7 of the pair", (layout, kernel, heads, headDim, dims) => {
      const random = new Random(heads * headDim + dims);
      const arena = lowered(kernel);
      const pairs = dims / 2;
      const angles = Array.from({ length: pairs }, (_, i) => 100 * 0.7 ** i);
      const cos = Float32Array.from(angles, Math.cos);
      const sin = Float32Array.from(angles, Math.sin);
      const x = arena.f32(randoms(random, heads * headDim));
      const out = arena.f32(heads * headDim);
      const table = arena.f32(ropeTableSize(dims));
      ropeTable(layout, cos, sin, table, 0);
      const want = Float64Array.from(x);
      for (let head = 0; head < heads; head++) {
        for (let pair = 0; pair < pairs; pair++) {
          const first = head * headDim + (layout === "half" ? pair : 2 * pair);
          const second = first + (layout === "half" ? pairs : 1);
          want[first] = x[first]! * cos[pair]! - x[second]! * sin[pair]!;
          want[second] = x[first]! * sin[pair]! + x[second]! * cos[pair]!;
        }
      }
      arena.call(x.byteOffset, out.byteOffset, table.byteOffset, heads, headDim, dims);
      expectClose(out, want, 2e-7, 1);
      arena.call(x.byteOffset, x.byteOffset, table.byteOffset, heads, headDim, dims);
      expectClose(x, out, 0); // in place
      arena.checkGuards();
    });

    it.each(sizes)("layer_norm of %i, with a bias and without: 1e-6 of the largest", (size) => {
      const random = new Random(size);
      // A mean far from 0: the variance must come from the differences.
      const values = randoms(random, size).map((v) => v + 50);
      for (const kernel of [layerNorm, layerNormBias]) {
        const arena = lowered(kernel);
        const [x, out] = [arena.f32(values), arena.f32(size)];
        const [weight, bias] = [
          arena.f32(randoms(random, size)),
          arena.f32(randoms(random, size, 5)),
        ];
        const at = [x, weight, out].map((array) => array.byteOffset);
        arena.call(...at, size, 1e-5, ...(kernel === layerNorm ? [] : [bias.byteOffset]));
        const mean = x.reduce((sum, v) => sum + v, 0) / size;
        const variance = x.reduce((sum, v) => sum + (v - mean) ** 2, 0) / size;
        const want = Float64Array.from(x, (v, i) => {
          const normal = ((v - mean) / Math.sqrt(variance + Math.fround(1e-5))) * weight[i]!;
          return kernel === layerNorm ? normal : normal + bias[i]!;
        });
        // A mean that is off by its last digit (4e-6 of 50) moves all values by as much.
        expectClose(out, want, 1e-5, 1);
        arena.checkGuards();
      }
    });

    it.each([0.5, 30, 50])("softcap %d: 1e-6", (cap) => {
      const arena = lowered(softcap);
      const random = new Random(11);
      for (const n of sizes) {
        const x = arena.f32(randoms(random, n, 40));
        x.set([0, 1e-6, 1e4, -1e4].slice(0, n));
        const out = arena.f32(n);
        arena.call(x.byteOffset, out.byteOffset, n, cap);
        const want = Float64Array.from(x, (v) => cap * Math.tanh(v / cap));
        expectClose(out, want, 1e-6);
      }
      arena.checkGuards();
    });

    it.each([
      ["silu", siluGate, silu, (x: number) => x / (1 + Math.exp(-x))],
      [
        "gelu",
        geluGate,
        gelu,
        (x: number) => x / (1 + Math.exp(-2 * Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
      ],
      ["relu", reluGate, relu, (x: number) => Math.max(x, 0)],
      [
        "softplus",
        softplusGate,
        softplus,
        (x: number) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x))),
      ],
    ] as const)("%s and its gate: 1e-6, and its limits", (_, gateKernel, kernel, activation) => {
      const gated = lowered(gateKernel);
      const plain = lowered(kernel);
      const random = new Random(7);
      for (const n of sizes) {
        const values = randoms(random, n, n > 1000 ? 30 : 3);
        values.set([0, 1e-8, 1e4, -1e4].slice(0, n));
        const [gate, up, out] = [gated.f32(values), gated.f32(randoms(random, n)), gated.f32(n)];
        gated.call(gate.byteOffset, up.byteOffset, out.byteOffset, n);
        // Rounding the argument of e^-x alone costs |x| * 6e-8: the tail is compared in absolute terms.
        const want = Float64Array.from(gate, (x, i) => activation(x) * up[i]!);
        expectClose(out, want, 1e-6, 1e-3);

        const [x, activated] = [plain.f32(values), plain.f32(n)];
        plain.call(x.byteOffset, activated.byteOffset, n);
        expectClose(activated, Float64Array.from(x, activation), 1e-6, 1e-3);
      }
      gated.checkGuards();
      plain.checkGuards();
    });

    it("add, mul, scale, copy: exact", () => {
      const random = new Random(3);
      for (const n of sizes) {
        const [left, right] = [randoms(random, n), randoms(random, n)];
        for (const [kernel, f] of [
          [add, (a: number, b: number) => a + b],
          [mul, (a: number, b: number) => a * b],
        ] as const) {
          const arena = lowered(kernel);
          const [a, b, out] = [arena.f32(left), arena.f32(right), arena.f32(n)];
          arena.call(a.byteOffset, b.byteOffset, out.byteOffset, n);
          expect(out).toEqual(Float32Array.from(left, (v, i) => f(v, right[i]!)));
          arena.checkGuards();
        }
        const factor = Math.fround(0.37);
        for (const [kernel, want] of [
          [scale, left.map((v) => v * factor)],
          [copy, left],
        ] as const) {
          const arena = lowered(kernel);
          const [x, out] = [arena.f32(left), arena.f32(n)];
          arena.call(x.byteOffset, out.byteOffset, n, factor);
          expect(out).toEqual(want);
          arena.checkGuards();
        }
      }
    });

    it.each([
      ["f16", roundF16],
      ["bf16", roundBf16],
    ] as const)("round_%s: as the type itself rounds, bit for bit", (name, kernel) => {
      const dtype = dtypeByName(name)!;
      const random = new Random(5);
      const corners = [
        0,
        -0,
        1e-8,
        6e-8,
        65504,
        65519,
        65520,
        -1e30,
        3.4e38,
        1 + 2 ** -11,
        1 + 3 * 2 ** -11,
      ];
      const ties = [1 + 2 ** -8, 1 + 3 * 2 ** -8, 2 ** -25, 3 * 2 ** -25];
      const limits = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
      const values = [...corners, ...ties, ...limits, ...randoms(random, 2030, 1e-3)];
      const arena = lowered(kernel);
      const x = arena.f32(values);
      const out = arena.f32(x.length);
      const largest = arena.f32(1);
      arena.call(x.byteOffset, out.byteOffset, x.length, largest.byteOffset);
      const bytes = new Uint8Array(2 * x.length);
      const want = new Float32Array(x.length);
      dtype.quantize!(x, 0, bytes, 0, x.length);
      dtype.dequantize(bytes, 0, want, 0, x.length);
      expect(out).toEqual(want);
      arena.call(x.byteOffset, x.byteOffset, x.length, largest.byteOffset);
      expect(x).toEqual(want); // in place
      // The largest magnitude, once rounded.
      const finite = values.filter((value) => Math.abs(value) < 65520);
      for (const [beyond, most] of [
        [[], 65504],
        [[-65520], name === "f16" ? Number.POSITIVE_INFINITY : 65536],
      ] as const) {
        const some = arena.f32([...beyond, ...finite].slice(0, 2032));
        arena.call(some.byteOffset, some.byteOffset, some.length, largest.byteOffset);
        expect(largest[0]).toBe(name === "f16" ? most : 65536);
      }
      arena.checkGuards();
    });

    it.each([
      ["exp", exp, Math.exp, 90],
      ["tanh", tanh, Math.tanh, 12],
    ] as const)("%s over its whole range: 2e-7, and its limits", (_, helper, f, range) => {
      const arena = lowered((width) => mapKernel(width, helper));
      const n = 20_000;
      const limits = [
        Number.POSITIVE_INFINITY,
        Number.NEGATIVE_INFINITY,
        Number.NaN,
        0,
        1,
        -1,
        100,
        -100,
      ];
      const even = Array.from({ length: n }, (_, i) => (i / n - 0.5) * 2 * range);
      const small = Array.from({ length: n }, (_, i) => (i / n - 0.5) * 10 ** (-i % 10));
      const x = arena.f32([...limits, ...limits, ...even, ...small]);
      const out = arena.f32(x.length);
      arena.call(x.byteOffset, out.byteOffset, x.length);
      // Results below the least normal float become 0.
      const want = Float64Array.from(x, (v) => (f(v) > 0 && f(v) < 1.66e-38 ? 0 : f(v)));
      expectClose(out, want, 2e-7);
      arena.checkGuards();
    });

    it("block_max: the maximum of 64 values, wherever it is; NaN where one is not finite", () => {
      const random = new Random(64);
      const arena = lowered(blockMax);
      const strange = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
      const blocks = MAX_BLOCK + strange.length * MAX_BLOCK;
      const values = randoms(random, blocks * MAX_BLOCK);
      for (let i = 0; i < MAX_BLOCK; i++) {
        values[i * MAX_BLOCK + i] = i % 2 === 0 ? 10 : 1e30;
        strange.forEach((value, which) => {
          values[((which + 1) * MAX_BLOCK + i) * MAX_BLOCK + i] = value;
        });
      }
      const x = arena.f32(values);
      const out = arena.f32(blocks);
      arena.call(x.byteOffset, out.byteOffset, blocks);
      const want = Array.from({ length: blocks }, (_, block) => {
        if (block >= MAX_BLOCK) return Number.NaN;
        return Math.fround(block % 2 === 0 ? 10 : 1e30);
      });
      expect([...out]).toEqual(want);
      arena.checkGuards();
    });

    it.each([1, 2, 3, 4, 5, 8, 11, 31, 32, 33, 512, 2047])(
      "softmax of %i, in place and not: 1e-6",
      (n) => {
        const random = new Random(n);
        const arena = lowered(softmax);
        const padding = ((lanes - (n % lanes)) % lanes) * 4;
        const x = arena.f32(randoms(random, n, 5), padding);
        const out = arena.f32(n, padding);
        const max = Math.max(...x);
        const scale = n % 2 === 0 ? 1 : 0.125;
        const exps = Float64Array.from(x, (v) => Math.exp(Math.fround(v - max) * scale));
        const sum = exps.reduce((a, b) => a + b, 0);
        arena.call(x.byteOffset, out.byteOffset, n, scale);
        expectClose(
          out,
          exps.map((e) => e / sum),
          1e-6,
        );
        arena.call(x.byteOffset, x.byteOffset, n, scale);
        expectClose(x, out, 0);
        arena.checkGuards();
      },
    );
  });
}

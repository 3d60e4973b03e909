// The matmul variants of machine-code targets: every accepted one fits the registers, as the lowerings see it, and so
// does the default without measurements.

import { describe, expect, test } from "vitest";
import type { FloatType } from "../../src/backends/cpu/memory/float-panels.ts";
import { choiceWithCode, refusals } from "../../src/backends/cpu/native/choice.ts";
import type { NativeTargetName } from "../../src/backends/cpu/native/isa.ts";
import { lowerings } from "../../src/backends/cpu/native/native.ts";
import { blockKernels, floatKernels } from "../../src/backends/cpu/ops/matmul-kernels.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import { KernelRefused } from "../../src/kernels/lower/machine.ts";
import { lowerToX64 } from "../../src/kernels/lower/x64.ts";
import {
  acceptsProblem,
  defaultVariant,
  effectiveVariant,
  type MatmulVariant,
  matmulVariants,
  variantById,
} from "../../src/kernels/matmul-variants.ts";
import { layoutFor } from "../../src/kernels/ops/packed/packing.ts";
import { packedTypes, packingOf } from "../../src/kernels/ops/packed/packings.ts";
import { type KernelTarget, nativeTargets } from "../../src/kernels/target.ts";

const floatTypes = ["f32", "f16", "bf16"];

function kernelsOf(dtype: string, target: KernelTarget, variant: MatmulVariant): Kernel[] {
  const packing = packingOf(dtype);
  const {
    vector,
    vectorStreams,
    vectorHalf = vector,
    matrix,
    unpack = vector,
  } = packing
    ? blockKernels(dtype, layoutFor(packing, target), variant)
    : floatKernels(dtype as FloatType, target, variant);
  const tiles = matrix.flatMap(({ kernel, inStreams }) =>
    inStreams ? [kernel, inStreams] : [kernel],
  );
  return [vector, vectorStreams, vectorHalf, unpack, ...tiles];
}

describe.each(Object.values(nativeTargets))("$name", (target) => {
  const hasCode = (dtype: string, variants: Iterable<MatmulVariant>) => {
    const kernels = [...variants].flatMap((variant) => kernelsOf(dtype, target, variant));
    const byName = new Map(kernels.map((kernel) => [kernel.name, kernel]));
    for (const kernel of byName.values()) {
      expect(kernel.width).toBe(target.width);
      lowerings[target.name as NativeTargetName](kernel);
    }
  };

  test.each([...packedTypes(), ...floatTypes])("%s has code by default", (dtype) => {
    hasCode(dtype, new Set([1, 2, 12, 16].map((tokens) => defaultVariant(dtype, tokens, target))));
  });

  // One of each kind: plain quants, bytes, mins in bytes and in nibbles, codebook.
  test.each(["q4_0", "q8_0", "q4_k", "q2_k", "iq4_nl", "f16"])("%s has code", (dtype) => {
    const problem = { dtype, n: 64, k: 256 };
    const accepted = matmulVariants(target).filter(
      (variant) => acceptsProblem(variant, problem, target) === true,
    );
    expect(accepted.length).toBeGreaterThan(6);
    hasCode(dtype, accepted);
  });

  test("has no id twice, and no activations that are replicated", () => {
    const variants = matmulVariants(target);
    expect(new Set(variants.map(({ id }) => id)).size).toBe(variants.length);
    expect(variants.some(({ replicated }) => replicated)).toBe(false);
  });

  test("refuses what the registers cannot hold", () => {
    const widest = matmulVariants(target).reduce((a, b) =>
      a.rows * a.tokens > b.rows * b.tokens ? a : b,
    );
    const few = { ...target, vectorRegisters: 12 };
    const answer = acceptsProblem(widest, { dtype: "q4_0", n: 4096, k: 4096 }, few);
    expect(answer).toMatch(/vectors alive.*12 registers/);
  });
});

test("a variant with knobs is found by its id, and has kernels of its own", () => {
  const target = nativeTargets["x64-avx512"];
  const id = "4s.compact.ahead512.unroll2.pipelined";
  const variant = variantById(id, target)!;
  expect(variant).toMatchObject({ id, streams: 4, tokens: 1 });
  expect(variant.knobs).toEqual({ ahead: 512, unroll: 2, pipelined: true });
  const names = (one: MatmulVariant) => kernelsOf("q4_0", target, one).map(({ name }) => name);
  expect(names(variant)).toEqual(
    names(variantById("4s.compact", target)!).map((name) => `${name}.ahead512.unroll2.pipelined`),
  );
  expect(effectiveVariant(variantById("16x12.compact.unroll2", target)!, 8, target).id).toBe(
    "16x8.compact.unroll2",
  );
  // WebAssembly's compilers schedule by themselves, and AMX tiles have no knobs.
  expect(variantById("4s.compact.unroll2")).toBeUndefined();
  expect(variantById("16x16.amx.compact.unroll2", nativeTargets["x64-amx"])).toBeUndefined();
  expect(variantById("5s.compact.unroll2", target)).toBeUndefined();
});

test("knobs that do not fit the registers are refused with that sentence, and the usual ones taken", () => {
  const target = nativeTargets["x64-avx512"];
  const lower = (kernel: Kernel) => {
    try {
      return lowerToX64(kernel, { isa: "avx512" });
    } catch (error) {
      if (error instanceof KernelRefused) return error.message;
      throw error;
    }
  };
  const wide = variantById("16x12.compact.unroll2.pipelined", target)!;
  const refusal = refusals({ target, lower });
  expect(refusal("q8_0", wide)).toMatch(/keeps \d+ vectors alive, x64 avx512 has 32 registers/);
  expect(refusal("q4_0", variantById("4s.compact.unroll2.pipelined", target)!)).toBeUndefined();
  const choose = () => ({ variants: [wide], byTokens: [0], notes: [] });
  const problems = [{ dtype: "q8_0", n: 64, k: 256 }];
  const choice = choiceWithCode(choose, refusal, target)(problems, 0, 1);
  expect(choice.variants.map(({ id }) => id)).toEqual(["16x12.compact"]);
  expect(choice.notes[0]).toMatch(/16x12.compact.unroll2.pipelined is refused .*16x12.compact/);
});

test("AMX tiles are used from 13 tokens on", () => {
  const target = nativeTargets["x64-amx"];
  const effective = (tokens: number) =>
    effectiveVariant(variantById("16x16.amx.compact", target)!, tokens, target).id;
  expect([1, 2, 12, 13, 16].map((tokens) => defaultVariant("q4_0", tokens, target).id)).toEqual([
    ...["16x12.compact", "16x2.4s.compact", "16x12.compact"],
    ...["16x16.amx.compact", "16x16.amx.compact"],
  ]);
  expect([1, 12, 13].map(effective)).toEqual(["8s.compact", "16x12.compact", "16x16.amx.compact"]);
  expect(defaultVariant("f16", 32, target).id).toBe("16x12.compact");
  const variant = variantById("16x16.amx.compact", target)!;
  const problem = { dtype: "q4_0", n: 64, k: 256 };
  expect(acceptsProblem(variant, { ...problem, dtype: "f16" }, target)).toMatch(/f16 are floats/);
  expect(acceptsProblem(variant, problem, nativeTargets["x64-avx512"])).toMatch(/no AMX tiles/);
});

test("on arm64 a few tokens walk over whole row panels, in tiles of 3 or 4", () => {
  const target = nativeTargets["arm64-dotprod"];
  const chosen = (dtype: string) =>
    [2, 3, 4, 5, 6, 8, 9, 11].map((tokens) => defaultVariant(dtype, tokens, target).id);
  const few = ["8x2.2s.compact", "8x3.1s.compact", "8x4.1s.compact", "8x6.compact"];
  const more = ["8x3.1s.compact", "8x4.1s.compact", "8x3.1s.compact", "8x6.compact"];
  for (const dtype of ["q4_0", "q8_0"]) expect(chosen(dtype)).toEqual([...few, ...more]);
  // Types whose blocks share headers do not: tiles of 8 rows are as fast.
  expect(chosen("q4_k").slice(0, 3)).toEqual(["8x2.2s.compact", "8x6.compact", "8x6.compact"]);
});

test("pairs of rows are used from 8 tokens on", () => {
  const target = nativeTargets["arm64-i8mm"];
  expect([1, 2, 4, 7, 8, 64].map((tokens) => defaultVariant("q4_0", tokens, target).id)).toEqual([
    ...["8x6.compact", "8x2.2s.compact", "8x4.1s.compact", "8x6.compact"],
    ...["16x4.i8mm.compact", "16x4.i8mm.compact"],
  ]);
  expect(defaultVariant("f16", 64, target).i8mm).toBe(false);
  const variant = variantById("16x4.i8mm.compact", target)!;
  const problem = { dtype: "q4_0", n: 64, k: 256 };
  expect(acceptsProblem(variant, problem, target)).toBe(true);
  expect(acceptsProblem(variant, { ...problem, dtype: "f16" }, target)).toMatch(/f16 are floats/);
  expect(acceptsProblem(variant, problem, nativeTargets["arm64-dotprod"])).toMatch(/i8mm/);
});

test("tiles that are not full are those of fewer tokens", () => {
  const target = nativeTargets["x64-avx512"];
  const effective = (id: string, tokens: number) =>
    effectiveVariant(variantById(id, target)!, tokens, target).id;
  expect(effective("16x12.compact", 8)).toBe("16x8.compact");
  expect(effective("16x12.compact", 1)).toBe("8s.compact");
  expect(effective("16x12.compact", 9)).toBe("16x12.compact"); // there is no 16x9
});

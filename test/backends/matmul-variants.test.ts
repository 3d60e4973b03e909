// Every variant of a matmul gives the same bits for any number of tokens: tuning can choose any, and a choice never
// changes a text. The conformance suite compares the default with the reference.

import { describe, expect, test } from "vitest";
import { evenCapacity } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { detectWasmFeatures } from "../../src/kernels/features.ts";
import {
  acceptsProblem,
  defaultVariant,
  effectiveVariant,
  matmulVariants,
  variantById,
} from "../../src/kernels/matmul-variants.ts";
import { floats, matmulBatch, matmulGraph, uploadSample } from "../../src/tune/matmul-graph.ts";

const maxTokens = 11;
/** More registers than any has: no variant is refused for them. */
const everything = { vectorRegisters: 64 };
const features = detectWasmFeatures();

/** How engines multiply bytes: this one's way, and others that it can run. */
const engines = [
  { name: "this engine", wasm: features },
  ...(features.relaxed ? [{ name: "0..127", wasm: { ...features, dot4: "i7" as const } }] : []),
  { name: "no relaxed SIMD", wasm: { ...features, relaxed: false, dot4: "words" as const } },
];
const limits = { maxTokens, maxOutputs: maxTokens };

const problems = [
  { dtype: "q4_0", n: 40, k: 96 },
  { dtype: "q8_0", n: 128, k: 64 },
  { dtype: "q5_1", n: 16, k: 64 },
  { dtype: "q4_k", n: 56, k: 512 },
  { dtype: "q6_k", n: 7, k: 256 },
  { dtype: "iq4_nl", n: 33, k: 64 },
  // Enough rows for streams: chunks of six tiles, one for each of four streams and two that are left.
  { dtype: "q4_1", n: 344, k: 64 },
  { dtype: "q5_k", n: 344, k: 256 },
  { dtype: "iq4_xs", n: 344, k: 256 },
  { dtype: "f32", n: 40, k: 64 },
  { dtype: "f16", n: 33, k: 64 },
  { dtype: "bf16", n: 16, k: 128 },
];

describe.each(problems)("$dtype $n x $k", (problem) => {
  test.each(engines)(
    "is the same by every variant, for 1 to 11 tokens: $name",
    async ({ wasm }) => {
      const target = { ...everything, dot4: wasm.dot4 };
      const variants = matmulVariants().filter(
        (variant) => acceptsProblem(variant, problem, target) === true,
      );
      const byTokens = new Array<number>(maxTokens + 1).fill(0);
      const backend = new CpuBackend({
        level: 3,
        threads: 1,
        startThread: undefined,
        wasm,
        choose: () => ({ variants, byTokens, notes: [] }),
      });
      const graph = matmulGraph(dtypeByName(problem.dtype)!, problem.n, problem.k);
      await backend.prepare(makePlan(graph, limits), evenCapacity(1, floats));
      for (const weight of graph.weights) await uploadSample(backend, weight);
      const results = async (index: number, tokens: number): Promise<Float32Array> => {
        backend.tuning!.setVariant(index);
        await backend.run(matmulBatch(tokens, limits));
        const all = new Float32Array(tokens * problem.n);
        for (let row = 0; row < tokens; row++) {
          await backend.read("logits", row, all.subarray(row * problem.n, (row + 1) * problem.n));
        }
        return all;
      };
      const usual = variants.indexOf(defaultVariant(problem.dtype, 1, target));
      expect(usual).toBeGreaterThanOrEqual(0);
      for (let tokens = 1; tokens <= maxTokens; tokens++) {
        const expected = await results(usual, tokens);
        expect(expected.some((value) => value !== 0)).toBe(true);
        for (const [index, { id }] of variants.entries()) {
          expect(await results(index, tokens), `${id}, ${tokens} tokens`).toEqual(expected);
        }
      }
      backend.dispose();
    },
  );
});

describe("the table of variants", () => {
  test("has no id twice", () => {
    const ids = matmulVariants().map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
  });

  test("knows which tiles do the same for few tokens", () => {
    const effective = (id: string, tokens: number) => effectiveVariant(variantById(id)!, tokens).id;
    expect(effective("8x4.compact", 1)).toBe("4s.compact");
    expect(effective("16x4.replicated", 2)).toBe("16x2.replicated");
    expect(effective("8x6.compact", 5)).toBe("8x6.compact"); // there is no 8x5
    expect(effective("8x4.compact", 4)).toBe("8x4.compact");
    expect(effective("8s.compact", 1)).toBe("8s.compact");
    expect(effective("16x3.4s.compact", 3)).toBe("16x3.4s.compact");
    expect(effective("16x3.4s.compact", 2)).toBe("16x2.compact"); // only full tiles stream
    expect(effective("8x4.4s.replicated", 1)).toBe("4s.replicated");
  });

  test("refuses with a sentence", () => {
    const problem = { dtype: "q4_0", n: 4096, k: 4096 };
    const refusal = (id: string, dtype: string) =>
      acceptsProblem(variantById(id)!, { ...problem, dtype }, { vectorRegisters: 16 });
    expect(refusal("16x8.compact", "q4_0")).toMatch(/73 vectors alive.*16 registers/);
    expect(refusal("8x4.replicated", "f32")).toMatch(/floats/);
    expect(refusal("16x2.4s.compact", "f32")).toMatch(/f32 weights are read as one stream/);
    expect(refusal("16x3.4s.compact", "q4_0")).toBe(true);
    expect(refusal("4s.compact.serial", "q4_0")).toMatch(/4096 rows are enough to split/);
    expect(refusal("8x4.compact", "q4_0")).toBe(true);
    expect(refusal("8x4.words", "q4_0")).toMatch(/q4_0 weights are not multiplied as words/);
  });
});

// Matmuls of the arm64 targets on any machine: the CPU backend with interpreted kernels. Every variant gives the same
// bits for any number of tokens, and the reference's results up to the rounding of activations.

import { describe, expect, test } from "vitest";
import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { sampleBlocks } from "../../src/dtypes/sample-blocks.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { lowerToArm64 } from "../../src/kernels/lower/arm64.ts";
import { defaultVariant, variantById } from "../../src/kernels/matmul-variants.ts";
import { nativeTargets } from "../../src/kernels/target.ts";
import { floats, matmulBatch, matmulGraph } from "../../src/tune/matmul-graph.ts";
import { interpretedNative } from "../support/interpreted-native.ts";

// Two full tiles of pairs and one that is not; a single token that is left over.
const tokenCounts = [3, 9, 11];
const maxTokens = 11;
const limits = { maxTokens, maxOutputs: maxTokens };
/** row panels, of which the last is not full. */
const rows = 24;

async function prepared(backend: Backend, type: string, cols: number): Promise<Backend> {
  const dtype = dtypeByName(type)!;
  const graph = matmulGraph(dtype, rows, cols);
  await backend.prepare(makePlan(graph, limits), evenCapacity(1, floats));
  for (const weight of graph.weights) {
    const bytes = sampleBlocks(weight.dtype, 256 * 37);
    await backend.upload(weight, async (target, from) => {
      for (let i = 0; i < target.length; i++) target[i] = bytes[(from + i) % bytes.length]!;
    });
  }
  return backend;
}

async function results(backend: Backend, tokens: number): Promise<Float32Array> {
  await backend.run(matmulBatch(tokens, limits));
  const all = new Float32Array(tokens * rows);
  for (let row = 0; row < tokens; row++) {
    await backend.read("logits", row, all.subarray(row * rows, (row + 1) * rows));
  }
  return all;
}

describe.each(["arm64-i8mm", "arm64-dotprod"] as const)("%s", (name) => {
  const target = nativeTargets[name];
  const lower = { name, i8mm: target.i8mm === true };

  test.each(target.i8mm ? ["q4_0", "q5_1", "q4_k"] : ["q4_0"])("%s", async (type) => {
    const cols = dtypeByName(type)!.blockElems === 256 ? 256 : 96;
    const variants = [
      defaultVariant(type, maxTokens, target),
      variantById("2s.compact", target)!,
      variantById("8x4.compact", target)!,
      variantById("8x4.unpacked.compact", target)!,
    ];
    const called = new Set<string>();
    const backend = new CpuBackend({
      level: 3,
      threads: 1,
      startThread: undefined,
      native: interpretedNative(
        target,
        (kernel) => lowerToArm64(kernel, lower),
        (kernel) => {
          called.add(kernel.name);
        },
      ),
      choose: () => ({ variants, byTokens: new Array<number>(maxTokens + 1).fill(0), notes: [] }),
    });
    await prepared(backend, type, cols);
    expect(backend.kernels).toBe(name);
    expect(backend.batchTokens).toBe(128);
    const reference = await prepared(new ReferenceBackend(), type, cols);
    for (const tokens of tokenCounts) {
      const expected = await results(reference, tokens);
      const most = expected.reduce((size, value) => Math.max(size, Math.abs(value)), 0);
      backend.tuning.setVariant(0);
      const first = await results(backend, tokens);
      first.forEach((value, i) => {
        expect(Math.abs(value - expected[i]!) / most).toBeLessThan(1e-5);
      });
      for (let index = 1; index < variants.length; index++) {
        backend.tuning.setVariant(index);
        expect(await results(backend, tokens), variants[index]!.id).toEqual(first);
      }
    }
    // Three tokens, and tiles of four.
    const inPairs = [3, 4].map((tokens) => called.has(`matmul.${type}.16x${tokens}.i8mm`));
    expect(inPairs).toEqual(target.i8mm ? [true, true] : [false, false]);
    for (const kernel of [`unpack.${type}`, `matmul.${type}.8x4.unpacked`]) {
      expect(called.has(kernel), kernel).toBe(true);
    }
    backend.dispose();
  });
});

// The tiny models on the GPU against llama.cpp's logits. (test/conformance/webgpu.test.ts holds the GPU against the reference.)

import { expect, test } from "vitest";
import { describeGpu, gpuBackend } from "../support/gpu.ts";
import { readTinyGolden, tinyLogits } from "./tiny-golden.ts";
import { floatModels, quantizedModels, type TinySpec, tinyGguf } from "./tiny-models.ts";

/** How far a logit may be away, by weight type: activations are rounded beside all but F32, and a last bit may matter. */
const tolerances: Readonly<Record<string, number>> = { f32: 1e-3, f16: 2e-2, bf16: 5e-2 };

/** Of the tiny models those that differ in what the GPU computes: heads, biases, ropes, types. */
const pickedFloats = [
  "llama-bias",
  "llama-long-heads",
  "llama-rope-freqs",
  "llama-f16",
  "qwen3-bf16",
];
const pickedBlocks = ["llama-q8_0", "llama-q4_k", "llama-iq2_xxs"];
const pick = (models: readonly TinySpec[], names: readonly string[]) => {
  const picked = models.filter(({ name }) => names.includes(name));
  if (picked.length !== names.length) throw new Error("a tiny model has another name now");
  return picked;
};

describeGpu("webgpu: llama.cpp's logits of tiny models", () => {
  const ofGpu = async (model: TinySpec, greedy: number) =>
    await tinyLogits(await tinyGguf(model), greedy, await gpuBackend());

  test.each(pick(floatModels, pickedFloats))("$name", async (model) => {
    const golden = readTinyGolden(model.name);
    const got = await ofGpu(model, 4);
    for (const { position, top } of golden.top) {
      const logits = new Map(got.positions[position]!.top);
      for (const [id, logit] of top) {
        expect(Math.abs(logits.get(id)! - logit)).toBeLessThan(tolerances[model.weightType]!);
      }
    }
    expect(got.greedy).toEqual(golden.greedy.slice(0, 4));
  });

  test.each(pick(quantizedModels, pickedBlocks))(
    "$name, up to the rounding of activations",
    async (model) => {
      const golden = readTinyGolden(model.name);
      const got = await ofGpu(model, 0);
      const off = golden.norms.map((norm, i) => Math.abs(got.positions[i]!.norm / norm - 1));
      expect(Math.max(...off)).toBeLessThan(0.01);
      expect(off.toSorted((a, b) => a - b)[off.length >> 1]).toBeLessThan(1e-5);
      const clear = golden.top.filter(({ top }) => top[0]![1] - top[1]![1] > 0.5);
      expect(clear.length).toBeGreaterThan(0);
      for (const { position, top } of clear) {
        expect(got.positions[position]!.top[0]![0]).toBe(top[0]![0]);
      }
    },
  );
});

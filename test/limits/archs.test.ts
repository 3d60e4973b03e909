// Parameters and state of models that a shape does not describe (experts, windows, a scan), against numbers that were
// counted by hand from the shapes of their tensors and their keys.

import { expect, test } from "vitest";
import { limits, untunedTypes } from "../../src/index.ts";
import { describeShared, sharedPath } from "../support/shared.ts";

describeShared("limits", "archs/qwen3moe.gguf", () => {
  const report = async (name: string) =>
    await limits(sharedPath(`archs/${name}.gguf`), { device: "rtx4090", context: 200 });

  test("of experts, those that a token uses are read and active", async () => {
    const { parameters, memory } = await report("qwen3moe");
    const attention = 2 * 96 * 64 + 2 * 48 * 64;
    const expert = 3 * 16 * 64;
    const router = 8 * 64;
    expect(parameters.total).toBe(2 * 512 * 64 + 2 * (attention + router + 8 * expert));
    expect(parameters.active).toBe(512 * 64 + 2 * (attention + router + 2 * expert));
    const norms = 2 * (64 + 64 + 24 + 24) + 64;
    expect(memory.weightBytes).toBe(4 * (parameters.active + norms));
    expect(memory.storedBytes).toBe(4 * (parameters.total + norms));
  });

  test("other weights or another way to count need a plain transformer", async () => {
    const model = sharedPath("archs/qwen3moe.gguf");
    await expect(limits(model, { device: "rtx4090", weights: 4 })).rejects.toThrow(
      /is no plain transformer.*Drop "weights"/,
    );
  });

  test("layers with a window, and a scan, keep what they need", async () => {
    // 6 of 7 layers have the window, and 2 x 48 values of 2 bytes a token.
    const gemma = await report("gemma3");
    expect(gemma.model.state.kv.map(({ bytesPerToken }) => bytesPerToken)).toEqual([1152, 192]);
    // A scan's state, 128 x 16, and 3 inputs of a convolution of 192 channels, for 2 layers in 4 slots.
    const mamba = await report("mamba2");
    expect(mamba.model.state).toEqual({
      kv: [],
      recurrentBytes: 4 * 2 * 4 * (128 * 16 + 3 * 192),
    });
  });

  test("tuning asks for the types that a model is held in", async () => {
    const model = sharedPath("archs/qwen3moe.gguf");
    expect(await untunedTypes(model, { weights: "f16" })).toEqual(["f16"]);
    expect(await untunedTypes(model)).toEqual(["f32"]);
  });
});

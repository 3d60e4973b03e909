// A processor and a GPU that take turns: state goes there and back unharmed, and the text is the processor's.
// Held against: the bytes that were written, and the text of the processor alone.

import { expect, test } from "vitest";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { SwitchBackend } from "../../src/backends/switch/switch.ts";
import { kvTypes, open } from "../../src/index.ts";
import { someOf } from "../support/exhaustive.ts";
import { describeGpu, gpuBackend } from "../support/gpu.ts";
import { greedyTokens, tinyEngine, tinyPrompt } from "../support/tiny-engine.ts";
import { expectRoundTrip } from "./round-trip.ts";

const cpu = () => new CpuBackend({ level: 3, threads: 1, startThread: undefined });

const all = [...kvTypes, "q8_0/q4_0", "q5_1/f16"];
const types = someOf("types of a cache", all, ["f16", "q8_0", "q5_1/f16"]);

describeGpu("cpu|webgpu", () => {
  test.each(types)("what is written to the GPU is read again: %s", async (type) => {
    await expectRoundTrip(await gpuBackend(), type);
  });

  test.each([
    { prompt: 1, generation: 0 },
    { prompt: 0, generation: 1 },
  ] as const)("prompts on side $prompt, tokens on side $generation", async (choice) => {
    const prompts = [tinyPrompt(1, 70), tinyPrompt(2, 5)];
    const alone = await tinyEngine({ backend: cpu(), kvType: "f16" });
    const expected: number[][] = [];
    for (const tokens of prompts) expected.push(await greedyTokens(alone, tokens, 6));
    alone.dispose();
    const backend = new SwitchBackend({ host: cpu(), device: await gpuBackend(), choice });
    const engine = await tinyEngine({ backend, kvType: "f16", parallel: 2, cacheTokens: 1024 });
    const texts = await Promise.all(prompts.map((tokens) => greedyTokens(engine, tokens, 6)));
    expect(texts).toEqual(expected);
    // A second turn: what was generated goes back.
    const [first] = prompts;
    expect(await greedyTokens(engine, [...first!, ...expected[0]!, 4], 2)).toHaveLength(2);
    engine.dispose();
  });

  test("gpuFor of open(): the model says where each phase is", async () => {
    await using model = await open("stories15m", { gpuFor: "prompt", contextSize: 64 });
    const { tokenIds } = await model.generate("Once upon a", { temperature: 0, maxTokens: 2 })
      .result;
    expect(tokenIds).toHaveLength(2);
    expect(model.info.backend.name).toBe("cpu|webgpu");
    expect(model.info.backend.placement.map(({ phase }) => phase)).toEqual([
      "generation",
      "prompt",
    ]);
  });
});

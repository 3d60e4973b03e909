// Experts on the processor, the rest of their layers on a GPU: every value as the reference has it, with fused ops, and the
// text of batches as alone.

import { expect, test } from "vitest";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { readOverrides } from "../../src/backends/split/overrides.ts";
import { SplitBackend } from "../../src/backends/split/split.ts";
import { expectSameValues } from "../conformance/same-values.ts";
import { describeGpu, gpuBackend } from "../support/gpu.ts";
import { greedyTokens, tinyEngine, tinyPrompt } from "../support/tiny-engine.ts";

async function split(overrideTensors: readonly string[]): Promise<SplitBackend> {
  const host = new CpuBackend({ level: 3, threads: 1, startThread: undefined });
  const overrides = readOverrides({ overrideTensors });
  return new SplitBackend({ host, device: await gpuBackend(), layers: "all", overrides });
}

describeGpu("experts on the processor", () => {
  const patterns = ["_exps=cpu", "ffn_gate_inp=cpu", "attn_v=cpu", "attn_output=cpu", "norm=cpu"];
  test.each(patterns)("%s: every value", async (pattern) => {
    const batches = [
      [3, 2],
      [1, 1],
    ] as const;
    await expectSameValues(await split([pattern]), { architecture: "qwen3moe" }, 1e-4, batches);
  });

  test("texts as the processor's, with fused ops, alone and in batches", async () => {
    const options = { architecture: "qwen3moe", weightType: "q8_0", cacheTokens: 1024 };
    const prompts = [tinyPrompt(1, 3), tinyPrompt(9, 20)];
    const whole = await tinyEngine(options);
    const expected: number[][] = [];
    for (const tokens of prompts) expected.push(await greedyTokens(whole, tokens, 4));
    whole.dispose();
    for (const pattern of ["_exps=cpu", "attn_v=cpu"]) {
      const engine = await tinyEngine({ ...options, backend: await split([pattern]) });
      const alone: number[][] = [];
      for (const tokens of prompts) alone.push(await greedyTokens(engine, tokens, 4));
      expect(alone).toEqual(expected);
      expect(await Promise.all(prompts.map((tokens) => greedyTokens(engine, tokens, 4)))).toEqual(
        expected,
      );
      engine.dispose();
    }
  });
});

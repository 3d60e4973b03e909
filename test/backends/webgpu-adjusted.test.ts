// Penalties and biases on a GPU: texts are those of whole rows of logits, of which the GPU gives only the best and those of adjusted tokens,
// with and without batches submitted ahead; and the GPU's own draws, for which it adjusts logits by itself, are almost always those of the sampler.

import { expect, test, vi } from "vitest";
import type { GenerateOptions } from "../../src/api/api.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import type { Engine } from "../../src/engine/engine.ts";
import { generate, type RunControl } from "../../src/engine/generator.ts";
import { describeGpu, openGpu } from "../support/gpu.ts";
import { tinyEngine } from "../support/tiny-engine.ts";

const greedy = { temperature: 0 };
const drawn = { temperature: 0.9, topK: 40, topP: 0.9, minP: 0.02 };
const prompt = [5, 9, 11];

interface Asked {
  readonly prompt: readonly number[];
  readonly options: Omit<GenerateOptions, "signal">;
}

/** What is asked for at the same time, and how many tokens at least come from batches submitted ahead. */
const cases: Readonly<Record<string, { asked: readonly Asked[]; flying: number }>> = {
  "a repeat penalty, greedy": {
    asked: [{ prompt, options: { ...greedy, repeatPenalty: 1.3, maxTokens: 80 } }],
    flying: 60,
  },
  "all penalties in a short window, and biases": {
    asked: [
      {
        prompt,
        options: {
          ...{ ...drawn, seed: 3, repeatPenalty: 1.2, repeatLastN: 6, frequencyPenalty: 0.4 },
          ...{ presencePenalty: 0.3, logitBias: { 3: 4, 5: -3, 9: Number.NEGATIVE_INFINITY } },
          maxTokens: 50,
        },
      },
    ],
    flying: 30,
  },
  "penalties that raise logits, in a window of two": {
    asked: [
      {
        prompt,
        options: {
          ...{ ...drawn, seed: 4, repeatPenalty: 0.7, presencePenalty: -2, repeatLastN: 2 },
          maxTokens: 40,
        },
      },
    ],
    flying: 25,
  },
  "tokens come often: each occurrence counts": {
    asked: [
      {
        prompt,
        options: { ...greedy, frequencyPenalty: 0.3, logitBias: { 7: 9, 8: 8 }, maxTokens: 50 },
      },
    ],
    flying: 35,
  },
  "more tokens with penalties than are listed, after some": {
    asked: [
      {
        prompt: Array.from({ length: 225 }, (_, i) => i + 3),
        options: { ...drawn, seed: 5, presencePenalty: 3, repeatLastN: -1, maxTokens: 24 },
      },
    ],
    flying: 5,
  },
  "users with and without penalties": {
    asked: [
      { prompt, options: { ...greedy, maxTokens: 30 } },
      { prompt: [6], options: { ...drawn, seed: 6, repeatPenalty: 1.3, maxTokens: 34 } },
      { prompt: [7, 8], options: { ...greedy, presencePenalty: 0.6, maxTokens: 30 } },
    ],
    flying: 15,
  },
  "DRY, which does not fly": {
    asked: [
      {
        prompt,
        options: { ...drawn, seed: 7, dryMultiplier: 2, dryAllowedLength: 1, maxTokens: 20 },
      },
    ],
    flying: 0,
  },
  "with drafts": {
    asked: [
      {
        prompt: [4, 5, 6, 4, 5, 6, 4, 5],
        options: { ...greedy, presencePenalty: -1, maxTokens: 30, speculate: true },
      },
    ],
    flying: 0,
  },
};

async function textsOf(engine: Engine, asked: readonly Asked[], more: object): Promise<number[][]> {
  const control: RunControl = {
    aborted: false,
    yieldThread: () => new Promise<void>((resolve) => setImmediate(resolve)),
    now: () => 0,
  };
  const made = asked.map(({ prompt: tokens, options }) => {
    const request = { tokens, options: { ignoreEos: true, ...options, ...more } };
    return generate(engine, request, control, () => {});
  });
  return (await Promise.all(made)).map(({ tokenIds }) => tokenIds);
}

describeGpu("adjusted tokens", () => {
  // With two ahead: below.
  test.each([0, 4])("texts are those of whole rows, with %i batches ahead", async (ahead) => {
    const backend = new WebGpuBackend(await openGpu(), { ahead });
    const engine = await tinyEngine({ backend, vocab: 700, parallel: 4, contextSize: 320 });
    try {
      for (const [title, { asked, flying }] of Object.entries(cases)) {
        // With log-probabilities all logits are read.
        const whole = await textsOf(engine, asked, { logprobs: 0 });
        const before = engine.status().lookahead!;
        expect(await textsOf(engine, asked, {}), title).toEqual(whole);
        const after = engine.status().lookahead!;
        const submitted = after.submitted - before.submitted;
        const dropped = after.dropped - before.dropped;
        if (ahead === 0) expect(submitted).toBe(0);
        else {
          expect(submitted - dropped, title).toBeGreaterThanOrEqual(flying);
          expect(dropped, title).toBeLessThan(12);
        }
      }
    } finally {
      engine.dispose();
    }
  });

  test("end tokens that ignoreEos bans, also of tokens that are drawn ahead", async () => {
    const backend = new WebGpuBackend(await openGpu(), { ahead: 2 });
    const engine = await tinyEngine({ backend, vocab: 700, parallel: 4, contextSize: 320 });
    try {
      const asked = [
        { prompt, options: { ...greedy, maxTokens: 30 } },
        { prompt, options: { ...drawn, seed: 4, maxTokens: 30 } },
      ];
      const ends = new Set((await textsOf(engine, asked, {})).flatMap((ids) => ids.slice(0, 3)));
      using _ = vi.spyOn(engine.tokenizer, "endTokens", "get").mockReturnValue(ends);
      const whole = await textsOf(engine, asked, { logprobs: 0 });
      const before = engine.status().lookahead!;
      const found = await textsOf(engine, asked, {});
      expect(found).toEqual(whole);
      for (const ids of found) {
        expect(ids).toHaveLength(30);
        expect(ids.filter((id) => ends.has(id))).toEqual([]);
      }
      expect(engine.status().lookahead!.submitted - before.submitted).toBeGreaterThan(15);
    } finally {
      engine.dispose();
    }
  });
});

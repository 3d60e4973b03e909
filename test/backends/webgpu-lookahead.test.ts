// Batches submitted ahead: texts are the same with and without them, whoever comes, leaves or stops, and however tokens are drawn; and the
// GPU's own draws are almost always those of the sampler.

import { expect, test } from "vitest";
import type { GenerateOptions } from "../../src/api/api.ts";
import { Lookahead } from "../../src/backends/webgpu/lookahead.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { generate, type RunControl } from "../../src/engine/generator.ts";
import { Batch } from "../../src/graph/batch.ts";
import { describeGpu, openGpu } from "../support/gpu.ts";
import { tinyEngine } from "../support/tiny-engine.ts";

const greedy = { temperature: 0 };
const sampled = { temperature: 0.9, seed: 3, topK: 40, topP: 0.9, minP: 0.02 };

/** A generation; `abortAfter` so many tokens it is aborted. */
interface Asked {
  readonly prompt: readonly number[];
  readonly options: Omit<GenerateOptions, "signal">;
  readonly abortAfter?: number;
}

/** What each test asks for, at the same time. */
const cases: Readonly<Record<string, readonly Asked[]>> = {
  "greedy, over several cache blocks": [
    { prompt: [5, 9, 11], options: { ...greedy, maxTokens: 70 } },
  ],
  "drawn with top-k, top-p and min-p": [
    { prompt: [5, 9, 11], options: { ...sampled, maxTokens: 70 } },
  ],
  "drawn with top-k alone, high temperature": [
    { prompt: [7], options: { temperature: 3, seed: 9, topK: 64, maxTokens: 40 } },
  ],
  "steps in another order, where the GPU guesses wrong": [
    {
      prompt: [5, 9, 11],
      options: {
        ...{ temperature: 2, seed: 5, topK: 60, topP: 0.7, minP: 0.4, maxTokens: 60 },
        samplers: ["top_k", "min_p", "top_p", "temperature"],
      },
    },
  ],
  "several users with answers of different lengths, one of whom is aborted": [
    { prompt: [5, 9, 11], options: { ...greedy, maxTokens: 40 } },
    { prompt: [6], options: { ...sampled, maxTokens: 25 } },
    { prompt: [1, 2, 3, 4, 5, 6, 7], options: { ...sampled, seed: 8, maxTokens: 33 } },
    { prompt: [8, 8], options: { ...greedy, maxTokens: 50 }, abortAfter: 12 },
  ],
  "one who needs all logits beside one who does not": [
    { prompt: [5, 9, 11], options: { ...greedy, maxTokens: 20 } },
    { prompt: [12], options: { ...sampled, logprobs: 1, maxTokens: 14 } },
  ],
  "with drafts": [
    { prompt: [4, 5, 6, 4, 5, 6, 4, 5], options: { ...greedy, maxTokens: 40, speculate: true } },
  ],
};

const gpuTexts = async (ahead: number) => {
  const backend = new WebGpuBackend(await openGpu(), { ahead });
  const engine = await tinyEngine({ backend, vocab: 700, parallel: 4, contextSize: 256 });
  try {
    const found: Record<string, unknown> = {};
    const counts: Record<string, { submitted: number; dropped: number }> = {};
    for (const [title, asked] of Object.entries(cases)) {
      found[title] = await Promise.all(
        asked.map(async ({ prompt, options, abortAfter = Infinity }) => {
          let seen = 0;
          const control: RunControl & { aborted: boolean } = {
            aborted: false,
            yieldThread: () => new Promise<void>((resolve) => setImmediate(resolve)),
            now: () => 0,
          };
          const request = { tokens: prompt, options: { ignoreEos: true, ...options } };
          const made = await generate(engine, request, control, () => {
            if (++seen === abortAfter) control.aborted = true;
          });
          // An abort takes effect at any later token.
          const ids = made.tokenIds.slice(0, Math.min(abortAfter, made.tokenIds.length));
          return { ids, reason: made.stopReason, text: abortAfter === Infinity ? made.text : "" };
        }),
      );
      counts[title] = engine.status().lookahead!;
    }
    return { found, counts };
  } finally {
    engine.dispose();
  }
};

describeGpu("batches submitted ahead", () => {
  test("do not change a text", async () => {
    const without = await gpuTexts(0);
    expect(without.counts["with drafts"]).toEqual({ submitted: 0, dropped: 0 });
    for (const ahead of [1, 2, 4]) {
      const { found, counts } = await gpuTexts(ahead);
      for (const title of Object.keys(cases)) {
        expect(found[title], `${title}, ${ahead} ahead`).toEqual(without.found[title]);
      }
      // Alone, only what was submitted ahead at a wrong guess is in vain: nearly none.
      const { submitted, dropped } = counts["greedy, over several cache blocks"]!;
      expect(submitted).toBeGreaterThan(50);
      expect(dropped).toBe(0);
      const drawn = counts["drawn with top-k, top-p and min-p"]!;
      expect(drawn.submitted - submitted).toBeGreaterThan(50);
      expect(drawn.dropped).toBeLessThan(12);
      const wrong = counts["steps in another order, where the GPU guesses wrong"]!;
      const before = counts["drawn with top-k alone, high temperature"]!;
      expect(wrong.dropped - before.dropped).toBeGreaterThan(0);
    }
  });
});

test("a batch that reads more of the best logits is not submitted ahead", () => {
  const batch = new Batch({ maxTokens: 1, maxOutputs: 1 });
  const sequence = { blocks: new Int32Array(4) };
  const draw = { temperature: 0, topK: 1, topP: 1, minP: 0, uniform: () => 0 };
  const fill = (token: number, position: number, best: number) => {
    batch.clear();
    const row = batch.add(token, position, sequence, true, true, false);
    batch.wantBest(row, best);
    batch.expect(row, draw, 9);
    return batch;
  };
  for (const best of [1, 40]) {
    const lookahead = new Lookahead(1, 2);
    const first = fill(5, 3, 1);
    lookahead.capacityFor(first);
    lookahead.begin(first);
    lookahead.add();
    lookahead.drew(() => 7);
    expect(lookahead.take(fill(7, 4, best), () => true)).toBe(best === 1);
  }
});

test("a batch is submitted ahead only with the same tokens of the same sequences", () => {
  const batch = new Batch({ maxTokens: 4, maxOutputs: 4 });
  const [a, b] = [{ blocks: new Int32Array(4) }, { blocks: new Int32Array(4) }];
  const draw = { temperature: 0, topK: 1, topP: 1, minP: 0, uniform: () => 0 };
  const fill = (tokens: readonly [token: number, position: number, of: typeof a][]) => {
    batch.clear();
    for (const [token, position, of] of tokens) {
      batch.expect(batch.add(token, position, of, true, true, false), draw, 9);
    }
    return batch;
  };
  const next: [number, number, typeof a][] = [
    [7, 4, a],
    [8, 10, b],
  ];
  const others: [number, number, typeof a][][] = [
    [next[1]!, next[0]!],
    [next[0]!],
    [next[0]!, [9, 10, b]],
    [next[0]!, [8, 11, b]],
    [[7, 4, a], next[1]!, [1, 0, { blocks: new Int32Array(4) }]],
  ];
  for (const tokens of [next, ...others]) {
    for (const hasBlocks of [true, false]) {
      const lookahead = new Lookahead(4, 2);
      const first = fill([
        [5, 3, a],
        [6, 9, b],
      ]);
      expect(lookahead.capacityFor(first)).toBe(1);
      expect(lookahead.begin(first)).toBe(lookahead.current);
      expect(lookahead.add()).not.toBe(lookahead.current);
      lookahead.drew((row) => [7, 8][row]!);
      const isSame = tokens === next && hasBlocks;
      expect(lookahead.take(fill(tokens), () => hasBlocks)).toBe(isSame);
      expect([lookahead.ahead, lookahead.submitted, lookahead.dropped]).toEqual([
        0,
        1,
        isSame ? 0 : 1,
      ]);
      // After some in vain, the next batch has none behind it.
      expect(lookahead.capacityFor(fill(next))).toBe(isSame ? 1 : 0);
    }
  }
});

// Real models on the GPU against what llama.cpp computed for the same files. Few and short: a software adapter, which is
// what most machines have for this, takes a second for a token of stories15M.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { type LogitsResult, type Model, open } from "../../src/index.ts";
import { describeGpu } from "../support/gpu.ts";
import { describeShared, sharedPath } from "../support/shared.ts";

interface GoldenCase extends LogitsResult {
  prompt: string;
}

function golden(name: string): GoldenCase[] {
  const text = readFileSync(sharedPath(`golden/${name}.json`), "utf8");
  return (JSON.parse(text) as { cases: GoldenCase[] }).cases;
}

async function withModel(path: string, use: (model: Model) => Promise<void>): Promise<void> {
  const model = await open(sharedPath(path), { backend: "webgpu", kvType: "f32" });
  try {
    await use(model);
  } finally {
    await model.dispose();
  }
}

describeShared("golden logits", "models/stories260K/stories260K-F32.gguf", () => {
  describeGpu("webgpu", () => {
    test("stories260K, F32: the same logits and the same text", async () => {
      await withModel("models/stories260K/stories260K-F32.gguf", async (model) => {
        for (const expected of golden("stories260K-F32").slice(0, 2)) {
          const got = await model.logits(expected.prompt, { greedy: 24 });
          expect(got.tokens).toEqual(expected.tokens);
          expected.positions.forEach(({ norm, top }, i) => {
            const position = got.positions[i]!;
            expect(position.top.map(([id]) => id)).toEqual(top.map(([id]) => id));
            top.forEach(([, logit], j) => {
              expect(Math.abs(position.top[j]![1] - logit)).toBeLessThan(1e-3);
            });
            expect(Math.abs(position.norm / norm - 1)).toBeLessThan(1e-4);
          });
          expect(got.greedy).toEqual(expected.greedy.slice(0, 24));
        }
      });
    });

    // As for the CPU's kernels (golden.test.ts): a last bit can send an activation to its other neighbour, and this model
    // makes percents of that.
    test.each(["Q8_0", "Q4_0"])("stories15M, %s: within 4 percent", async (type) => {
      await withModel(`models/stories15M/stories15M-${type}.gguf`, async (model) => {
        const expected = golden(`stories15M-${type}`)[0]!;
        const got = await model.logits(expected.prompt);
        expect(got.tokens).toEqual(expected.tokens);
        expected.positions.forEach(({ norm, top: [best, second] }, i) => {
          const position = got.positions[i]!;
          expect(Math.abs(position.norm / norm - 1), `norm at ${i}`).toBeLessThan(0.04);
          if (best![1] - second![1] > 0.5) expect(position.top[0]![0]).toBe(best![0]);
        });
      });
    });
  });
});

// The kernels that find the best logits and draw tokens: that Dawn's compiler takes their texts, on its null device, which computes
// nothing; their parts and their workgroup memory. What they compute: webgpu-best.test.ts, webgpu-lookahead.test.ts.

import { expect, test } from "vitest";
import { layOutBatch } from "../../src/backends/webgpu/batch-area.ts";
import { bestLogitsKernels, bestParts } from "../../src/backends/webgpu/wgsl/best-logits.ts";
import { bestOneKernels } from "../../src/backends/webgpu/wgsl/best-one.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import { nullGpu } from "../support/null-gpu.ts";

const limits = { maxTokens: 8, maxOutputs: 8 };

function kernelsOf(vocab: number, exchanges: boolean) {
  const g = new GraphBuilder();
  const table = { name: "table", shape: [4, vocab], dtype: dtypeByName("f32")! };
  const logits = g.select(g.embed(table, "embed"), "logits");
  const batch = layOutBatch(g.finish({ logits }), limits, 1);
  return {
    kernels: bestLogitsKernels(logits, batch, exchanges),
    one: bestOneKernels(logits, batch, exchanges),
    parts: bestParts(logits),
  };
}

test.each([
  [1, 1],
  [1024, 1],
  [1025, 2],
  [32_000, 32],
  [65_536, 64],
  [65_537, 33],
  [131_073, 33],
  [262_144, 64],
])("a row of %i has %i parts", (vocab, parts) => {
  const made = kernelsOf(vocab, false);
  expect(made.parts).toBe(parts);
  expect(made.kernels.map(({ grid }) => grid(3))).toEqual([
    [parts, 3, 1],
    [1, 3, 1],
  ]);
  expect(made.one.map(({ grid }) => grid(3))).toEqual([[parts, 3, 1]]);
});

test("a row of more than 262,144 has none", () => {
  expect(kernelsOf(262_145, false)).toEqual({ kernels: [], one: [], parts: 0 });
});

const device = await nullGpu();

if (typeof device === "string") test.skip(`texts [skipped: ${device}]`, () => {});
else {
  test.each([1, 50, 8491, 8492, 32_000, 100_002, 151_936, 262_144])(
    "texts of %i",
    async (vocab) => {
      for (const exchanges of [false, true]) {
        const { kernels, one } = kernelsOf(vocab, exchanges);
        for (const { name, code } of [...kernels, ...one]) {
          device.pushErrorScope("validation");
          // Every WebGPU device has 16 KiB of workgroup memory.
          expect(device.limits.maxComputeWorkgroupStorageSize).toBe(16_384);
          const module = device.createShaderModule({ code });
          device.createComputePipeline({ layout: "auto", compute: { module } });
          expect((await device.popErrorScope())?.message, name).toBeUndefined();
        }
      }
    },
  );
}

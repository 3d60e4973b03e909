// The batches that a model is prepared for (engine/memory.ts): larger where tokens share weights only through the experts that
// they have in common.

import { expect, test } from "vitest";
import { f32 } from "../../src/dtypes/f32.ts";
import { batchLimits } from "../../src/engine/memory.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import type { Graph } from "../../src/graph/graph.ts";

/** One layer of experts; none: one matrix. */
function graphOf(experts: number, used: number): Graph {
  const g = new GraphBuilder();
  const weight = (name: string, ...shape: number[]) => ({ name, shape, dtype: f32 });
  const x = g.embed(weight("table", 8, 32), "embed"); // [tokens, 32]
  if (experts === 0) {
    return g.finish({ hidden: g.select(g.matmul(x, weight("w", 32, 32), "y"), "hidden") });
  }
  const logits = g.matmul(x, weight("router", experts, 32), "logits"); // [tokens, experts]
  const routing = { used, gating: "softmax", normalise: true, scale: 1 } as const;
  const routes = g.route(logits, routing, "routes"); // [tokens, 2 * used]
  const y = g.matmulId(x, routes, weight("w", experts, 32, 32), "y"); // [tokens, used * 32]
  return g.finish({ hidden: g.select(g.combine(y, routes, "sum"), "hidden") });
}

test("a dense model has the backend's batches", () => {
  const dense = graphOf(0, 0);
  expect(batchLimits(dense, 512, {}).maxTokens).toBe(32);
  expect(batchLimits(dense, 512, { mostBatchTokens: 256 }).maxTokens).toBe(32);
  expect(batchLimits(dense, 512, { batchTokens: 128, mostBatchTokens: 256 }).maxTokens).toBe(128);
});

test("with experts, a batch has 16 tokens for each on average, as far as the backend allows", () => {
  const backend = { mostBatchTokens: 256 };
  expect(batchLimits(graphOf(32, 4), 512, backend).maxTokens).toBe(128);
  expect(batchLimits(graphOf(128, 8), 512, backend).maxTokens).toBe(256);
  expect(batchLimits(graphOf(256, 8), 512, backend).maxTokens).toBe(256);
  expect(batchLimits(graphOf(8, 2), 512, backend).maxTokens).toBe(64);
  expect(batchLimits(graphOf(5, 3), 512, backend).maxTokens).toBe(32);
});

test("a backend that does not ask for it keeps its batches", () => {
  expect(batchLimits(graphOf(128, 8), 512, {}).maxTokens).toBe(32);
  expect(batchLimits(graphOf(128, 8), 512, { batchTokens: 512 }).maxTokens).toBe(512);
});

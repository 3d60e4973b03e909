// Where tokens attend to those after them, limits and profiles count all pairs of a text: as many as attended.ts defines.
// Held against: pairs counted row by row.

import { describe, expect, test } from "vitest";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { attendedFrom, attendedTo } from "../../src/graph/attended.ts";
import { nodeCost } from "../../src/graph/cost.ts";
import type { NodeOf } from "../../src/graph/graph.ts";
import { type ModelCost, promptPairs, shapeCost } from "../../src/limits/model-cost.ts";
import { prefillWork } from "../../src/limits/prefill.ts";
import { noOps } from "../../src/limits/roofline.ts";

const pairsByRow = (tokens: number, window: number | undefined): number => {
  const attended = { window, causal: false, chunked: false };
  return Array.from({ length: tokens }).reduce<number>(
    (sum, _, at) => sum + attendedTo(attended, at, tokens) - attendedFrom(attended, at),
    0,
  );
};

const cost = (isBidirectional: boolean): ModelCost => ({
  ...{ weightBytes: 0, rowBytes: 0, storedBytes: 0, kvBytes: 0 },
  ...{ token: noOps, output: noOps, pair: { ...noOps, floatOps: 1 }, isBidirectional },
});

describe("pairs of a text", () => {
  test.each([1, 2, 3, 7, 8, 9, 64, 129])("%i tokens, with windows and without", (tokens) => {
    for (const window of [undefined, 1, 2, 4, 5, 8, 128]) {
      expect(promptPairs(cost(true), tokens, 0, window)).toBe(pairsByRow(tokens, window));
    }
  });

  test("a prompt's work has n x n pairs, and n x (n + 1) / 2 where attention is causal", () => {
    expect(prefillWork(cost(true), 100, "shared").floatOps).toBe(100 * 100);
    expect(prefillWork(cost(false), 100, "shared").floatOps).toBe((100 * 101) / 2);
    expect(shapeCost(shape, { weights: 8, kv: 16 }).isBidirectional).toBeUndefined();
  });
});

const shape = {
  ...{ vocabSize: 10, layers: 1, embed: 8, feedForward: 8, heads: 1, kvHeads: 1, headDim: 8 },
  ...{ qkvBias: false, headNorms: false, tied: true },
};

test("an op of attention in a profile: twice the pairs of a causal one, less one for each token", () => {
  const value = { id: 0, name: "", cols: 8, rows: "tokens" };
  const attention = {
    ...{ op: "attention", q: value, out: value, heads: 1, kvHeads: 1, headDim: 8, vHeadDim: 8 },
    causal: false,
  } as unknown as NodeOf<"attention">;
  const opsOf = (node: NodeOf<"attention">): number => {
    const size = { tokens: 9, outputs: 0, context: 5, kv: dtypeByName("f32")! };
    return nodeCost(node, size as Parameters<typeof nodeCost>[1]).floatOps;
  };
  expect(opsOf(attention) / opsOf({ ...attention, causal: true })).toBe(9 / 5);
  expect(opsOf({ ...attention, window: 4 }) / opsOf({ ...attention, causal: true })).toBe(1);
});

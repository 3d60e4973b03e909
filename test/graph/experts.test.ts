// Mixtures of experts as graphs: how a token is routed, what is refused while the graph is built, and what a batch costs.

import { describe, expect, test } from "vitest";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import { distinctExperts, nodeCost } from "../../src/graph/cost.ts";
import type { Graph, Routing, Weight } from "../../src/graph/graph.ts";
import { routeRow, routeScratchSize } from "../../src/graph/route.ts";
import { graphModelCost, weightBytesFor } from "../../src/limits/model-cost.ts";

const f32 = dtypeByName("f32")!;

function weight(name: string, shape: number[], type = "f32"): Weight {
  return { name, shape, dtype: dtypeByName(type)! };
}

const plain: Routing = { used: 2, gating: "softmax", normalise: false, scale: 1 };

function routed(logits: number[], routing: Partial<Routing> = {}, bias?: number[]): number[] {
  const whole = { ...plain, ...routing };
  const out = new Float32Array(2 * whole.used);
  const scratch = new Float32Array(routeScratchSize(logits.length));
  const biases = bias && Float32Array.from(bias);
  routeRow(whole, logits.length, Float32Array.from(logits), 0, biases, out, 0, scratch);
  return [...out];
}

/** e^0, e^1 and e^2 over their sum. */
const shares = [1, Math.E, Math.E ** 2].map((e) => e / (1 + Math.E + Math.E ** 2));

function expectNear(got: number[], want: number[]): void {
  expect(got.length).toBe(want.length);
  for (const [i, value] of want.entries()) expect(got[i]).toBeCloseTo(value, 6);
}

describe("route", () => {
  test("softmax: ids by score, then the scores", () => {
    expectNear(routed([0, 2, 1]), [1, 2, shares[2]!, shares[1]!]);
  });

  test("weights that add up to 1, and scaled", () => {
    const sum = shares[2]! + shares[1]!;
    const want = [1, 2, shares[2]! / sum, shares[1]! / sum];
    expectNear(routed([0, 2, 1], { normalise: true }), want);
    const scaled = [1, 2, (2.5 * shares[2]!) / sum, (2.5 * shares[1]!) / sum];
    expectNear(routed([0, 2, 1], { normalise: true, scale: 2.5 }), scaled);
  });

  test("softmax of the chosen is softmax of all, normalised", () => {
    expectNear(
      routed([0, 2, 1], { gating: "softmax_chosen" }),
      routed([0, 2, 1], { normalise: true }),
    );
  });

  test("sigmoid; a bias chooses and does not weigh", () => {
    const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));
    const biased = routed([0, 2, 1], { gating: "sigmoid" }, [1, 0, 0]);
    expectNear(biased, [0, 1, sigmoid(0), sigmoid(2)]);
  });

  test("none: the logits choose and weigh", () => {
    expectNear(routed([0, -2, 30], { gating: "none" }), [2, 0, 30, 0]);
  });

  test("all: every expert in its order, whatever the logits are", () => {
    expect(routed([3, Number.NaN, 1], { gating: "all", used: 3 })).toEqual([0, 1, 2, 1, 1, 1]);
  });

  describe("groups", () => {
    const groups = { count: 3, used: 2 };
    const grouped = (logits: number[], bias?: number[]) =>
      routed(logits, { gating: "none", used: 3, groups }, bias).slice(0, 3);

    test("a group counts by its two best experts; others are not chosen from", () => {
      // Sums 9, 8 and 12: the 8 of the second group is the largest logit but one.
      expect(grouped([4, 5, 0, 8, 6, 6])).toEqual([4, 5, 1]);
      expect(grouped([4, 5, 4.5, 4.5, 6, 6])).toEqual([4, 5, 1]);
    });

    test("a bias counts; of equal sums, the first group is chosen", () => {
      expect(grouped([4, 5, 0, 8, 6, 6], [0, 0, 9, 0, 0, 0])).toEqual([2, 3, 4]);
      expect(grouped([1, 2, 1, 2, 2, 1])).toEqual([1, 3, 0]);
    });

    test("NaN: a group of NaN comes last, and experts are distinct", () => {
      expect(grouped([Number.NaN, Number.NaN, 0, 1, 2, 3])).toEqual([5, 4, 3]);
      expect(new Set(grouped(new Array<number>(6).fill(Number.NaN))).size).toBe(3);
    });

    test("whose sizes do not fit are refused", () => {
      const g = new GraphBuilder();
      const x = g.embed(weight("table", [16, 32]), "embed");
      const logits = g.matmul(x, weight("router", [8, 32]), "logits");
      for (const bad of [
        { count: 3, used: 2 },
        { count: 8, used: 4 },
        { count: 4, used: 5 },
      ]) {
        expect(() => g.route(logits, { ...plain, groups: bad }, "routes")).toThrow(
          /groups do not fit/,
        );
      }
      const few = { ...plain, used: 3, groups: { count: 4, used: 1 } };
      expect(() => g.route(logits, few, "routes")).toThrow(/3 of 8 experts from 1 of 4 groups/);
    });
  });

  test("equal scores: the first experts", () => {
    expect(routed([1, 1, 1, 1]).slice(0, 2)).toEqual([0, 1]);
  });

  test("NaN and infinity: experts that exist, and no one twice", () => {
    for (const bad of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
      const [first, second] = routed([bad, bad, bad, 0], { used: 2 }) as [number, number];
      expect(first).not.toBe(second);
      for (const id of [first, second]) expect([0, 1, 2, 3]).toContain(id);
    }
  });
});

describe("what does not fit is refused while the graph is built", () => {
  const build = (change: { experts?: number[]; bias?: Weight; used?: number; choice?: Weight }) => {
    const g = new GraphBuilder();
    const x = g.embed(weight("table", [16, 32]), "embed");
    const logits = g.matmul(x, weight("router", [8, 32]), "logits");
    const routing = { ...plain, used: change.used ?? 2 };
    const routes = g.route(logits, routing, "routes", change.choice);
    const experts = weight("exps", change.experts ?? [8, 24, 32]);
    return g.matmulId(x, routes, experts, "up", change.bias);
  };

  test("what does", () => {
    expect(build({ bias: weight("bias", [8, 24]) }).cols).toBe(2 * 24);
  });

  test.each([0, 9, 1.5])("%d experts of a token", (used) => {
    expect(() => build({ used })).toThrow(/routes: .* of 8 experts are used, expected 1 to 8/);
  });

  test("a matrix where there should be one for each expert", () => {
    expect(() => build({ experts: [24, 32] })).toThrow(/exps has shape \[24,32\]/);
  });

  test("other inputs", () => {
    expect(() => build({ experts: [8, 24, 48] })).toThrow(/does not fit exps \[8, 24, 48\]/);
  });

  test("biases of other sizes, or in blocks", () => {
    for (const bias of [
      weight("b", [8, 23]),
      weight("b", [8 * 24]),
      weight("b", [8, 32], "q8_0"),
    ]) {
      expect(() => build({ bias })).toThrow(/b is .* expected floats \[8, 24\]/);
    }
    expect(() => build({ choice: weight("c", [7]) })).toThrow(/a bias of 7/);
  });

  test("a gate that is neither a row's nor of the same size", () => {
    const g = new GraphBuilder();
    const x = g.embed(weight("table", [16, 32]), "embed");
    const two = g.matmul(x, weight("two", [2, 32]), "two");
    expect(() => g.gate(two, x, "sigmoid", "gated")).toThrow(/a gate of \[tokens, 2\]/);
  });
});

describe("cost", () => {
  /** A quarter of the experts for each token. */
  function graph(): Graph {
    const g = new GraphBuilder();
    const x = g.embed(weight("table", [16, 32]), "embed");
    const logits = g.matmul(x, weight("router", [8, 32]), "logits");
    const routes = g.route(logits, plain, "routes");
    const up = g.matmulId(x, routes, weight("exps", [8, 32, 32], "q8_0"), "up");
    return g.finish({ hidden: g.select(g.combine(up, routes, "sum"), "hidden") });
  }
  const bytes = 8 * 32 * 34;
  const batchOf = (tokens: number) => ({ tokens, outputs: 1, context: 1, kv: f32 });

  test("a token reads its own experts, many tokens all of them", () => {
    expect(distinctExperts(8, 2, 1)).toBe(2);
    expect(distinctExperts(8, 2, 2)).toBe(3.5);
    expect(distinctExperts(8, 8, 1)).toBe(8);
    const node = graph().nodes.find(({ op }) => op === "matmul_id")!;
    expect(nodeCost(node, batchOf(1)).weightBytes).toBe(bytes / 4);
    expect(nodeCost(node, batchOf(1000)).weightBytes).toBeCloseTo(bytes, 3);
    expect(nodeCost(node, batchOf(3)).int8Ops).toBe(3 * 2 * 32 * 32 * 2);
  });

  test("limits count what one token reads, and what a prompt does", () => {
    const cost = graphModelCost(graph(), f32, 0);
    const router = 8 * 32 * 4;
    expect(cost.weightBytes).toBe(router + bytes / 4);
    expect(cost.rowBytes).toBe(32 * 4);
    expect(weightBytesFor(cost, 1)).toBe(cost.weightBytes);
    expect(weightBytesFor(cost, Number.POSITIVE_INFINITY)).toBe(router + bytes);
  });
});

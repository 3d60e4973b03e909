// Plans and costs: sharing buffers changes nothing but the memory, and FLOPs and bytes are what a count by hand gives.

import { describe, expect, test } from "vitest";
import { evenCapacity } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Batch } from "../../src/graph/batch.ts";
import { graphCost, nodeCost, weightBytes, weightElements } from "../../src/graph/cost.ts";
import { type Graph, kvGroups } from "../../src/graph/graph.ts";
import { makePlan, type Plan, planBytes } from "../../src/graph/plan.ts";
import { buildModel } from "../../src/models/build.ts";
import { allArchs } from "../../src/models/table.ts";
import { bytesOfWeight, tinyModel, tinyShape } from "../support/tiny-engine.ts";

const f32 = dtypeByName("f32")!;
const limits = { maxTokens: 4, maxOutputs: 4 };
const architectures = allArchs().flatMap((arch) => arch.names);

describe.each(architectures)("%s", (architecture) => {
  const model = tinyModel({ architecture });
  const { graph } = buildModel(model);

  test("values that share a slot do not overwrite each other", async () => {
    const shared = makePlan(graph, limits);
    const alone = planWithoutSharing(graph);
    expect(planBytes(shared)).toBeLessThan(planBytes(alone) / 2);
    expect(await finalOutput(shared)).toEqual(await finalOutput(alone));
  });

  test("a slot is large enough for every value in it", () => {
    const plan = makePlan(graph, limits);
    for (const node of graph.nodes) {
      if (!node.out) continue;
      const slot = plan.slotSizes[plan.slotOf[node.out.id]!]!;
      expect(slot).toBeGreaterThanOrEqual(node.out.cols * 4);
    }
  });

  test("names are unique", () => {
    const names = graph.nodes.map((node) => node.name);
    expect(new Set(names).size).toBe(names.length);
  });

  async function finalOutput(plan: Plan): Promise<number[]> {
    const backend = new ReferenceBackend();
    backend.prepare(plan, evenCapacity(1, f32, kvGroups(graph).length));
    for (const weight of graph.weights) {
      await backend.upload(weight, async (target) =>
        target.set(bytesOfWeight(weight, model.bytes).subarray(0, target.length)),
      );
    }
    const batch = new Batch(limits);
    const table = { blocks: Int32Array.of(0) };
    [5, 7, 9].forEach((token, position) => {
      batch.add(token, position, table, position === 2);
    });
    backend.run(batch);
    const name = graph.outputs.logits ? "logits" : "hidden"; // an encoder has no logits
    const output = new Float32Array(graph.outputs[name]!.cols);
    backend.read(name, 0, output);
    expect(output.every(Number.isFinite)).toBe(true);
    return [...output];
  }
});

describe("costs", () => {
  const { graph } = buildModel(tinyModel());
  const one = { tokens: 1, outputs: 1, context: 10, kv: f32 };

  test("one token reads every weight once, the embedding only in its row", () => {
    const { embed } = tinyShape;
    const all = graph.weights.reduce((sum, weight) => sum + weightBytes(weight), 0);
    // The tied table is read whole for the logits, and one more row of it as the input.
    expect(graphCost(graph, one).weightBytes).toBe(all + embed * 4);
  });

  test("a matmul has two operations for each weight and token, and one for a bias", () => {
    const batch = { ...one, tokens: 3, outputs: 3 };
    for (const node of graph.nodes) {
      if (node.op !== "matmul") continue;
      const biases = node.bias ? weightElements(node.bias) : 0;
      const ops = 3 * (2 * weightElements(node.weight) + biases);
      expect(nodeCost(node, batch)).toMatchObject({ floatOps: ops, int8Ops: 0 });
    }
  });

  test("products of quantized weights are of integers, those of half floats of these; biases of floats", () => {
    const batch = { ...one, tokens: 3, outputs: 3 };
    for (const node of graph.nodes) {
      if (node.op !== "matmul") continue;
      const cost = (type: string) => {
        const weight = { ...node.weight, dtype: dtypeByName(type)! };
        return nodeCost({ ...node, weight }, batch);
      };
      const products = 3 * 2 * weightElements(node.weight);
      const biases = node.bias ? 3 * weightElements(node.bias) : 0;
      for (const type of ["q4_0", "q4_k", "q8_0"]) {
        expect(cost(type)).toMatchObject({ floatOps: biases, int8Ops: products });
      }
      for (const type of ["f16", "bf16"]) {
        expect(cost(type)).toMatchObject({ floatOps: biases, halfOps: products, int8Ops: 0 });
      }
    }
  });

  test("the cache is read for every cached token and written for every new one", () => {
    const { layers, kvHeads } = tinyShape;
    const perToken = 2 * layers * kvHeads * 16 * 4;
    expect(graphCost(graph, one).kvBytes).toBe(perToken * 10 + perToken);
  });

  test("every op has a cost that is a number", () => {
    for (const node of graph.nodes) {
      const cost = nodeCost(node, one);
      for (const value of Object.values(cost)) expect(value).toBeGreaterThanOrEqual(0);
      expect(cost.weightBytes + cost.kvBytes + cost.valueBytes).toBeGreaterThan(0);
    }
  });
});

function planWithoutSharing(graph: Graph): Plan {
  const slotOf: number[] = [];
  const slotSizes: number[] = [];
  for (const node of graph.nodes) {
    if (node.out) slotOf[node.out.id] = slotSizes.push(node.out.cols * 4) - 1;
  }
  return { graph, limits, slotOf, slotSizes };
}

// Parameters counted from a graph: every tensor that is read counts once.

import { expect, test } from "vitest";
import { weightElements } from "../../src/graph/cost.ts";
import { idleElements } from "../../src/graph/idle-weights.ts";
import { graphParameters } from "../../src/limits/graph-parameters.ts";
import { buildModel } from "../../src/models/build.ts";
import { tinyModel } from "../support/tiny-engine.ts";

test.each(["mamba", "mamba2", "qwen35", "rwkv6"])("%s", (architecture) => {
  const model = tinyModel({ architecture });
  const counts = graphParameters(buildModel(model).graph);
  const all = [...model.tensors.values()].reduce((sum, tensor) => sum + weightElements(tensor), 0);
  expect(counts.total + counts.norms).toBe(all);
  expect(counts.active).toBe(counts.total); // tied, and no experts
  expect(counts.attention + counts.feedForward).toBe(counts.layers / 2);
});

test("of experts, those that a token uses are active", () => {
  const model = tinyModel({ architecture: "qwen35moe" });
  const counts = graphParameters(buildModel(model).graph);
  const experts = [...model.tensors.values()]
    .filter(({ name }) => name.endsWith("_exps.weight"))
    .reduce((sum, tensor) => sum + weightElements(tensor), 0);
  expect(counts.active).toBe(counts.total - experts / 2); // 2 of 4
  expect(idleElements(buildModel(model).graph)).toBe(experts / 2); // as inspect() says
});

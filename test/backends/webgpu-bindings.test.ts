// Storage buffers that shaders bind: every device allows 8, and all kernels of all architectures get by with them, but for the scans.
// Needs no GPU.

import { expect, test } from "vitest";
import { evenCapacity } from "../../src/backends/backend.ts";
import { layOut } from "../../src/backends/webgpu/buffers.ts";
import { lowerPlan } from "../../src/backends/webgpu/program.ts";
import { tuningFor } from "../../src/backends/webgpu/tuning.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { kvGroups } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { buildModel } from "../../src/models/build.ts";
import { allArchs } from "../../src/models/table.ts";
import { plainGpu as facts } from "../support/gpu-facts.ts";
import { tinyModel } from "../support/tiny-engine.ts";

test("no kernel binds more than 8 storage buffers, but for the scans", () => {
  const over = new Set<string>();
  for (const { names } of allArchs()) {
    const { graph } = buildModel(tinyModel({ architecture: names[0]! }));
    const room = evenCapacity(4, dtypeByName("f16")!, kvGroups(graph).length);
    const plan = makePlan(graph, { maxTokens: 8, maxOutputs: 8 });
    const layout = layOut(plan, { ...room, slots: 4 }, facts);
    for (const by of ["groups", "nodes"] as const) {
      for (const { nodes, kernels } of lowerPlan(facts, layout, tuningFor(facts), undefined, by)) {
        for (const { sources } of kernels) {
          if (sources.length <= facts.storageBuffers) continue;
          over.add(`${nodes.map(({ op }) => op)}: ${sources.length}`);
        }
      }
    }
  }
  expect([...over].sort()).toEqual(["delta_net: 9", "ssm_scan: 9", "wkv: 9"]);
});

// Aborted batches: every backend checks between ops, stops with an AbortedError, and computes the next batch
// correctly.

import { expect, test } from "vitest";
import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { AbortedError } from "../../src/base/errors.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Batch } from "../../src/graph/batch.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { buildModel } from "../../src/models/build.ts";
import { tinyModel, tinyShape } from "../support/tiny-engine.ts";

const backends: [name: string, make: () => Backend][] = [
  ["reference", () => new ReferenceBackend()],
  ["cpu", () => new CpuBackend({ level: 3, threads: 1, startThread: undefined })],
];

test.each(backends)("%s stops in the middle of a batch, and goes on after it", async (_, make) => {
  const model = tinyModel();
  const { graph } = buildModel(model);
  const limits = { maxTokens: 8, maxOutputs: 8 };
  const backend = make();
  await backend.prepare(makePlan(graph, limits), evenCapacity(1, dtypeByName("f32")!));
  for (const weight of graph.weights) {
    await backend.upload(weight, async (target, at) => {
      target.set(model.bytes.get(weight.name)!.subarray(at, at + target.length));
    });
  }
  const batch = new Batch(limits);
  const table = { blocks: Int32Array.of(0) };
  for (let position = 0; position < 8; position++) batch.add(position + 3, position, table, true);
  const logits = async () => {
    const target = new Float32Array(tinyShape.vocab);
    await backend.read("logits", 7, target);
    return [...target];
  };
  await backend.run(batch);
  const whole = await logits();

  const computed: string[] = [];
  let asked = 0;
  const giveUp = async () => {
    await backend.run(batch, {
      stop: () => ++asked > 3,
      ...(backend.name === "reference" && { tap: ({ name }) => computed.push(name) }),
    });
  };
  await expect(giveUp()).rejects.toThrow(AbortedError);
  expect(asked).toBeGreaterThan(3);
  expect(computed.length).toBeLessThan(5); // of some thirty ops

  await backend.run(batch);
  expect(await logits()).toEqual(whole);
  backend.dispose();
});

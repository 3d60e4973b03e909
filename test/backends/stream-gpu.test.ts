// Matrices that come from the host for each batch, a layer at a time: every value is the one that the GPU computes with all
// weights in its memory, bit by bit, for every type that has another form there, and for every kind of layer.

import { expect, test } from "vitest";
import { evenCapacity } from "../../src/backends/backend.ts";
import type { StreamSource } from "../../src/backends/webgpu/stream/stream-source.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { allDTypes } from "../../src/dtypes/table.ts";
import { Batch } from "../../src/graph/batch.ts";
import { kvGroups } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { type Batches, type CaseModel, runCase } from "../conformance/run-case.ts";
import { modelOf } from "../conformance/table.ts";
import { someOf } from "../support/exhaustive.ts";
import { describeGpu, gpuBackend, openGpu } from "../support/gpu.ts";
import { kvOf } from "../support/kv.ts";
import type { TinyOptions } from "../support/tiny-engine.ts";

const batches: Batches = [
  [1, 0],
  [40, 5],
  [3, 2],
];

/** What is read later than asked for, as from a disk. */
function slowly({ bytesOf }: CaseModel): StreamSource["read"] {
  let count = 0;
  return async (weight, target, at) => {
    if (count++ % 3 === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    target.set(bytesOf(weight).subarray(at, at + target.length));
  };
}

async function streamed(model: CaseModel, read = slowly(model)): Promise<WebGpuBackend> {
  return new WebGpuBackend(await openGpu(), {
    stream: { open: () => {}, check: () => {}, close: () => {}, read },
  });
}

async function expectSameBits(options: TinyOptions): Promise<void> {
  const model = modelOf(options);
  const whole = await gpuBackend();
  const expected = await runCase(whole, model, batches);
  whole.dispose();
  const backend = await streamed(model);
  const got = await runCase(backend, model, batches);
  backend.dispose();
  await backend.ended();
  expect(got.map(({ batch, name }) => `${batch} ${name}`)).toEqual(
    expected.map(({ batch, name }) => `${batch} ${name}`),
  );
  for (const [i, { batch, name, values }] of got.entries()) {
    expect(values, `batch ${batch}, ${name}`).toEqual(expected[i]!.values);
  }
}

/** Blocks of 256 need longer rows than tiny models have. */
const types = allDTypes()
  .filter(({ blockElems, quantize }) => blockElems <= 32 && quantize !== undefined)
  .map(({ name }) => name);

describeGpu("matrices that come from the host", () => {
  test.each(someOf("types", types, ["f32", "f16", "q4_0", "q5_1", "q8_0", "mxfp4"]))(
    "%s",
    async (weightType) => {
      await expectSameBits({ weightType, layers: 5 });
    },
  );

  const archs = [
    "llama",
    "gemma2",
    "qwen3moe",
    "mamba2",
    "jamba",
    "rwkv7",
    "gpt2",
    "bloom",
    "gemma3n",
  ];
  test.each(someOf("architectures", archs, ["gemma2", "qwen3moe", "jamba", "gpt2"]))(
    "%s",
    async (architecture) => {
      await expectSameBits({ architecture });
    },
  );

  test("a file that cannot be read ends the batch, and the next one is computed", async () => {
    const model = modelOf({ layers: 4 });
    let isBroken = false;
    const reads = slowly(model);
    const backend = await streamed(model, async (weight, target, at) => {
      if (isBroken && weight.name.startsWith("blk.2.")) throw new Error("it is gone");
      await reads(weight, target, at);
    });
    const { run, logits } = await oneBatch(backend, model);
    await run();
    const first = await logits();
    isBroken = true;
    await expect(run()).rejects.toThrow("it is gone");
    isBroken = false;
    await run();
    expect(await logits()).toEqual(first);
    let asked = 0;
    await expect(run(() => asked++ > 2)).rejects.toThrow("the batch was aborted");
    await run();
    expect(await logits()).toEqual(first);
    // Disposed of while a batch is computed: nothing is read into memory that is gone.
    const running = run();
    backend.dispose();
    await expect(running).rejects.toThrow();
    await backend.ended();
  });
});

async function oneBatch(backend: WebGpuBackend, { graph, bytesOf }: CaseModel) {
  const plan = makePlan(graph, { maxTokens: 64, maxOutputs: 1 });
  await backend.prepare(plan, evenCapacity(4, kvOf("f16"), kvGroups(graph).length));
  for (const weight of graph.weights) {
    await backend.upload(weight, async (target, at) => {
      target.set(bytesOf(weight).subarray(at, at + target.length));
    });
  }
  const batch = new Batch(plan.limits);
  const sequence = { blocks: Int32Array.of(2, 0, 1, 3) };
  for (let i = 0; i < 50; i++) batch.add((i * 7) % 48, i, sequence, i === 49);
  return {
    run: async (stop?: () => boolean) => await backend.run(batch, stop ? { stop } : {}),
    logits: async () => {
      const row = new Float32Array(graph.outputs.logits!.cols);
      await backend.read("logits", 0, row);
      return row;
    },
  };
}

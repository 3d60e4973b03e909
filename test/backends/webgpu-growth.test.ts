// A KV cache that grows on the GPU while batches run: nothing that was computed is lost, whatever happens in between.

import { expect, test } from "vitest";
import { evenCapacity } from "../../src/backends/backend.ts";
import type { GpuDevice } from "../../src/backends/webgpu/device.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { MemoryError } from "../../src/base/errors.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Batch } from "../../src/graph/batch.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { buildModel } from "../../src/models/build.ts";
import { describeGpu, openGpu } from "../support/gpu.ts";
import { tinyModel, tinyShape } from "../support/tiny-engine.ts";

const limits = { maxTokens: 8, maxOutputs: 8 };
const layers = 5;
const text = [3, 1, 4, 1, 5, 9, 2, 6];

/** With room for 4 blocks, of which 2 are held. */
async function loaded(): Promise<{ backend: WebGpuBackend; gpu: GpuDevice }> {
  const gpu = await openGpu();
  const backend = new WebGpuBackend(gpu);
  const model = tinyModel({ layers });
  const { graph } = buildModel(model);
  const room = evenCapacity(4, dtypeByName("f32")!);
  const groups = [{ blocks: 4, held: 2 }];
  await backend.prepare(makePlan(graph, limits), { ...room, groups });
  for (const weight of graph.weights) {
    await backend.upload(weight, async (target, at) => {
      target.set(model.bytes.get(weight.name)!.subarray(at, at + target.length));
    });
  }
  return { backend, gpu };
}

/** Computes one token after those before it, and returns an output of it. */
async function advance(
  backend: WebGpuBackend,
  position: number,
  output: "logits" | "hidden" = "logits",
): Promise<Float32Array> {
  const batch = new Batch(limits);
  batch.add(text[position]!, position, { blocks: Int32Array.of(1, 0) }, true);
  batch.wantsLogits = output === "logits";
  await backend.run(batch);
  const found = new Float32Array(output === "logits" ? tinyShape.vocab : tinyShape.embed);
  await backend.read(output, 0, found);
  return found;
}

async function inOneCache(output?: "hidden"): Promise<Float32Array[]> {
  const { backend } = await loaded();
  const found: Float32Array[] = [];
  for (let i = 0; i < text.length; i++) found.push(await advance(backend, i, output));
  backend.dispose();
  return found;
}

describeGpu("a KV cache that grows on the GPU", () => {
  test("keeps what batches write between two pieces of the larger one", async () => {
    const expected = await inOneCache();
    const { backend, gpu } = await loaded();
    const found = [await advance(backend, 0), await advance(backend, 1)];
    // Whether memory was refused is known for each piece when the test says so.
    const { device } = gpu;
    const popErrorScope = device.popErrorScope.bind(device);
    const gates: (() => void)[] = [];
    device.popErrorScope = async () => {
      const popped = popErrorScope();
      await new Promise<void>((resolve) => gates.push(resolve));
      return await popped;
    };
    let isGrown = false;
    const growing = backend.growKv([4]).then(() => {
      isGrown = true;
    });
    let pieces = 0;
    while (!isGrown) {
      if (gates.length === 0) await new Promise((resolve) => setTimeout(resolve));
      else {
        if (found.length < text.length - 1) found.push(await advance(backend, found.length));
        pieces++;
        gates.shift()!();
      }
    }
    await growing;
    expect(pieces).toBeGreaterThan(layers);
    while (found.length < text.length) found.push(await advance(backend, found.length));
    expect(found).toEqual(expected);
    backend.dispose();
  });

  test("stays as it was where a later piece is refused, and no piece is left", async () => {
    const expected = await inOneCache();
    const { backend, gpu } = await loaded();
    const found = [await advance(backend, 0)];
    const { device } = gpu;
    const createBuffer = device.createBuffer.bind(device);
    let [made, destroyed] = [0, 0];
    device.createBuffer = (descriptor) => {
      const isRefused = descriptor.label === `values ${layers - 1}`;
      const buffer = createBuffer({ ...descriptor, ...(isRefused && { size: 2 ** 50 }) });
      const destroy = buffer.destroy.bind(buffer);
      made++;
      buffer.destroy = () => {
        destroyed++;
        return destroy();
      };
      return buffer;
    };
    const before = backend.memory();
    await expect(backend.growKv([4])).rejects.toThrow(MemoryError);
    expect({ made, destroyed }).toEqual({ made: 2 * layers, destroyed: 2 * layers });
    expect(backend.memory()).toEqual(before);
    while (found.length < text.length) found.push(await advance(backend, found.length));
    expect(found).toEqual(expected);
    backend.dispose();
  });

  test("waits for the one before to be copied", async () => {
    const { backend, gpu } = await loaded();
    await advance(backend, 0);
    const { device } = gpu;
    // The GPU is done when the test says so.
    let finish = () => {};
    const { queue } = device;
    const done = queue.onSubmittedWorkDone.bind(queue);
    queue.onSubmittedWorkDone = async () => {
      await new Promise<void>((resolve) => {
        finish = resolve;
      });
      await done();
    };
    await backend.growKv([3]);
    const createBuffer = device.createBuffer.bind(device);
    let made = 0;
    device.createBuffer = (descriptor) => {
      made++;
      return createBuffer(descriptor);
    };
    const again = backend.growKv([4]);
    for (let i = 0; i < 20; i++) await new Promise((resolve) => setTimeout(resolve, 1));
    expect(made).toBe(0);
    finish();
    await again;
    expect(made).toBe(2 * layers + 1); // and what must be left
    backend.dispose();
  });

  test("is bound by the batches that read it, not before", async () => {
    const { backend, gpu } = await loaded();
    await advance(backend, 0);
    const { device } = gpu;
    const createBindGroup = device.createBindGroup.bind(device);
    let bound = 0;
    device.createBindGroup = (descriptor) => {
      bound++;
      return createBindGroup(descriptor);
    };
    await backend.growKv([4]);
    expect(bound).toBe(0);
    await advance(backend, 1);
    const first = bound;
    expect(first).toBeGreaterThanOrEqual(layers);
    await advance(backend, 2);
    expect(bound).toBe(first);
    backend.dispose();
  });

  test("is the one that hidden states are computed with", async () => {
    const expected = await inOneCache("hidden");
    const { backend } = await loaded();
    const found: Float32Array[] = [];
    for (let i = 0; i < text.length; i++) {
      if (i === 3 || i === 5) await backend.growKv([i === 3 ? 3 : 4]);
      found.push(await advance(backend, i, "hidden"));
    }
    expect(found).toEqual(expected);
    backend.dispose();
  });
});

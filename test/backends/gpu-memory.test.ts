// Memory of a GPU that refuses buffers, made up in this process: what is asked for and given back, what must be left for a loaded model, and
// what a device that was lost for want of memory is called. test/backends/webgpu-memory.test.ts has a driver that refuses.

import { expect, test } from "vitest";
import { evenCapacity } from "../../src/backends/backend.ts";
import { allocate, allocateCache, hasCapacity, layOut } from "../../src/backends/webgpu/buffers.ts";
import { GpuDevice } from "../../src/backends/webgpu/device.ts";
import { DeviceLostError, DeviceMemoryError, MemoryError } from "../../src/base/errors.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { buildModel } from "../../src/models/build.ts";
import { limitedGpu } from "../support/limited-device.ts";
import { tinyModel } from "../support/tiny-engine.ts";

const MIB = 2 ** 20;

async function opened(limit: number) {
  const gpu = limitedGpu(limit);
  const device = await GpuDevice.open(gpu.access);
  const { graph } = buildModel(tinyModel());
  const plan = makePlan(graph, { maxTokens: 8, maxOutputs: 8 });
  const layout = layOut(plan, evenCapacity(4, dtypeByName("f32")!), device.facts);
  return { gpu, device, layout };
}

test("beside its buffers a model needs room for the copies of writes", async () => {
  const { gpu, device, layout } = await opened(Infinity);
  await allocate(device, layout);
  const needed = gpu.held;
  // The model alone would fit, but the first write would lose the device.
  gpu.limit = needed + 7 * MIB;
  const tight = await opened(gpu.limit);
  await expect(allocate(tight.device, tight.layout)).rejects.toThrow(MemoryError);
  expect(await hasCapacity(tight.device, tight.layout)).toBe(false);
  const roomy = await opened(needed + 9 * MIB);
  await allocate(roomy.device, roomy.layout);
  expect(roomy.gpu.held).toBe(needed);
});

test("what was refused is given back, and the message has the sizes in the units of a small model", async () => {
  const { gpu, device, layout } = await opened(100_000);
  await expect(allocate(device, layout)).rejects.toThrow(
    /^the GPU "small" has too little memory for this model, which needs [\d.]+ KiB \(weights [\d.]+ KiB, KV cache [\d.]+ KiB, working memory [\d.]+ KiB\)/,
  );
  await device.renew();
  expect(gpu.held).toBe(0);
});

test("a cache grows only where as much is left afterwards", async () => {
  const { gpu, device, layout } = await opened(Infinity);
  await allocate(device, layout);
  const before = gpu.held;
  gpu.limit = before + 8 * MIB;
  await expect(allocateCache(device, layout, [64])).rejects.toThrow(MemoryError);
  gpu.limit = before + 16 * MIB;
  const { keys, values } = await allocateCache(device, layout, [64]);
  const grown = [...keys, ...values].reduce((sum, { size }) => sum + size, 0);
  expect(grown).toBeGreaterThan(0);
});

test("each trial has a new device, since one keeps memory that was freed", async () => {
  const { gpu, device, layout } = await opened(Infinity);
  expect(await hasCapacity(device, layout)).toBe(true);
  const kept = gpu.held;
  expect(kept).toBeGreaterThan(0);
  await device.renew();
  expect([gpu.held, gpu.devices]).toEqual([0, 2]);
  // The end of the old one says nothing of the new one.
  device.check();
});

test.each([
  [
    "vkAllocateMemory failed with VK_ERROR_OUT_OF_DEVICE_MEMORY\n    at Check (/home/runner/a.h:12)",
    DeviceMemoryError,
    'the GPU "small" ran out of memory (vkAllocateMemory failed with VK_ERROR_OUT_OF_DEVICE_MEMORY)',
  ],
  ["E_OUTOFMEMORY", DeviceMemoryError, 'the GPU "small" ran out of memory (E_OUTOFMEMORY)'],
  ["the driver was reset", DeviceLostError, 'the GPU "small" was lost (the driver was reset)'],
])("a loss because of %s", async (message, kind, text) => {
  const { gpu, device } = await opened(Infinity);
  gpu.lose(message);
  const error = await device.lost;
  expect(error.constructor).toBe(kind);
  expect(error.message).toContain(text);
  expect(() => device.check()).toThrow(kind);
});

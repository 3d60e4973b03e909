// The table of calls: counts, sums and variance against numbers that were computed by hand, and the calls of a GPU's API
// that are made up here, so that no GPU is needed.

import { expect, test } from "vitest";
import { profileText } from "../../apps/cli/profile.ts";
import { recordCalls } from "../../src/backends/webgpu/record-calls.ts";
import { CallTable } from "../../src/base/call-table.ts";
import type { ProfileReport } from "../../src/index.ts";
import { callTables } from "../../src/profile/calls.ts";

test("count, sum, average, extremes and variance, of loading and of what ran after it", () => {
  const table = new CallTable();
  table.add("malloc", 1, 100);
  table.startRun();
  for (const ms of [2, 4, 4, 4, 5, 5, 7, 9]) table.add("copy", ms, 1e6);
  table.add("free", 1);
  const { calls, copies } = callTables(table.records().map((call) => ({ ...call, by: "test" })));
  expect(copies).toEqual([]);
  expect(calls.map(({ name, when }) => `${when} ${name}`)).toEqual([
    "load malloc",
    "run copy",
    "run free",
  ]);
  expect(calls[1]).toMatchObject({
    count: 8,
    ms: 40,
    averageMs: 5,
    minMs: 2,
    maxMs: 9,
    varianceMs2: 4,
  });
  expect(calls[1]).toMatchObject({ bytes: 8e6, bytesPerSecond: 2e8 });
  expect(calls[2]).toMatchObject({ bytes: undefined, bytesPerSecond: undefined });
  table.reset();
  expect(table.records().map(({ name }) => name)).toEqual(["malloc"]);
});

/** A device of which only what is recorded exists. */
function fakeDevice() {
  const buffer = (descriptor: { size: number; usage: number; label?: string }) => ({
    label: "",
    ...descriptor,
    destroy: () => {},
    mapAsync: async () => {},
    getMappedRange: (_: number, size: number) => new ArrayBuffer(size),
    unmap: () => {},
  });
  const encoder = () => ({
    beginComputePass: () => ({ dispatchWorkgroups: () => {}, end: () => {} }),
    copyBufferToBuffer: () => {},
    resolveQuerySet: () => {},
    finish: () => ({}),
  });
  const nothing = () => ({});
  const later = async () => ({});
  return {
    createBuffer: buffer,
    createCommandEncoder: encoder,
    createBindGroup: nothing,
    createShaderModule: nothing,
    createComputePipelineAsync: later,
    createQuerySet: nothing,
    popErrorScope: later,
    queue: { submit: () => {}, writeBuffer: () => {}, onSubmittedWorkDone: later },
  } as unknown as GPUDevice;
}

test("the calls of WebGPU, and the bytes that they move", async () => {
  const device = fakeDevice();
  const table = new CallTable();
  recordCalls(device, table);
  const [storage, mapRead] = [0x80, 0x1];
  const weights = device.createBuffer({ size: 4096, usage: storage });
  const read = device.createBuffer({ size: 64, usage: mapRead });
  const own = device.createBuffer({ label: "profiler", size: 32, usage: mapRead });
  device.queue.writeBuffer(weights, 0, new Uint8Array(1000));
  table.startRun();
  device.queue.writeBuffer(weights, 0, new Float32Array(10), 2, 4); // 16 bytes
  device.queue.writeBuffer(weights, 0, new Float32Array(10), 2); // 32 bytes
  const commands = device.createCommandEncoder();
  commands.beginComputePass().dispatchWorkgroups(1);
  commands.copyBufferToBuffer(weights, 0, read, 0, 48);
  commands.copyBufferToBuffer(weights, 0, own, 0, 32);
  device.queue.submit([commands.finish()]);
  await Promise.all([read.mapAsync(1, 0, 48), own.mapAsync(1, 0, 32)]);
  expect(read.getMappedRange(0, 48).byteLength).toBe(48);
  read.unmap();
  own.unmap();
  const { calls, copies } = callTables(table.records().map((call) => ({ ...call, by: "webgpu" })));
  const counts = Object.fromEntries(
    calls.map(({ when, name, count, bytes = 0 }) => [`${when} ${name}`, [count, bytes]]),
  );
  expect(counts).toEqual({
    "load createBuffer": [3, 4096 + 64 + 32],
    "load writeBuffer": [1, 1000],
    "run writeBuffer": [2, 48],
    "run createCommandEncoder": [1, 0],
    "run beginComputePass": [1, 0],
    "run dispatchWorkgroups": [1, 0],
    "run copyBufferToBuffer": [1, 48],
    "run finish": [1, 0],
    "run submit": [1, 0],
    "run mapAsync": [1, 0],
    "run read mapped range": [1, 48],
  });
  const copied = copies.map(
    ({ when, direction, count, bytes }) => `${when} ${direction}: ${count}, ${bytes}`,
  );
  expect(new Set(copied)).toEqual(
    new Set([
      "load host to device: 1, 1000",
      "run device to device: 1, 48",
      "run device to host: 1, 48",
      "run host to device: 2, 48",
    ]),
  );
  const inside = copies.find(({ direction }) => direction === "device to device")!;
  expect(inside).toMatchObject({ ms: undefined, bytesPerSecond: undefined });
});

test("the text has the columns of a device's profiler", () => {
  const row = {
    by: "webgpu",
    name: "mapAsync",
    when: "run",
    count: 2,
    ms: 3,
    averageMs: 1.5,
    minMs: 1,
    maxMs: 2,
  } as const;
  const report: ProfileReport = {
    threads: 1,
    load: { ms: 0, startMs: 0, openMs: 0, prepareMs: 0, readMs: 0, packMs: 0 },
    phases: [],
    calls: [{ ...row, varianceMs2: 0.25, bytes: 4e6, bytesPerSecond: 2e9 }],
    copies: [
      {
        direction: "device to host",
        when: "run",
        count: 2,
        bytes: 4e6,
        ms: 2,
        bytesPerSecond: 2e9,
      },
    ],
    device: undefined,
    bottleneck: "",
  };
  const lines = profileText(report)
    .split("\n")
    .map((line) => line.trim().split(/\s{2,}/));
  expect(lines[0]).toEqual([
    "calls",
    "count",
    "ms",
    "avg us",
    "min us",
    "max us",
    "variance us2",
    "bytes",
    "GB/s",
  ]);
  expect(lines).toContainEqual([
    "webgpu",
    "mapAsync",
    "run",
    "2",
    "3.0",
    "1500.0",
    "1000.0",
    "2000.0",
    "250000.0",
    "4.0 MB",
    "2.0",
  ]);
  expect(lines).toContainEqual(["device to host", "run", "2", "4.0 MB", "2.0", "2.0"]);
});

// The conformance table on the GPU in guard mode: behind every buffer are NaNs, so that a shader that reads beyond its
// own computes them, and one that writes beyond it is found.

import { expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { describeGpu, gpuLacks, openGpu } from "../support/gpu.ts";
import { type GpuGuard, guardGpu } from "../support/gpu-guard.ts";
import { testTable } from "./test-table.ts";

/** The sum of eight floats from the second on, of eight; and ones behind the four that there are. */
const tooFar = `
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(1) fn main() {
  var sum = 0.0;
  for (var i = 0u; i < 8u; i++) { sum += x[i + 1u]; }
  out[0] = sum;
  for (var i = 0u; i < 4u; i++) { out[i + 1u] = 1.0; }
}`;

describeGpu("webgpu, guarded", () => {
  test("a shader that leaves its buffers is seen", async () => {
    const gpu = await openGpu();
    const { device } = gpu;
    const guard = guardGpu(device);
    const make = (label: string, size: number) =>
      device.createBuffer({ label, size, usage: 0x80 | 0x8 | 0x4 });
    const [x, out] = [make("x", 32), make("out", 16)];
    device.queue.writeBuffer(x, 0, new Float32Array(8).fill(1));
    const module = device.createShaderModule({ code: tooFar });
    const pipeline = device.createComputePipeline({ layout: "auto", compute: { module } });
    const bindings = device.createBindGroup({
      layout: pipeline.getBindGroupLayout(0),
      entries: [x, out].map((buffer, binding) => ({ binding, resource: { buffer } })),
    });
    expect(await guard.changed()).toEqual([]);
    const commands = device.createCommandEncoder();
    const pass = commands.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, bindings);
    pass.dispatchWorkgroups(1);
    pass.end();
    device.queue.submit([commands.finish()]);
    expect(await guard.changed()).toEqual(["out"]);
    const read = device.createBuffer({ size: 4, usage: 0x1 | 0x8 });
    const copy = device.createCommandEncoder();
    copy.copyBufferToBuffer(out, 0, read, 0, 4);
    device.queue.submit([copy.finish()]);
    await read.mapAsync(0x1);
    expect(new Float32Array(read.getMappedRange())[0]).toBeNaN();
    gpu.dispose();
  });
});

const guards = new WeakMap<Backend, GpuGuard>();
testTable(
  {
    target: "webgpu, guarded",
    create: async () => {
      const gpu = await openGpu();
      const guard = guardGpu(gpu.device);
      const backend = new WebGpuBackend(gpu);
      guards.set(backend, guard);
      return backend;
    },
    batches: 3,
    least: 2e-7,
    after: async (_, backend) => {
      const guard = guards.get(backend)!;
      expect(await guard.changed()).toEqual([]);
      expect(guard.watched).toBeGreaterThan(5);
    },
  },
  gpuLacks,
);

// What a GPU's memory gives: the bandwidth of reading a buffer that is larger than any cache, 16 bytes a lane and load, by
// the device's own clock where it has one.

import type { GpuDevice } from "../src/backends/webgpu/device.ts";
import { usage } from "../src/backends/webgpu/usage.ts";

const bytes = 2 ** 30;
const lanes = 256;
const groups = 4096;
const perLane = bytes / 16 / lanes / groups;

const code = `
@group(0) @binding(0) var<storage, read> data: array<vec4u>;
@group(0) @binding(1) var<storage, read_write> result: array<u32>;
@compute @workgroup_size(${lanes})
fn main(@builtin(global_invocation_id) id: vec3u) {
  var all = vec4u();
  for (var i = 0u; i < ${perLane}u; i += 4u) {
    let at = id.x + i * ${lanes * groups}u;
    let a = data[at];
    let b = data[at + ${lanes * groups}u];
    let c = data[at + ${2 * lanes * groups}u];
    let d = data[at + ${3 * lanes * groups}u];
    all = all ^ a ^ b ^ c ^ d;
  }
  if ((all.x ^ all.y ^ all.z ^ all.w) == 0x12345u) { result[id.x % 64u] = 1u; }
}`;

/** In GB/s: the best of some runs, each of several dispatches, by the host's clock. */
export async function readBandwidth(gpu: GpuDevice): Promise<number> {
  const { device } = gpu;
  const data = device.createBuffer({ size: bytes, usage: usage.storage | usage.copyTarget });
  const result = device.createBuffer({ size: 256, usage: usage.storage });
  const pipeline = await device.createComputePipelineAsync({
    layout: "auto",
    compute: { module: device.createShaderModule({ code }), entryPoint: "main" },
  });
  const bindings = device.createBindGroup({
    layout: pipeline.getBindGroupLayout(0),
    entries: [data, result].map((buffer, binding) => ({ binding, resource: { buffer } })),
  });
  const run = async (dispatches: number): Promise<number> => {
    const commands = device.createCommandEncoder();
    const pass = commands.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, bindings);
    for (let i = 0; i < dispatches; i++) pass.dispatchWorkgroups(groups);
    pass.end();
    const before = performance.now();
    device.queue.submit([commands.finish()]);
    await device.queue.onSubmittedWorkDone();
    return performance.now() - before;
  };
  await run(1);
  let best = 0;
  for (let i = 0; i < 5; i++) {
    // The difference of two lengths: what a submission costs is not bandwidth.
    const ms = (await run(20)) - (await run(4));
    best = Math.max(best, (16 * bytes) / ms / 1e6);
  }
  for (const buffer of [data, result]) buffer.destroy();
  return best;
}

// Tests whether the subgroups of a device are as wide as it says. One small kernel shuffles values over every distance at which the lanes of
// a subgroup exchange them (wgsl/subgroups.ts), and counts those that came from another lane than they should. It runs once, when a device is
// opened (device.ts). A driver that gives this kernel full subgroups and a larger kernel smaller ones is not found out.

import { DeviceLostError } from "../../base/errors.ts";
import { MAP_READ, usage } from "./usage.ts";
import { SUBGROUP } from "./wgsl/subgroups.ts";

/** Several workgroups, of the largest size that kernels have. */
const GROUPS = 4;
const LANES = 256;

/** Every lane shuffles a word, a float and a vector of floats over each distance. */
const KINDS = 3;

/** The part of a GpuDevice (device.ts, which imports this file) that the probe uses. */
interface ProbedDevice {
  readonly device: GPUDevice;
  wait<T>(work: Promise<T>): Promise<T>;
  /** The error of a rejected promise: the loss of the device, if it was lost. */
  explain(error: unknown): Promise<Error>;
}

const scopes = ["validation", "out-of-memory", "internal"] as const;

/**
 * true: all shuffles were right. A text: the wrong one, or why nothing was computed. Throws if the device was lost
 * meanwhile, which says nothing about its subgroups. `subgroup` is for tests, since software adapters have fewer lanes.
 */
export async function probeSubgroups(
  gpu: ProbedDevice,
  subgroup: number = SUBGROUP,
): Promise<true | string> {
  try {
    const masks = masksOf(subgroup);
    return verdict(await countsOf(gpu, probeText(masks), 1 + masks.length), masks, subgroup);
  } catch (thrown) {
    const error = await gpu.explain(thrown);
    if (error instanceof DeviceLostError) throw error;
    return `the kernel that checks their shuffles failed (${error.message})`;
  }
}

function masksOf(subgroup: number): number[] {
  const masks: number[] = [];
  for (let mask = 1; mask < subgroup; mask *= 2) masks.push(mask);
  return masks;
}

/** From the counts of the kernel: lanes that ran it, then wrong values for each mask. */
function verdict(counts: Uint32Array, masks: readonly number[], subgroup: number): true | string {
  const [ran, ...wrong] = counts;
  const lanes = GROUPS * LANES;
  // A kernel that did not run has counted nothing wrong, either.
  if (ran !== lanes) {
    return `the kernel that checks their shuffles counted ${ran} lanes instead of ${lanes}`;
  }
  const first = wrong.findIndex((count) => count > 0);
  if (first < 0) return true;
  return `the device says at least ${subgroup} lanes, but ${wrong[first]} of ${lanes * KINDS} values that lanes ${masks[first]} apart exchanged are wrong`;
}

/** Runs the kernel, and returns its counts. Errors of the device are thrown here, and are not kept as errors of later kernels. */
async function countsOf(gpu: ProbedDevice, code: string, words: number): Promise<Uint32Array> {
  const { device } = gpu;
  for (const scope of scopes) device.pushErrorScope(scope);
  const [ran] = await Promise.allSettled([runProbe(gpu, code, words)]);
  const errors = await gpu.wait(Promise.all(scopes.map(() => device.popErrorScope())));
  // The first of them names the error of a text; a pipeline only says that its shader has one.
  const error = errors.find((each) => each !== null);
  if (error) throw new Error(error.message);
  if (ran.status === "rejected") throw ran.reason;
  return ran.value;
}

async function runProbe(gpu: ProbedDevice, code: string, words: number): Promise<Uint32Array> {
  const { device } = gpu;
  const label = "subgroup probe";
  const made: GPUBuffer[] = [];
  const buffer = (size: number, bits: number): GPUBuffer => {
    const one = device.createBuffer({ label, size, usage: bits });
    made.push(one);
    return one;
  };
  try {
    // No compiler knows these words, so none can do without the shuffles. As floats they are exact.
    const distinct = Uint32Array.from({ length: GROUPS * LANES }, (_, i) => i * 4093 + 17);
    const given = buffer(distinct.byteLength, usage.storage | usage.copyTarget);
    const counts = buffer(words * 4, usage.storage | usage.copySource);
    const read = buffer(words * 4, usage.mapRead | usage.copyTarget);
    device.queue.writeBuffer(given, 0, distinct);
    const module = device.createShaderModule({ label, code });
    const compute = { module, entryPoint: "main" };
    const pipeline = await gpu.wait(
      device.createComputePipelineAsync({ label, layout: "auto", compute }),
    );
    const bindings = device.createBindGroup({
      layout: pipeline.getBindGroupLayout(0),
      entries: [given, counts].map((each, binding) => ({ binding, resource: { buffer: each } })),
    });
    const commands = device.createCommandEncoder();
    const pass = commands.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, bindings);
    pass.dispatchWorkgroups(GROUPS);
    pass.end();
    commands.copyBufferToBuffer(counts, 0, read, 0, words * 4);
    device.queue.submit([commands.finish()]);
    await gpu.wait(read.mapAsync(MAP_READ));
    return new Uint32Array(read.getMappedRange().slice(0));
  } finally {
    for (const each of made) each.destroy();
  }
}

/** `counts`: lanes that ran it, then wrong values for each mask. */
function probeText(masks: readonly number[]): string {
  const checks = masks.map(
    (mask, i) => `{
    let other = given[first + (lane ^ ${mask}u)];
    let isWord = subgroupShuffleXor(word, ${mask}u) == other;
    let isValue = subgroupShuffleXor(value, ${mask}u) == f32(other);
    let isVector = all(subgroupShuffleXor(values, ${mask}u) == vectorOf(other));
    atomicAdd(&counts[${i + 1}], select(1u, 0u, isWord) + select(1u, 0u, isValue) + select(1u, 0u, isVector));
  }`,
  );
  return `enable subgroups;
@group(0) @binding(0) var<storage, read> given: array<u32>;
@group(0) @binding(1) var<storage, read_write> counts: array<atomic<u32>, ${masks.length + 1}>;
fn vectorOf(word: u32) -> vec4f { return f32(word) * vec4f(1.0, -1.0, 2.0, 4.0); }
@compute @workgroup_size(${LANES})
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3u) {
  let first = group.x * ${LANES}u;
  let word = given[first + lane];
  let value = f32(word);
  let values = vectorOf(word);
  ${checks.join("\n  ")}
  atomicAdd(&counts[0], 1u);
}
`;
}

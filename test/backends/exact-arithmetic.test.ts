// The functions that exact kernels compute with (src/backends/webgpu/exact/arithmetic.ts), on numbers that are hard to round; and what
// a device is taken for that has no fma(), or rounds otherwise. Ops: exact-ops.test.ts; whole models: exact-matrix.test.ts.
// Held against: fusedMultiplyAdd() of src/kernels/ir/meanings.ts.

import { expect, test } from "vitest";
import type { GpuDevice } from "../../src/backends/webgpu/device.ts";
import { fusedText } from "../../src/backends/webgpu/exact/arithmetic.ts";
import { checkExactness } from "../../src/backends/webgpu/exact/check.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { fusedMultiplyAdd } from "../../src/kernels/ir/meanings.ts";
import { runCase } from "../conformance/run-case.ts";
import { modelOf } from "../conformance/table.ts";
import { describeGpu, openGpu } from "../support/gpu.ts";
import { Random } from "../support/random.ts";

const COUNT = 1 << 18;
const arithmetic = { fused: true, lanes: () => 4 };

/** A device whose compiler reads other code than it was given. */
async function changed(from: string | RegExp, to: string): Promise<GpuDevice> {
  const device = await openGpu();
  const create = device.device.createShaderModule.bind(device.device);
  device.device.createShaderModule = (descriptor) =>
    create({ ...descriptor, code: descriptor.code.replaceAll(from, to) });
  return device;
}

/** Three numbers at a time: of all exponents that a model has; sums that cancel; sums at and beside ties; few bits; small ones. */
function hardNumbers(): Float32Array<ArrayBuffer> {
  const random = new Random(44);
  const f = Math.fround;
  const bits = new Uint32Array(1);
  const asFloat = new Float32Array(bits.buffer);
  /** Of `digits` bits, and 2^least to 2^most. */
  const number = (least: number, most: number, digits = 24): number => {
    const whole = 2 ** (digits - 1) + random.below(2 ** (digits - 1));
    const sign = random.below(2) === 0 ? 1 : -1;
    return f(sign * whole * 2 ** (least + random.below(most - least) - digits + 1));
  };
  const beside = (value: number, ulps: number): number => {
    asFloat[0] = value;
    bits[0] = bits[0]! + ulps;
    return asFloat[0]!;
  };
  const kinds: readonly (() => readonly [number, number, number])[] = [
    () => [number(-20, 20), number(-20, 20), number(-40, 40)],
    () => {
      const [a, b] = [number(-10, 10), number(-10, 10)];
      return [a, b, beside(f(-a * b), random.below(9) - 4)];
    },
    // The product is half an ulp of c, or nearly so.
    () => {
      const c = number(0, 1);
      const a = 2 ** -(12 + random.below(3));
      return [beside(a, random.below(3) - 1), beside(2 ** -12, random.below(3) - 1), c];
    },
    () => [number(-4, 4, 12), number(-4, 4, 12), number(-30, 10, 1 + random.below(24))],
    () => [number(-20, 20, 13), number(-20, 20, 14), number(-44, 40, 1 + random.below(24))],
    // Their errors are subnormal, unless they are made larger; the results are not.
    () => [number(-70, -50), number(-50, -40), number(-110, -70)],
    // A factor whose lower half is subnormal.
    () => [number(-125, -100), number(40, 80), number(-90, -30)],
    () => [number(40, 80), number(-125, -100), number(-90, -30)],
    () => [number(-2, 2), number(-2, 2), 0],
    () => [0, number(-2, 2), number(-2, 2)],
  ];
  const numbers = new Float32Array(3 * COUNT);
  for (let i = 0; i < COUNT; i++) {
    kinds[i % kinds.length]!().forEach((value, which) => {
      numbers[which * COUNT + i] = value;
    });
  }
  return numbers;
}

const scalar = "result[i] = fused(data[i], data[N + i], data[2u * N + i]);";
const vectors = `if (i % 4u != 0u) { return; }
  let four = fused4(FOUR(0u), FOUR(N), FOUR(2u * N));
  for (var j = 0u; j < 4u; j++) { result[i + j] = four[j]; }`.replace(
  /FOUR\((.*?)\)/g,
  (_, at: string) => `vec4f(${[0, 1, 2, 3].map((j) => `data[${at} + i + ${j}u]`).join(", ")})`,
);

async function computed(
  { device }: GpuDevice,
  numbers: Float32Array<ArrayBuffer>,
  statement: string,
): Promise<Float32Array> {
  const bytes = COUNT * 4;
  const data = device.createBuffer({ size: 3 * bytes, usage: 0x80 | 0x8 });
  const zeros = device.createBuffer({ size: 16, usage: 0x80 });
  const result = device.createBuffer({ size: bytes, usage: 0x80 | 0x4 });
  const read = device.createBuffer({ size: bytes, usage: 0x1 | 0x8 });
  device.queue.writeBuffer(data, 0, numbers);
  const code = `
@group(0) @binding(0) var<storage, read> data: array<f32>;
@group(0) @binding(1) var<storage, read> zeros: array<u32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;
const N = ${COUNT}u;
${fusedText({ fused: true, deviceFuses: false }, "zeros[0]")}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let i = id.x;
  _ = zeros[0];
  ${statement}
}`;
  const module = device.createShaderModule({ code });
  const compute = { module, entryPoint: "main" };
  const pipeline = await device.createComputePipelineAsync({ layout: "auto", compute });
  const commands = device.createCommandEncoder();
  const pass = commands.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(
    0,
    device.createBindGroup({
      layout: pipeline.getBindGroupLayout(0),
      entries: [data, zeros, result].map((buffer, binding) => ({ binding, resource: { buffer } })),
    }),
  );
  pass.dispatchWorkgroups(COUNT / 64);
  pass.end();
  commands.copyBufferToBuffer(result, 0, read, 0, bytes);
  device.queue.submit([commands.finish()]);
  await read.mapAsync(0x1);
  return new Float32Array(read.getMappedRange().slice(0));
}

describeGpu("exact", () => {
  test.each([
    ["one by one", scalar],
    ["four by four", vectors],
  ])("a multiply-add of error-free transformations rounds once: %s", async (_, statement) => {
    const gpu = await openGpu();
    const numbers = hardNumbers();
    const got = await computed(gpu, numbers, statement);
    gpu.dispose();
    const wrong: string[] = [];
    let twice = 0;
    for (let i = 0; i < COUNT; i++) {
      const [a, b, c] = [0, 1, 2].map((which) => numbers[which * COUNT + i]!) as [
        number,
        number,
        number,
      ];
      const right = fusedMultiplyAdd(a, b, c);
      if (right !== Math.fround(Math.fround(a * b) + c)) twice++;
      if (got[i] !== right) wrong.push(`${a} * ${b} + ${c}: ${got[i]} instead of ${right}`);
    }
    expect(wrong.slice(0, 5)).toEqual([]);
    // The numbers tell one rounding from two.
    expect(twice).toBeGreaterThan(COUNT / 16);
  });

  test("a device whose fma() rounds twice computes with error-free transformations", async () => {
    const gpu = await changed(/\bfma\(a, b, c\)/g, "(a * b + c)");
    expect((await checkExactness(gpu, arithmetic)).deviceFuses).toBe(false);
    gpu.dispose();
  });

  test("a device whose bits are others is refused", async () => {
    const backend = new WebGpuBackend(await changed("round(b)", "floor(b)"), { exact: arithmetic });
    await expect(runCase(backend, modelOf({}), [[1, 0]])).rejects.toThrow(
      /^exact: the GPU ".*" computes otherwise than the processor: a rounding to whole numbers \(/,
    );
    backend.dispose();
  });
});

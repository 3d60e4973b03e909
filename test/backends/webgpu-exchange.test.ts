// How lanes exchange values (wgsl/subgroups.ts): through workgroup memory, and through subgroups, whose shuffles are emulated here, because
// software drivers have subgroups of 4 or 8 lanes.
// Held against: the values that the lanes hold, which the test knows.

import { expect, test } from "vitest";
import { MAP_READ, usage } from "../../src/backends/webgpu/usage.ts";
import { type Exchange, exchangeFor } from "../../src/backends/webgpu/wgsl/subgroups.ts";
import { describeGpu, openGpu } from "../support/gpu.ts";

const SIZE = 64;
/** Whole numbers, so that sums are exact in any order. */
const values = Float32Array.from({ length: SIZE }, (_, lane) => ((lane * 37) % 61) - 20);

/** WGSL of subgroupShuffleXor() through workgroup memory; all lanes call it. */
const shuffles = `
var<private> ownLane: u32;
var<workgroup> shuffled: array<vec4f, ${SIZE}>;
fn shuffleXor4(value: vec4f, mask: u32) -> vec4f {
  workgroupBarrier();
  shuffled[ownLane] = value;
  workgroupBarrier();
  return shuffled[ownLane ^ mask];
}
fn shuffleXor(value: f32, mask: u32) -> f32 { return shuffleXor4(vec4f(value), mask).x; }
fn shuffleXorWord(value: u32, mask: u32) -> u32 { return u32(shuffleXor(f32(value), mask)); }`;

function emulated(code: string): string {
  return code
    .replaceAll(/subgroupShuffleXor\((sums|values)\b/g, "shuffleXor4($1")
    .replaceAll(/subgroupShuffleXor\((w\d)\b/g, "shuffleXorWord($1")
    .replaceAll("subgroupShuffleXor(", "shuffleXor(");
}

const kinds: { name: string; exchange: Exchange }[] = [
  { name: "workgroup memory", exchange: exchangeFor(undefined) },
  { name: "subgroups", exchange: exchangeFor({ min: 32, max: 32 }) },
];

/** What `expression`, a vec4f of `value` and `lane`, is in each lane. */
async function run(exchange: Exchange, declarations: string, expression: string) {
  const gpu = await openGpu();
  const { device } = gpu;
  const code = emulated(`${exchange.declarations(SIZE)}${declarations}`);
  const module = device.createShaderModule({
    code: `@group(0) @binding(0) var<storage, read> given: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<vec4f>;
${shuffles}${code}
@compute @workgroup_size(${SIZE})
fn main(@builtin(local_invocation_index) lane: u32) {
  ownLane = lane;
  let value = given[lane];
  result[lane] = ${expression};
}`,
  });
  const pipeline = await device.createComputePipelineAsync({
    layout: "auto",
    compute: { module, entryPoint: "main" },
  });
  const size = SIZE * 16;
  const given = device.createBuffer({
    size: values.byteLength,
    usage: usage.storage | usage.copyTarget,
  });
  device.queue.writeBuffer(given, 0, values);
  const result = device.createBuffer({ size, usage: usage.storage | usage.copySource });
  const read = device.createBuffer({ size, usage: usage.mapRead | usage.copyTarget });
  const commands = device.createCommandEncoder();
  const pass = commands.beginComputePass();
  pass.setPipeline(pipeline);
  const entries = [given, result].map((buffer, binding) => ({ binding, resource: { buffer } }));
  pass.setBindGroup(0, device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
  pass.dispatchWorkgroups(1);
  pass.end();
  commands.copyBufferToBuffer(result, 0, read, 0, size);
  device.queue.submit([commands.finish()]);
  await gpu.wait(read.mapAsync(MAP_READ));
  const flat = new Float32Array(read.getMappedRange().slice(0));
  gpu.dispose();
  return Array.from({ length: SIZE }, (_, lane) => [...flat.subarray(lane * 4, lane * 4 + 4)]);
}

/** The values of the subgroup of `width` lanes that a lane is of. */
const subgroupOf = (lane: number, width: number): number[] => {
  const first = lane - (lane % width);
  return [...values.subarray(first, first + width)];
};
const lanes = Array.from({ length: SIZE }, (_, lane) => lane);
const sum = (all: readonly number[]): number => all.reduce((a, b) => a + b);

describeGpu("webgpu: lanes that exchange values", () => {
  test.each(kinds)("through $name", async ({ exchange }) => {
    for (const width of [2, 8, 32]) {
      const reduced = await run(
        exchange,
        `${exchange.reduce("total", width, "sum")}${exchange.reduce("largest", width, "max")}`,
        "vec4f(total(value, lane), largest(value, lane), 0.0, 0.0)",
      );
      expect(reduced, `reduce, ${width} lanes`).toEqual(
        lanes.map((lane) => [
          sum(subgroupOf(lane, width)),
          Math.max(...subgroupOf(lane, width)),
          0,
          0,
        ]),
      );
      const four = await run(
        exchange,
        exchange.sumFour("totals", width, SIZE),
        "totals(vec4f(value, value * 2.0, -value, 1.0), lane)",
      );
      expect(four, `sumFour, ${width} lanes`).toEqual(
        lanes.map((lane) => {
          const total = sum(subgroupOf(lane, width));
          return [total, 2 * total, -total, width];
        }),
      );
    }
    // Pairs of lanes have the same value, as those that share a block.
    const collected = await run(
      exchange,
      exchange.collect("collected"),
      "collected(given[lane - lane % 2u], lane)",
    );
    expect(collected, "collect").toEqual(
      lanes.map((lane) => subgroupOf(lane, 8).filter((_, i) => i % 2 === 0)),
    );
  });

  test("gather vectors of which each lane has one word or two", async () => {
    const { exchange } = kinds[1]!;
    for (const words of [1, 2]) {
      const own = Array.from({ length: words }, (_, i) => `lane * ${words}u + ${i}u`).join(", ");
      const gather = exchange.gather!("gathered", words);
      const got = await run(exchange, gather, `vec4f(gathered(lane, ${own})) + 0.0 * value`);
      expect(got, `${words} of each`).toEqual(
        lanes.map((lane) => [0, 1, 2, 3].map((i) => (lane - (lane % (4 / words))) * words + i)),
      );
    }
  });
});

// Attention on matrix units by itself, with units that are emulated: compared with doubles where scores grow so far that references
// must be raised again and again, and bit by bit between batches and numbers of subgroups.

import { expect, test } from "vitest";
import type { GpuDevice } from "../../src/backends/webgpu/device.ts";
import { MAP_READ, usage } from "../../src/backends/webgpu/usage.ts";
import {
  attentionMatricesKernel,
  subgroupsFor,
} from "../../src/backends/webgpu/wgsl/attention-matrices.ts";
import { kvFormatOf } from "../../src/backends/webgpu/wgsl/kv-formats.ts";
import { bytesFor } from "../../src/dtypes/dtype.ts";
import { kvQuantizer } from "../../src/dtypes/kv-types.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import type { NodeOf } from "../../src/graph/graph.ts";
import { emulatedMatrices } from "../support/emulated-matrices.ts";
import { describeHalves, openGpu } from "../support/gpu.ts";
import { Random } from "../support/random.ts";

const [headDim, tokens, context] = [32, 70, 100];
const blocks = Math.ceil(context / 32);
const first = context - tokens;
const slotOf = (block: number): number => (block + 1) % blocks;
const rowOf = (position: number): number =>
  slotOf(Math.floor(position / 32)) * 32 + (position % 32);

/** A cache, and queries of it. */
interface Case {
  readonly kvType: string;
  readonly heads: number;
  readonly kvHeads: number;
  /** Half floats, as which the kernel takes them: [token][head][value]. */
  readonly q: Float32Array;
  /** What the cache stands for, as half floats, and its words: [row][kvHead][value]. */
  readonly keys: Float32Array;
  readonly values: Float32Array;
  readonly words: { readonly keys: ArrayBufferView; readonly values: ArrayBufferView };
}

function caseOf(kvType: string, heads: number, kvHeads: number): Case {
  const random = new Random(5);
  const cols = kvHeads * headDim;
  const halves = (count: number, value: (i: number) => number): Float32Array =>
    Float32Array.from(Float16Array.from({ length: count }, (_, i) => value(i)));
  const q = halves(tokens * heads * headDim, () => random.normal());
  const values = halves(blocks * 32 * cols, () => random.normal());
  /** They grow with their positions, and so do scores, in either direction. */
  const growth = new Float32Array(blocks * 32);
  for (let position = 0; position < context; position++) growth[rowOf(position)] = 1 + position / 2;
  const keys = halves(values.length, (i) => random.normal() * growth[Math.floor(i / cols)]!);
  const dtype = dtypeByName(kvType)!;
  const { rows, unit, unitWords } = kvFormatOf(dtype)!;
  const kept = (floats: Float32Array): ArrayBufferView => {
    const own = new Uint8Array(bytesFor(dtype, floats.length));
    kvQuantizer(dtype)(floats, 0, own, 0, floats.length / dtype.blockElems);
    dtype.dequantize(own, 0, floats, 0, floats.length / dtype.blockElems);
    floats.set(Float16Array.from(floats)); // as which the kernel takes them
    if (!rows) return own;
    const here = new Uint8Array((floats.length / unit) * unitWords * 4);
    rows.fromOwn(own, here, cols);
    return here;
  };
  return {
    kvType,
    heads,
    kvHeads,
    q,
    keys,
    values,
    words: { keys: kept(keys), values: kept(values) },
  };
}

function node({ heads, kvHeads }: Case): NodeOf<"attention"> {
  const g = new GraphBuilder();
  const weight = { name: "table", shape: [8, heads * headDim], dtype: dtypeByName("f32")! };
  const state = g.state({
    kind: "kv",
    layer: 0,
    kCols: kvHeads * headDim,
    vCols: kvHeads * headDim,
  });
  const shape = { state, heads, kvHeads, headDim, scale: headDim ** -0.5 };
  const out = g.attention(g.embed(weight, "embed"), shape, "attention");
  const graph = g.finish({ hidden: g.select(out, "select") });
  return graph.nodes.find((one) => one.op === "attention")!;
}

/** Addresses in the batch area, in words. */
const layout = {
  ...{
    tokens: 0,
    short: 1,
    outputRows: 0,
    adapters: [],
    lengths: undefined,
    angles: [],
    segments: 0,
  },
  ...{ positions: 16, sequences: 128, groups: [256], tables: [256], tableLength: blocks },
  ...{ draws: 0, drawn: 0, adjusted: 0, words: 300 },
};

/** Attention of the tokens from `from` on. */
async function run(
  gpu: GpuDevice,
  one: Case,
  subgroups: number,
  from: number,
): Promise<Float32Array> {
  const { device } = gpu;
  const { heads, q, words: cache } = one;
  const format = kvFormatOf(dtypeByName(one.kvType)!)!;
  const kernel = attentionMatricesKernel(
    node(one),
    { k: format, v: format },
    layout,
    emulatedMatrices,
    1,
    subgroups,
  );
  const count = tokens - from;
  const words = new Uint32Array(layout.words);
  words[0] = count;
  for (let t = 0; t < count; t++) words[layout.positions + t] = first + from + t;
  for (let b = 0; b < blocks; b++) words[layout.tables[0]! + b] = slotOf(b);
  const buffer = (data: ArrayBufferView): GPUBuffer => {
    const made = device.createBuffer({
      size: data.byteLength,
      usage: usage.storage | usage.copyTarget,
    });
    device.queue.writeBuffer(made, 0, data.buffer as ArrayBuffer, data.byteOffset, data.byteLength);
    return made;
  };
  const size = count * heads * headDim * 4;
  const result = device.createBuffer({ size, usage: usage.storage | usage.copySource });
  const read = device.createBuffer({ size, usage: usage.mapRead | usage.copyTarget });
  const module = device.createShaderModule({ code: kernel.code });
  const pipeline = await device.createComputePipelineAsync({
    layout: "auto",
    compute: { module, entryPoint: "main" },
  });
  const bound = [
    buffer(q.subarray(from * heads * headDim)),
    buffer(cache.keys),
    buffer(cache.values),
    buffer(words),
    result,
  ];
  const commands = device.createCommandEncoder();
  const pass = commands.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(
    0,
    device.createBindGroup({
      layout: pipeline.getBindGroupLayout(0),
      entries: bound.map((resource, binding) => ({ binding, resource: { buffer: resource } })),
    }),
  );
  pass.dispatchWorkgroups(...kernel.grid(count));
  pass.end();
  commands.copyBufferToBuffer(result, 0, read, 0, size);
  device.queue.submit([commands.finish()]);
  await gpu.wait(read.mapAsync(MAP_READ));
  return new Float32Array(read.getMappedRange().slice(0));
}

/** The largest score that comes after the first block, above those of the first block, in powers of 2; and the attention, in doubles. */
function want(
  { heads, kvHeads, q, keys, values }: Case,
  token: number,
  head: number,
): { growth: number; values: Float64Array } {
  const at = (position: number): number =>
    rowOf(position) * kvHeads * headDim + Math.floor((head * kvHeads) / heads) * headDim;
  const scores = Float64Array.from({ length: first + token + 1 }, (_, position) => {
    let dot = 0;
    for (let d = 0; d < headDim; d++) {
      dot += q[(token * heads + head) * headDim + d]! * keys[at(position) + d]!;
    }
    return dot * headDim ** -0.5;
  });
  const top = Math.max(...scores);
  const weights = scores.map((score) => Math.exp(score - top));
  const total = weights.reduce((a, b) => a + b);
  const found = Float64Array.from(
    { length: headDim },
    (_, d) =>
      weights.reduce((sum, weight, position) => sum + weight * values[at(position) + d]!, 0) /
      total,
  );
  return { growth: (top - Math.max(...scores.subarray(0, 32))) * Math.LOG2E, values: found };
}

/** Emulated units take minutes to compile. */
const timeout = 900_000;

test("workgroups have twice as many subgroups where two of them would not share a core", () => {
  expect([32, 64, 128].map((size) => subgroupsFor(size, 48 * 1024))).toEqual([4, 4, 8]);
  expect(subgroupsFor(128, 32 * 1024)).toBe(4);
});

describeHalves("attention on matrix units", () => {
  const cases = [
    { kvType: "f16", heads: 2, kvHeads: 1 },
    { kvType: "q8_0", heads: 4, kvHeads: 4 },
  ];
  test.each(cases)(
    "a cache of $kvType: as in doubles, and the same bits in every batch and with more subgroups",
    {
      timeout,
    },
    async ({ kvType, heads, kvHeads }) => {
      const gpu = await openGpu();
      const one = caseOf(kvType, heads, kvHeads);
      const got = await run(gpu, one, 4, 0);
      let raised = 0;
      for (let token = 0; token < tokens; token++) {
        for (let head = 0; head < heads; head++) {
          const { growth, values: wanted } = want(one, token, head);
          // Beyond 2^16 a weight would be infinite as a half float.
          if (growth > 17) raised++;
          const at = (token * heads + head) * headDim;
          for (let d = 0; d < headDim; d++) {
            expect(
              Math.abs(got[at + d]! - wanted[d]!),
              `token ${token}, head ${head}`,
            ).toBeLessThan(5e-3);
          }
        }
      }
      expect(raised).toBeGreaterThan(20);
      expect(raised).toBeLessThan(tokens * heads - 20);
      const from = 21;
      const later = got.subarray(from * heads * headDim);
      expect(await run(gpu, one, 4, from)).toEqual(later);
      expect(await run(gpu, one, 8, 0)).toEqual(got);
      gpu.dispose();
    },
  );
});

// The same bits at every split between the processor and the GPU, where the GPU computes exactly: one model whose matrices are of
// all types of 4 to 8 bits in turns, so that every split has others on either side. All splits share a device, which compiles
// each shader once. Single ops: exact-ops.test.ts.

import { expect, test } from "vitest";
import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { cpuArithmetic } from "../../src/backends/cpu/arithmetic.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { SplitBackend } from "../../src/backends/split/split.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { bytesFor, type DType } from "../../src/dtypes/dtype.ts";
import { sampleBlocks } from "../../src/dtypes/sample-blocks.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Batch } from "../../src/graph/batch.ts";
import type { Weight } from "../../src/graph/graph.ts";
import { makePlan, type Plan } from "../../src/graph/plan.ts";
import { buildModel } from "../../src/models/build.ts";
import { archNamed } from "../../src/models/table.ts";
import { describeGpu, openGpu } from "../support/gpu.ts";
import { nativeHere } from "../support/native.ts";
import { Random } from "../support/random.ts";
import { plainMetadata } from "../support/tiny-engine.ts";

const types = "q4_0 q4_1 q5_0 q5_1 q8_0 q4_k q5_k q6_k iq4_nl iq4_xs mxfp4".split(" ");
const layerCount = 3;
const limits = { maxTokens: 2, maxOutputs: 1 };
const kv = evenCapacity(1, dtypeByName("f16")!);
const native = nativeHere[0]?.native ?? "this machine runs no machine code that the tests know";

/** All matrices are 256 x 256, so that a type has one shader. */
function mixedModel(): { plan: Plan; bytesOf: (weight: Weight) => Uint8Array } {
  const size = 256;
  const metadata = plainMetadata({
    "general.architecture": "llama",
    "llama.embedding_length": size,
    "llama.feed_forward_length": size,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 4,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.block_count": layerCount,
    "llama.context_length": 32,
  });
  const table = { name: "token_embd.weight", shape: [size, size], dtype: dtypeByName("f32")! };
  const arch = archNamed("llama");
  const config = arch.config({ metadata, tensors: new Map([[table.name, table]]) });
  const tensors = new Map<string, Weight>();
  let matrices = 0;
  for (const { name, shape } of arch.weights(config)) {
    if (name === "output.weight" || name === "rope_freqs.weight") continue;
    const isMatrix = shape.length === 2;
    const type = isMatrix ? types[matrices++ % types.length]! : "f32";
    tensors.set(name, { name, shape, dtype: dtypeByName(type)! });
  }
  const { graph } = buildModel({ metadata, tensors });
  return { plan: makePlan(graph, limits), bytesOf };
}

function bytesOf({ name, shape, dtype }: Weight): Uint8Array {
  const elements = shape.reduce((a, b) => a * b, 1);
  const random = new Random(name.length * 31 + name.charCodeAt(4));
  if (shape.length === 2) return stretch(dtype, elements, random);
  return new Uint8Array(
    Float32Array.from({ length: elements }, () => 1 + 0.1 * random.normal()).buffer,
  );
}

/** Some blocks of a type, which are expensive to make: weights repeat them, each from another place on. */
const pools = new Map<DType, Uint8Array>();

function stretch(dtype: DType, elements: number, random: Random): Uint8Array {
  const pool = pools.get(dtype) ?? sampleBlocks(dtype, 4096);
  pools.set(dtype, pool);
  const bytes = new Uint8Array(bytesFor(dtype, elements));
  const first = random.below(pool.length / dtype.blockBytes) * dtype.blockBytes;
  for (let i = 0; i < bytes.length; i++) bytes[i] = pool[(first + i) % pool.length]!;
  return bytes;
}

/** The logits after a prompt of 2 tokens and after one more. */
async function logitsOf(backend: Backend, model: ReturnType<typeof mixedModel>): Promise<string[]> {
  const { plan } = model;
  await backend.prepare(plan, kv);
  for (const weight of plan.graph.weights) {
    await backend.upload(weight, async (target, at) => {
      target.set(model.bytesOf(weight).subarray(at, at + target.length));
    });
  }
  const batch = new Batch(limits);
  const sequence = { blocks: Int32Array.of(0) };
  const rows: string[] = [];
  let position = 0;
  for (const tokens of [[7, 200], [111]]) {
    batch.clear();
    tokens.forEach((token, i) => {
      batch.add(token, position++, sequence, i === tokens.length - 1);
    });
    await backend.run(batch);
    const logits = new Float32Array(plan.graph.outputs.logits!.cols);
    await backend.read("logits", 0, logits);
    expect(logits.every(Number.isFinite)).toBe(true);
    rows.push(Buffer.from(logits.buffer).toString("base64"));
  }
  return rows;
}

describeGpu("exact", () => {
  test(`the same bits at every split: ${types.join(", ")}`, { timeout: 300_000 }, async () => {
    const exact = cpuArithmetic(native);
    const gpu = await openGpu();
    const model = mixedModel();
    const cpu = () => new CpuBackend({ level: 3, threads: 1, startThread: undefined, native });
    const alone = cpu();
    const expected = await logitsOf(alone, model);
    expect(new Set(expected).size).toBe(2);
    alone.dispose();
    for (let layers = 1; layers <= layerCount + 1; layers++) {
      const device = new WebGpuBackend(gpu, { exact });
      // Not disposed of: the next one uses the device, too.
      const split = new SplitBackend({ host: cpu(), device, layers });
      expect(await logitsOf(split, model), `-ngl ${layers}`).toEqual(expected);
    }
    gpu.dispose();
  });
});

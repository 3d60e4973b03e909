// The text of every shader that a small model becomes, as one hash for each op and each type of weights, on three kinds of
// GPU. As test/kernels/kernel-hashes.test.ts: a refactoring shows that none changed; where a change is meant, -u and a reason.

import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { evenCapacity } from "../../src/backends/backend.ts";
import { layOut } from "../../src/backends/webgpu/buffers.ts";
import type { GpuFacts } from "../../src/backends/webgpu/device.ts";
import { lowerPlan, lowerPlanExactly } from "../../src/backends/webgpu/program.ts";
import { tuningFor } from "../../src/backends/webgpu/tuning.ts";
import { namedCalls } from "../../src/backends/webgpu/wgsl/matrix-calls.ts";
import { allDTypes, dtypeByName } from "../../src/dtypes/table.ts";
import { makePlan } from "../../src/graph/plan.ts";
import type { ModelHeader } from "../../src/models/arch.ts";
import { buildModel } from "../../src/models/build.ts";
import { plainGpu, subgroupGpu } from "../support/gpu-facts.ts";
import { plainMetadata } from "../support/tiny-engine.ts";

const plain = {
  ...plainGpu,
  maxBufferBytes: 2 ** 32,
  maxBindingBytes: 2 ** 31,
  storageBuffers: 10,
};
const subgroups = { ...subgroupGpu, storageBuffers: 10 };
const gpus: readonly { name: string; facts: GpuFacts }[] = [
  { name: "plain", facts: plain },
  { name: "subgroups", facts: subgroups },
  { name: "matrix units", facts: { ...subgroups, subgroupMatrix: true } },
];

/** Two layers of a model whose matrices are all of a type: sizes that every block fits. */
function modelOf(weightType: string, architecture: string): ModelHeader {
  const [embed, feedForward, vocab] = [256, 512, 320];
  const key = (name: string) => `${architecture}.${name}`;
  const metadata = plainMetadata({
    "general.architecture": architecture,
    [key("embedding_length")]: embed,
    [key("attention.head_count")]: 4,
    [key("attention.head_count_kv")]: 2,
    [key("block_count")]: 1,
    [key("feed_forward_length")]: feedForward,
    [key("context_length")]: 256,
    [key("attention.layer_norm_rms_epsilon")]: 1e-5,
  });
  const tensors = new Map<string, ReturnType<typeof tensor>>();
  const tensor = (name: string, shape: number[]) => ({
    name,
    shape,
    dtype: dtypeByName(shape.length > 1 ? weightType : "f32")!,
  });
  const add = (name: string, ...shape: number[]) => tensors.set(name, tensor(name, shape));
  add("token_embd.weight", vocab, embed);
  add("output_norm.weight", embed);
  for (const name of ["attn_norm", "ffn_norm"]) add(`blk.0.${name}.weight`, embed);
  for (const [name, rows] of [
    ["q", embed],
    ["k", 128],
    ["v", 128],
  ] as const) {
    add(`blk.0.attn_${name}.weight`, rows, embed);
    if (architecture === "qwen2") add(`blk.0.attn_${name}.bias`, rows);
  }
  add("blk.0.attn_output.weight", embed, embed);
  for (const name of ["gate", "up"]) add(`blk.0.ffn_${name}.weight`, feedForward, embed);
  add("blk.0.ffn_down.weight", embed, feedForward);
  return { metadata, tensors };
}

test.each(gpus)("$name", async ({ name, facts }) => {
  const lines: string[] = [];
  const tuning = tuningFor(facts);
  const calls = facts.subgroupMatrix ? namedCalls : undefined;
  const types = allDTypes();
  for (const architecture of ["llama", "qwen2"]) {
    for (const { name: type } of types) {
      const { graph } = buildModel(modelOf(type, architecture));
      const plan = makePlan(graph, { maxTokens: 64, maxOutputs: 8 });
      const layout = layOut(plan, evenCapacity(8, dtypeByName("f16")!), facts);
      const counted = (["groups", "nodes"] as const).map((by) => {
        const kernels = lowerPlan(facts, layout, tuning, calls, by).flatMap((part) => part.kernels);
        const hash = createHash("sha256");
        for (const { code } of kernels) hash.update(code);
        return `${kernels.length} ${by}, ${hash.digest("hex").slice(0, 16)}`;
      });
      lines.push(`${architecture} ${type}: ${counted.join("; ")}`);
    }
  }
  const file = `data/wgsl-hashes/${name.replace(" ", "-")}.txt`;
  await expect(`${lines.join("\n")}\n`).toMatchFileSnapshot(file);
});

test.each([
  ["exact", true, true],
  ["exact-unfused", false, true],
  ["exact-error-free", true, false],
])("%s", async (name, fused, deviceFuses) => {
  const facts = { ...plain, packedDots: true };
  const lines = allDTypes()
    .map(({ name }) => name)
    // Types of activations: the CPU has no packed kernels for them.
    .filter((type) => !["q8_1", "q8_k"].includes(type))
    .map((type) => {
      const { graph } = buildModel(modelOf(type, "llama"));
      const plan = makePlan(graph, { maxTokens: 64, maxOutputs: 8 });
      const layout = layOut(plan, evenCapacity(8, dtypeByName("f16")!), facts, true);
      const parts = lowerPlanExactly(facts, layout, { fused, deviceFuses, lanes: () => 4 });
      const hash = createHash("sha256");
      for (const { code } of parts.flatMap(({ kernels }) => kernels)) hash.update(code);
      return `${type}: ${parts.length} nodes, ${hash.digest("hex").slice(0, 16)}`;
    });
  const file = `data/wgsl-hashes/${name}.txt`;
  await expect(`${lines.join("\n")}\n`).toMatchFileSnapshot(file);
});

/** Matrices that are declared inside a block of main() without a value. */
function bareMatrices(code: string): string[] {
  const found: string[] = [];
  let depth = 0;
  for (const [text] of code.matchAll(/[{}]|var \w+: (?:Left|Right|Sums);/g)) {
    if (text === "{") depth++;
    else if (text === "}") depth--;
    else if (depth > 1) found.push(text);
  }
  return found;
}

// WGSL sets them to 0 in each turn of a loop, Dawn only in the first (docs/journal/gpu-kernels.md). Emulated matrix units do as WGSL says.
test("a matrix that is declared in a loop has a value", () => {
  expect(bareMatrices("fn main() { var a: Sums; for (;;) { var b: Sums; } }")).toHaveLength(1);
  const { facts } = gpus.at(-1)!;
  const { graph } = buildModel(modelOf("q4_0", "llama"));
  const plan = makePlan(graph, { maxTokens: 512, maxOutputs: 8 });
  const layout = layOut(plan, evenCapacity(8, dtypeByName("f16")!), facts);
  const parts = lowerPlan(facts, layout, tuningFor(facts), namedCalls, "groups");
  const onMatrices = parts
    .flatMap(({ kernels }) => kernels)
    .filter(({ code }) => code.includes("subgroup_matrix"));
  const names = onMatrices.map(({ name }) => name.split(" ")[0]);
  expect(new Set(names)).toEqual(new Set(["matmul-matrices", "attention-matrices"]));
  for (const { code, name } of onMatrices) expect(bareMatrices(code), name).toEqual([]);
});

/** Stores to a part of a vector in workgroup memory or in a buffer. */
function partStores(code: string): string[] {
  const shared = [
    ...code.matchAll(/var<workgroup> (\w+)\s*:\s*array<vec/g),
    ...code.matchAll(/var<storage, read_write> (\w+)\s*:\s*array<vec/g),
  ].map(([, name]) => name);
  // An index may have brackets inside, two deep.
  const index = String.raw`\[(?:[^[\]]|\[(?:[^[\]]|\[[^[\]]*\])*\])*\]`;
  return shared.flatMap((name) =>
    [
      ...code.matchAll(
        new RegExp(`\\b${name}${index}(?:${index}|\\.[xyzw]+)\\s*[-+*/|&^]?=(?!=)`, "g"),
      ),
    ].map(([text]) => text),
  );
}

// Lanes that store parts of the same vector race: on Metal and Direct3D all of it is read and written
// (https://github.com/gpuweb/gpuweb/issues/2112). Vulkan keeps the parts apart, so that no test here would see it.
test("no kernel stores a part of a vector that lanes share", () => {
  const example = "var<workgroup> t: array<vec4u, 4>;\nvar<workgroup> u: array<u32, 4>;";
  expect(partStores(`${example} t[a[i] >> 2u][i & 3u] = 1u; t[0].xy += v;`)).toHaveLength(2);
  expect(
    partStores(`${example} t[i] = v; let w = t[i][0]; if (t[i].x == 1u) {} u[t[i].x] = 1u;`),
  ).toEqual([]);
  for (const { facts } of gpus) {
    const calls = facts.subgroupMatrix ? namedCalls : undefined;
    for (const { name: type } of allDTypes()) {
      const { graph } = buildModel(modelOf(type, "llama"));
      const plan = makePlan(graph, { maxTokens: 512, maxOutputs: 8 });
      for (const kv of ["f32", "f16", "q8_0", "q4_0"]) {
        const layout = layOut(plan, evenCapacity(8, dtypeByName(kv)!), facts);
        for (const by of ["groups", "nodes"] as const) {
          const parts = lowerPlan(facts, layout, tuningFor(facts), calls, by);
          for (const { code, name } of parts.flatMap(({ kernels }) => kernels)) {
            expect(partStores(code), name).toEqual([]);
          }
        }
      }
    }
  }
});

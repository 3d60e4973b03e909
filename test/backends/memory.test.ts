// The memory of a model is known before anything is read, and a model that does not fit is refused then, with the
// numbers.

import { describe, expect, test } from "vitest";
import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { MemoryError } from "../../src/base/errors.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Engine } from "../../src/engine/engine.ts";
import { checkMemory } from "../../src/engine/memory.ts";
import { kvTokenBytes, weightBytes } from "../../src/graph/cost.ts";
import type { Weight } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { buildModel } from "../../src/models/build.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { kvOf } from "../support/kv.ts";
import { letterTokenizer, tinyModel } from "../support/tiny-engine.ts";
import { load } from "./tiny-backend.ts";

const MIB = 2 ** 20;
const GIB = 2 ** 30;
const f16 = dtypeByName("f16")!;

const backends: [string, () => Backend][] = [
  ["cpu", () => new CpuBackend({ level: 3, threads: 1, startThread: undefined })],
  ["reference", () => new ReferenceBackend()],
];

describe.each(backends)("%s", (_, create) => {
  test.each(["f16", "q4_0", "q8_0/q5_1"])("measure() says what is taken: %s", async (kvType) => {
    const backend = create();
    const { graph } = buildModel(tinyModel());
    const kv = evenCapacity(4, kvOf(kvType));
    const {
      limitBytes,
      limitReason: _,
      ...need
    } = backend.measure(makePlan(graph, { maxTokens: 12, maxOutputs: 12 }), kv);
    await load(backend, { kvType });
    expect(need).toEqual(backend.memory());
    const inFile = graph.weights.reduce((sum, weight) => sum + weightBytes(weight), 0);
    expect(need.weightBytes).toBeGreaterThanOrEqual(inFile);
    expect(need.kvBytes).toBe(4 * 32 * kvTokenBytes(graph, kv.dtype));
    expect(limitBytes).toBeGreaterThanOrEqual(4 * GIB);
    backend.dispose();
  });

  test("more than the machine has is refused before anything is read", async () => {
    const refused = loadEngine(create(), tinyModel().tensors, 30_000);
    await expect(refused).rejects.toThrow(MemoryError);
    await expect(refused).rejects.toThrow(
      /needs [\d.]+ (MiB|KiB) \(weights [\d.]+ KiB.*this machine has 29\.3 KiB free/,
    );
  });
});

test("more than the backend reaches is refused before anything is read", async () => {
  const { tensors } = tinyModel();
  const table = { ...tensors.get("token_embd.weight")!, shape: [200_000_000, 32] };
  const [, cpu] = backends[0]!;
  const refused = loadEngine(cpu(), new Map([...tensors, [table.name, table]]), undefined);
  await expect(refused).rejects.toThrow(MemoryError);
  await expect(refused).rejects.toThrow(
    /needs \d\d\.\d\d GiB .*"cpu" backend reaches (16|4)\.00 GiB/,
  );
});

describe("the message", () => {
  const state = { kv: [{ bytesPerToken: (2 * GIB) / 4096, blockTokens: 32 }], recurrentBytes: 0 };
  const facts = { model: "m", backend: "b", contextSize: 4096, kvType: f16, state };
  const need = { weightBytes: 3 * GIB, kvBytes: 2 * GIB, workBytes: GIB / 4, limitBytes: 16 * GIB };

  test("says how much of what, and which context would fit", () => {
    expect(() => checkMemory(need, { ...facts, availableBytes: 4.25 * GIB })).toThrow(
      "m does not fit: it needs 5.25 GiB (weights 3.00 GiB, KV cache 2.00 GiB for 4096 tokens of f16, working memory 256.0 MiB), but this machine has 4.25 GiB free. Use at most 2048 as contextSize, or a smaller type of the KV cache (kvType)",
    );
  });
  test("names both types, and advises a smaller one where there is one", () => {
    const messageOf = (kvType: string) => () =>
      checkMemory(need, { ...facts, kvType: kvOf(kvType), availableBytes: 4.25 * GIB });
    expect(messageOf("q8_0/q4_0")).toThrow(
      /for 4096 tokens of q8_0\/q4_0, .* Use at most 2048 as contextSize, or a smaller type/,
    );
    expect(messageOf("q4_0")).toThrow(
      /for 4096 tokens of q4_0, .* Use at most 2048 as contextSize$/,
    );
  });
  test("what does not grow with the context is no part of the advice", () => {
    const [kv] = state.kv;
    const half = { ...kv!, bytesPerToken: kv!.bytesPerToken / 2 };
    const windowed = { kv: [half, { ...half, mostTokens: 1024 }], recurrentBytes: (3 * GIB) / 4 };
    expect(() =>
      checkMemory(need, { ...facts, state: windowed, availableBytes: 4.75 * GIB }),
    ).toThrow("Use at most 2048 as contextSize,"); // 1/2 + 1/4 + 3/4 of 1.5 GiB
  });
  test("does not advise a context that does not help", () => {
    expect(() => checkMemory(need, { ...facts, availableBytes: 3 * GIB })).toThrow(
      "but this machine has 3.00 GiB free. Use the model in a smaller type, or a smaller model",
    );
  });
  test("names the limit that is hit", () => {
    const narrow = { ...need, limitBytes: 4 * GIB };
    expect(() => checkMemory(narrow, { ...facts, availableBytes: undefined })).toThrow(
      'but the "b" backend reaches 4.00 GiB here',
    );
  });
  test("there is none when it fits", () => {
    checkMemory(need, { ...facts, availableBytes: 5.25 * GIB });
    checkMemory(need, { ...facts, availableBytes: undefined });
  });
});

test("the platform says how much memory is available", () => {
  expect(nodePlatform.availableMemory()).toBeGreaterThan(64 * MIB);
});

async function loadEngine(
  backend: Backend,
  tensors: ReadonlyMap<string, Weight>,
  availableBytes: number | undefined,
): Promise<void> {
  const parts = {
    name: "tiny",
    format: "memory",
    metadata: tinyModel().metadata,
    tensors,
    readTensor: async () => expect.fail("read before it was refused"),
    tokenizer: letterTokenizer,
    template: undefined,
    backend,
  };
  const options = { contextSize: 256, kvType: f16, availableBytes };
  await Engine.load(parts, options, { progress: () => {}, check: () => {} });
}

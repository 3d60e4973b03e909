// Activated adapters (aLoRA): they change what comes from their invocation on, and what comes before it is the model's own state.
// (adapters-llamacpp.test.ts has what llama.cpp writes with one.)
// Held against: the text of the model without the adapter.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { sharedTokens } from "../../src/engine/state/adapter-use.ts";
import { Sequence } from "../../src/engine/state/sequence.ts";
import { type AdapterScale, inspect, type Model, open } from "../../src/index.ts";
import { adapterFile } from "../support/adapter-file.ts";
import { tinyModel } from "../support/tiny-engine.ts";
import { tinyFileVocab, tinyGguf } from "../support/tiny-file.ts";

const folder = mkdtempSync(join(tmpdir(), "lantern-activated-"));
const invocation = [17, 18];
const before = Array.from({ length: 60 }, (_, i) => 20 + ((i * 7) % 200));
const invoked = [...before, ...invocation, 90, 33];
const first: AdapterScale[] = [{ id: 0, scale: 1 }];
let model: Model;

beforeAll(async () => {
  const tiny = tinyModel({ vocab: tinyFileVocab });
  const path = join(folder, "tiny.gguf");
  writeFileSync(path, await tinyGguf({ model: tiny }));
  const key = "adapter.alora.invocation_tokens";
  const activated = (value: number[]) => [[key, { type: "array<u32>", value }] as const];
  const made = (name: string, more: object) => adapterFile(folder, name, tiny.tensors, more);
  const adapters = [
    await made("activated", { seed: 1, more: activated(invocation) }),
    await made("other", { seed: 2, more: activated([19]) }),
    await made("plain", { seed: 3, more: activated([]) }),
  ].map((location) => ({ location, scale: 0 }));
  model = await open(path, { threads: 1, parallel: 2, kvType: "f32", contextSize: 256, adapters });
});
afterAll(async () => {
  await model?.dispose();
  rmSync(folder, { recursive: true, force: true });
});

async function say(prompt: number[], adapters: AdapterScale[], more = {}) {
  const options = { maxTokens: 8, temperature: 0, logprobs: 1, ignoreEos: true, adapters };
  const generation = model.generate(prompt, { ...options, ...more });
  const logprobs: number[] = [];
  for await (const event of generation.tokens()) logprobs.push(event.logprob!);
  const { tokenIds, timings } = await generation.result;
  return { text: { tokenIds, logprobs }, cached: timings.cachedTokens };
}

test("a prompt without the invocation is the model's own", async () => {
  await model.clearCache();
  const alone = await say(before, []);
  await model.clearCache();
  expect((await say(before, first)).text).toEqual(alone.text);
});

test("a conversation of the model goes on with the adapter, and is not computed again", async () => {
  await model.clearCache();
  const uncached = await say(invoked, first);
  expect(uncached.cached).toBe(0);
  expect(uncached.text).not.toEqual((await say(invoked, [], { cachePrompt: false })).text);
  await model.clearCache();
  await say(before, []);
  const after = await say(invoked, first);
  // From one token before the invocation on.
  expect(after.cached).toBe(before.length - 1);
  expect(after.text).toEqual(uncached.text);
  // And the model alone goes on with what it computed itself.
  const alone = await say([...invoked, 5], []);
  expect(alone.cached).toBeGreaterThanOrEqual(before.length - 1);
  expect(alone.text).toEqual((await say([...invoked, 5], [], { cachePrompt: false })).text);
});

test("the last invocation counts, beside requests without it and with other adapters", async () => {
  const twice = [...before, ...invocation, 70, ...before.slice(0, 9), ...invocation, 50];
  const choices: AdapterScale[][] = [
    first,
    [],
    [{ id: 2, scale: 1 }],
    [...first, { id: 2, scale: 1 }],
  ];
  const alone = [];
  for (const adapters of choices)
    alone.push((await say(twice, adapters, { cachePrompt: false })).text);
  expect(new Set(alone.map(({ logprobs }) => logprobs.join())).size).toBe(choices.length);
  await model.clearCache();
  await say(twice.slice(0, 68), []);
  const beside = await Promise.all(choices.map((adapters) => say(twice, adapters)));
  expect(beside.map(({ text }) => text)).toEqual(alone);
  expect(beside[0]!.cached).toBe(68);
});

test("it begins earlier where tokens before it are dropped", () => {
  const adapters = { key: "b", scales: Float32Array.of(1, 1), starts: Int32Array.of(0, 40) };
  const sequence = new Sequence([], 100, adapters);
  sequence.append(Array.from({ length: 60 }, () => 1));
  sequence.exactTokens = 4;
  sequence.moveStarts(4, 20);
  expect([...sequence.starts!]).toEqual([0, 20]);
  expect([...sequence.fork().starts!]).toEqual([0, 20]);
  sequence.moveStarts(4, 30);
  expect([...sequence.starts!]).toEqual([0, 4]);
  sequence.restore(3);
  expect([...sequence.starts!]).toEqual([0, 40]);
});

test("what is refused", async () => {
  const two = [...first, { id: 1, scale: 0.5 }];
  await expect(say(invoked, two)).rejects.toThrow(
    "adapters: got 2 activated ones (0, 1) for one request, expected at most one",
  );
  await expect(model.setAdapters(two)).rejects.toThrow("expected at most one");
  await model.setAdapters(first);
  await expect(model.stateBytes({ tokens: before })).rejects.toThrow(
    "state cannot be saved or loaded while requests that do not say apply adapter 0",
  );
  await model.setAdapters([]);
  expect(model.adapters().map(({ invocationTokens }) => invocationTokens)).toEqual([
    invocation,
    [19],
    undefined,
  ]);
});

test("inspect() says what an adapter is", async () => {
  const { adapter, memory } = await inspect(join(folder, "activated.gguf"));
  const facts = { kind: "lora", matrices: 14, rank: 4, alpha: 8 };
  expect(adapter).toEqual({ ...facts, invocationTokens: invocation });
  expect(memory).toBeUndefined();
  expect((await inspect(join(folder, "plain.gguf"))).adapter).toEqual(facts);
  expect((await inspect(join(folder, "tiny.gguf"))).adapter).toBeUndefined();
});

test("how many tokens two choices share", () => {
  const use = (key: string, scales?: number[], starts?: number[]) => ({
    key,
    scales: scales && Float32Array.from(scales),
    starts: starts && Int32Array.from(starts),
  });
  const none = use("");
  const plain = use("a", [1, 0]);
  const late = use("b", [0, 1], [0, 40]);
  expect(sharedTokens(plain, use("a", [1, 0]))).toBe(Infinity);
  expect(sharedTokens(none, plain)).toBe(0);
  expect(sharedTokens(none, late)).toBe(40);
  expect(sharedTokens(late, use("c", [0, 1], [0, 30]))).toBe(30);
  expect(sharedTokens(late, use("d", [0, 0.5], [0, 50]))).toBe(40);
  expect(sharedTokens(plain, use("e", [1, 1], [0, 20]))).toBe(20);
  expect(sharedTokens(plain, late)).toBe(0);
});

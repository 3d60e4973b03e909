// A draft model: a second engine whose greedy continuation is proposed. What it proposes is compared with what it generates
// by itself; texts with it and without are the same.

import { afterAll, describe, expect, test } from "vitest";
import type { Engine } from "../../../src/engine/engine.ts";
import { DraftModel } from "../../../src/engine/speculate/draft-model.ts";
import type { Drafter } from "../../../src/engine/speculate/drafter.ts";
import { greedyTokens, tinyEngine, tinyPrompt } from "../../support/tiny-engine.ts";
import { run, seen } from "./drafters.ts";

/** Random weights are never sure of a token. */
const whole = { endsEarly: false };
const engines: Engine[] = [];
afterAll(() => {
  for (const engine of engines) engine.dispose();
});

async function engineOf(...given: Parameters<typeof tinyEngine>): Promise<Engine> {
  const engine = await tinyEngine(...given);
  engines.push(engine);
  return engine;
}

async function proposed(drafter: Drafter, limit: number): Promise<number[]> {
  const out = new Int32Array(limit);
  return [...out.subarray(0, await drafter.draft(limit, out))];
}

describe.each(["llama", "gemma3", "mamba"])("%s drafts", (architecture) => {
  test("what it would generate by itself, after whatever the text went on with", async () => {
    const target = await engineOf();
    const draft = await engineOf({ architecture, seed: 3 });
    const alone = await engineOf({ architecture, seed: 3 });
    const model = new DraftModel(target, draft, whole);
    const text = tinyPrompt(1, 45);
    const drafter = await model.start(text, 200);
    expect(await proposed(drafter, 5)).toEqual(await greedyTokens(alone, text, 5));
    // Two of five were right, then another token came.
    for (const wrong of [1, 2, 3]) {
      const next = await greedyTokens(alone, text, 2);
      for (const token of [...next, wrong]) drafter.accept(token);
      text.push(...next, wrong);
      drafter.verified(5, 2);
      expect(await proposed(drafter, 5)).toEqual(await greedyTokens(alone, text, 5));
    }
    // All were right, and one came in addition.
    const next = await greedyTokens(alone, text, 5);
    for (const token of [...next, 7]) drafter.accept(token);
    text.push(...next, 7);
    expect(await proposed(drafter, 3)).toEqual(await greedyTokens(alone, text, 3));
    drafter.dispose();
    expect(draft.status().running).toBe(0);
  });
});

test("the chance follows what was verified", async () => {
  const target = await engineOf();
  const model = new DraftModel(target, await engineOf({ seed: 3 }));
  const drafter = await model.start([1, 2, 3], 100);
  const before = drafter.chance(0);
  for (let i = 0; i < 20; i++) drafter.verified(4, 4);
  expect(drafter.chance(0)).toBeGreaterThan(0.98);
  expect(drafter.chance(3)).toBe(drafter.chance(0));
  for (let i = 0; i < 100; i++) drafter.verified(4, 0);
  expect(drafter.chance(0)).toBeLessThan(0.1);
  expect(before).toBeCloseTo(0.7, 9);
  // The next generation knows of it, and tries again after some.
  const again = Array.from({ length: 60 }, () => {
    const next = model.start([1, 2, 3], 100);
    next.dispose();
    return next.chance(0);
  });
  expect(again[0]).toBeLessThan(0.1);
  expect(again.at(-1)).toBeGreaterThan(0.3);
  drafter.dispose();
});

test("without room in its cache, and beyond its context, nothing is drafted", async () => {
  const target = await engineOf();
  const model = new DraftModel(target, await engineOf({ contextSize: 64 }), whole);
  const first = await model.start(tinyPrompt(1, 20), 64);
  const second = await model.start(tinyPrompt(2, 20), 64);
  expect(await proposed(first, 4)).toHaveLength(4);
  expect(await proposed(second, 4)).toEqual([]);
  expect(second.chance(0)).toBe(0);
  second.dispose();
  for (const token of tinyPrompt(3, 43)) first.accept(token);
  // 63 of 64 tokens: the last gives one draft more than there is room to compute.
  expect(await proposed(first, 4)).toHaveLength(2);
  first.accept(1);
  first.accept(2);
  expect(await proposed(first, 4)).toEqual([]);
  expect(first.chance(0)).toBe(0);
  first.dispose();
});

test("a draft ends at a token of which the draft model is not sure", async () => {
  const target = await engineOf();
  const draft = await engineOf({ seed: 3 });
  const drafter = new DraftModel(target, draft, whole).start([1, 2], 99, { minChance: 0.999 });
  expect(await proposed(drafter, 8)).toEqual([]);
  drafter.dispose();
});

test("what it computed of a conversation is forgotten with it", async () => {
  const target = await engineOf();
  const draft = await tinyEngine({ seed: 3 });
  const model = new DraftModel(target, draft, whole);
  target.addDrafter(model);
  const options = { temperature: 0, maxTokens: 20 };
  for (const [at, conversation] of ["one", "other", "third"].entries()) {
    const more = at === 1 ? { conversation, cacheDisk: false } : { conversation };
    await run(target, tinyPrompt(at, 30), { ...options, ...more }, [model]);
  }
  const held = () => draft.status().cachedSequences;
  expect(held()).toBe(3);
  await target.forgetConversation("one");
  expect(held()).toBe(2);
  await target.forgetConversation("other");
  expect(held()).toBe(1);
  await target.clearCache();
  expect(held()).toBe(0);
});

describe("a generation with a draft model", () => {
  test.each([
    ["greedy", { temperature: 0 }],
    ["sampled", { temperature: 1.2, seed: 5, topK: 0 }],
  ])("has the same text, %s: right, often wrong", async (_, options) => {
    const target = await engineOf({ seed: 3 });
    const prompt = tinyPrompt(4, 30);
    const plain = await run(target, prompt, { ...options, maxTokens: 60 });
    for (const seed of [3, 8]) {
      const model = new DraftModel(target, await engineOf({ seed }), whole);
      const drafted = await run(target, prompt, { ...options, maxTokens: 60 }, [model]);
      expect(seen(drafted)).toEqual(seen(plain));
      const { accepted = 0, drafted: count = 0 } = drafted.timings.speculation ?? {};
      if (seed === 3 && options.temperature === 0) expect(accepted).toBe(count);
      expect(model.engine.status().running).toBe(0);
    }
  });

  test("several at once, in one cache of the draft model", async () => {
    const target = await engineOf({ seed: 3, cacheTokens: 1024 });
    const model = new DraftModel(target, await engineOf({ seed: 8, cacheTokens: 1024 }), whole);
    const prompts = [1, 2, 3].map((seed) => tinyPrompt(seed, 10 * seed));
    const options = { temperature: 0, maxTokens: 30 };
    const alone = [];
    for (const prompt of prompts) alone.push((await run(target, prompt, options)).tokenIds);
    const together = prompts.map((prompt) => run(target, prompt, options, [model]));
    expect((await Promise.all(together)).map(({ tokenIds }) => tokenIds)).toEqual(alone);
  });
});

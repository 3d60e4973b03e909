// Tokens at other positions: keys are rotated as if they had been computed there, for every type of KV cache and every backend; a
// full context goes on; a prompt whose middle is known computes the rest; models whose positions lie elsewhere refuse.

import { describe, expect, test } from "vitest";
import type { GenerateOptions, GenerationResult } from "../../../src/api/api.ts";
import type { Backend } from "../../../src/backends/backend.ts";
import { CpuBackend } from "../../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../../src/backends/reference/reference.ts";
import { SplitBackend } from "../../../src/backends/split/split.ts";
import { bytesFor } from "../../../src/dtypes/dtype.ts";
import { kvPair } from "../../../src/dtypes/kv-types.ts";
import type { Engine } from "../../../src/engine/engine.ts";
import { generate, type RunControl } from "../../../src/engine/generator.ts";
import { KV_BLOCK_TOKENS } from "../../../src/graph/batch.ts";
import { kvBlockBytes } from "../../../src/graph/cost.ts";
import { kvStates } from "../../../src/graph/graph.ts";
import { nodePlatform } from "../../../src/platform/node.ts";
import { convolutionsName, mixedName, windowsName } from "../../support/mixed-arch.ts";
import { type TinyOptions, tinyEngine, tinyPrompt } from "../../support/tiny-engine.ts";

const control: RunControl = { aborted: false, yieldThread: async () => {}, now: () => 0 };

const answer = (
  engine: Engine,
  tokens: readonly number[],
  options: Partial<GenerateOptions>,
): Promise<GenerationResult> =>
  generate(
    engine,
    { tokens, options: { temperature: 0, ignoreEos: true, ...options } },
    control,
    () => {},
  ) as Promise<GenerationResult>;

const cpu = (): Backend =>
  new CpuBackend({
    level: 3,
    threads: 1,
    startThread: () => nodePlatform.startThread("compute"),
  });

const makers: Record<string, () => Backend> = {
  reference: () => new ReferenceBackend(),
  cpu,
  split: () => new SplitBackend({ host: cpu(), device: new ReferenceBackend(), layers: 1 }),
};

/** The keys of the first layer: they depend on nothing but a token and its position. [tokens, kCols] */
async function firstKeys(engine: Engine, backend: Backend, tokens: readonly number[]) {
  const running = await engine.open({
    tokens: [...tokens, -1],
    mayAdd: 0,
    reusePieces: 1e6,
    isAborted: () => false,
  });
  const { sequence } = running;
  const { k } = kvPair(engine.kvType);
  const { kCols } = kvStates(engine.graph)[0]!;
  const block = new Uint8Array(kvBlockBytes(engine.graph, 0, engine.kvType));
  const keys = new Float32Array(sequence.length * kCols);
  for (let at = 0; at < sequence.length; at += KV_BLOCK_TOKENS) {
    const rows = Math.min(KV_BLOCK_TOKENS, sequence.length - at);
    const number = sequence.states[0]!.unitAt(at + rows)!;
    await backend.transfer!.readBlock(0, number, block);
    k.dequantize(block, 0, keys, at * kCols, bytesFor(k, rows * kCols) / k.blockBytes);
  }
  engine.close(running);
  return keys;
}

/** How far quantizing twice may move a key, relative to the largest. */
const tolerance: Record<string, number> = { f32: 1e-5, f16: 2e-3, q8_0: 0.02, q4_0: 0.3 };

describe("keys are those of the new position", () => {
  const architectures = ["llama", "qwen2", "gptneox"];
  const cases = [
    ...architectures.map((architecture) => [architecture, "reference", "f32"] as const),
    ...Object.keys(makers).map((name) => ["llama", name, "f16"] as const),
    ["llama", "cpu", "q8_0"] as const,
    ["llama", "cpu", "q4_0"] as const,
  ];
  test.each(cases)("%s on %s, %s", async (architecture, name, kvType) => {
    const backend = makers[name]!();
    const engine = await tinyEngine({ architecture, backend, kvType, parallel: 2 });
    const prompt = tinyPrompt(1, 150);
    const kept = [...prompt.slice(0, 41), ...prompt.slice(94)];
    await answer(engine, prompt, { maxTokens: 1 });
    // 41 stay, 53 go: neither is a block boundary.
    const running = await engine.open({
      tokens: [...prompt, -1],
      mayAdd: 0,
      isAborted: () => false,
    });
    await engine.dropTokens(running, { keep: 41, count: 53 }, async () => {});
    expect(running.sequence.exactTokens).toBe(41);
    engine.close({ ...running, keepsMoved: true });
    const moved = await firstKeys(engine, backend, kept);
    await engine.forgetPrefixes();
    await answer(engine, kept, { maxTokens: 1 });
    const computed = await firstKeys(engine, backend, kept);
    expect(moved.length).toBe(computed.length);
    const largest = computed.reduce((most, key) => Math.max(most, Math.abs(key)), 0);
    const worst = moved.reduce((most, key, i) => Math.max(most, Math.abs(key - computed[i]!)), 0);
    expect(worst / largest).toBeLessThan(tolerance[kvType]!);
    engine.dispose();
  });
});

describe("context shift", () => {
  const prompt = tinyPrompt(1, 50);

  test("goes on as long as it is asked to, and says what it dropped", async () => {
    const engine = await tinyEngine({ contextSize: 96 });
    const plain = await answer(engine, prompt, { maxTokens: 200 });
    expect(plain).toMatchObject({ stopReason: "context" });
    const options = { maxTokens: 200, contextShift: true, keepTokens: 10 };
    const shifted = await answer(engine, prompt, options);
    expect(shifted.stopReason).toBe("length");
    expect(shifted.tokenIds.length).toBe(200);
    const bos = engine.tokenizer.special.addBos ? 1 : 0;
    // 95 tokens are there, and half of those after the kept ones go.
    const discarded = Math.floor((95 - 10 - bos) / 2);
    expect(shifted.timings.contextShifts?.[0]).toEqual({ kept: 10 + bos, discarded });
    expect(shifted.timings.contextShifts?.length).toBe(Math.ceil((50 + 199 - 95) / discarded));
    // Up to there it is the same text.
    expect(shifted.tokenIds.slice(0, 45)).toEqual(plain.tokenIds.slice(0, 45));
    // And it is nobody's beginning: the next prompt with these tokens computes what was moved.
    const after = [...prompt, ...shifted.tokenIds.slice(0, 40)];
    const fresh = await tinyEngine({ contextSize: 96 });
    expect((await answer(engine, after, { maxTokens: 5 })).tokenIds).toEqual(
      (await answer(fresh, after, { maxTokens: 5 })).tokenIds,
    );
    expect(engine.status().running).toBe(0);
    engine.dispose();
    fresh.dispose();
  });

  test("is the same text on every backend", async () => {
    const said: number[][] = [];
    for (const make of Object.values(makers)) {
      const engine = await tinyEngine({ contextSize: 96, backend: make() });
      const options = { maxTokens: 120, contextShift: true };
      said.push((await answer(engine, prompt, options)).tokenIds);
      engine.dispose();
    }
    expect(said[1]).toEqual(said[0]);
    expect(said[2]).toEqual(said[0]);
  });

  test("drops as many as it is told, and stops where all must be kept", async () => {
    const engine = await tinyEngine({ contextSize: 96 });
    const options = { maxTokens: 60, contextShift: true };
    const some = await answer(engine, prompt, { ...options, discardTokens: 7 });
    expect(some.timings.contextShifts?.map(({ discarded }) => discarded)).toEqual([7, 7]);
    const all = await answer(engine, tinyPrompt(2, 92), { ...options, keepTokens: -1 });
    expect(all.timings.contextShifts?.every(({ kept }) => kept === 92)).toBe(true);
    for (const wrong of [{ keepTokens: -2 }, { discardTokens: 1.5 }]) {
      await expect(answer(engine, prompt, { ...options, ...wrong })).rejects.toThrow("expected");
    }
    engine.dispose();
  });

  const refusals: [TinyOptions, RegExp][] = [
    [{ architecture: mixedName }, /cannot shift: it has recurrent layers/],
    [{ architecture: convolutionsName }, /cannot shift: it has recurrent layers/],
    [{ architecture: windowsName }, /cannot shift: it has layers with a window/],
    [{ architecture: "gpt2" }, /cannot shift: its positions are learned/],
    [{ architecture: "bloom" }, /cannot shift: its attention adds a bias/],
    [{ architecture: "deepseek2" }, /cannot shift: its keys are not rotated as a whole/],
  ];
  test.each(refusals)("%s refuses with the reason", async (options, reason) => {
    const engine = await tinyEngine(options);
    expect(engine.info.noContextShift).toBeDefined();
    const asked = answer(engine, tinyPrompt(1, 8), { maxTokens: 1, contextShift: true });
    await expect(asked).rejects.toThrow(reason);
    engine.dispose();
  });
});

describe("a prompt whose middle is known", () => {
  const [system, dropped, kept, question] = [
    tinyPrompt(1, 40),
    tinyPrompt(2, 37),
    tinyPrompt(3, 61),
    tinyPrompt(4, 9),
  ] as [number[], number[], number[], number[]];

  test("takes the pieces that are long enough from another position", async () => {
    for (const make of Object.values(makers)) {
      const engine = await tinyEngine({ parallel: 2, backend: make() });
      await answer(engine, [...system, ...dropped, ...kept], { maxTokens: 1 });
      const prompt = [...system, ...kept, ...question];
      const plain = await answer(engine, prompt, { maxTokens: 8 });
      expect(plain.timings.cachedTokens).toBe(40);
      await engine.forgetPrefixes();
      await answer(engine, [...system, ...dropped, ...kept], { maxTokens: 1 });
      const reused = await answer(engine, prompt, { maxTokens: 8, cacheReuse: 20 });
      expect(reused.timings).toMatchObject({ cachedTokens: 101, movedTokens: 61 });
      // Who does not ask for it never gets it.
      const exact = await answer(engine, prompt, { maxTokens: 8 });
      expect(exact.timings.cachedTokens).toBe(40);
      expect(exact.tokenIds).toEqual(plain.tokenIds);
      // The next turn goes on from what was moved.
      const next = [...prompt, ...reused.tokenIds, ...question];
      const turn = await answer(engine, next, { maxTokens: 2, cacheReuse: 20 });
      expect(turn.timings.cachedTokens).toBe(prompt.length + 7);
      engine.dispose();
    }
  });

  test("not pieces that are shorter, and nothing where the model cannot", async () => {
    for (const [architecture, cacheReuse] of [
      ["llama", 62],
      ["gpt2", 20],
    ] as const) {
      const engine = await tinyEngine({ parallel: 2, architecture });
      await answer(engine, [...system, ...dropped, ...kept], { maxTokens: 1 });
      const prompt = [...system, ...kept, ...question];
      const { timings } = await answer(engine, prompt, { maxTokens: 1, cacheReuse });
      expect(timings).toMatchObject({ cachedTokens: 40 });
      engine.dispose();
    }
  });
});

test("a prompt that must not be reused is computed, and known afterwards", async () => {
  const engine = await tinyEngine();
  const prompt = tinyPrompt(1, 60);
  const first = await answer(engine, prompt, { maxTokens: 5 });
  const again = await answer(engine, prompt, { maxTokens: 5, cachePrompt: false });
  expect(again.timings.cachedTokens).toBe(0);
  expect(again.tokenIds).toEqual(first.tokenIds);
  expect((await answer(engine, prompt, { maxTokens: 5 })).timings.cachedTokens).toBe(59);
  engine.dispose();
});

// State that was saved and loaded: a text goes on from it bit for bit, whatever kinds of state the model has and whatever computes
// it; a file of another model, a truncated and a damaged one are refused, and nothing has changed.

import { describe, expect, test } from "vitest";
import type { TokenEvent } from "../../../src/api/api.ts";
import type { Backend } from "../../../src/backends/backend.ts";
import { CpuBackend } from "../../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../../src/backends/reference/reference.ts";
import { SplitBackend } from "../../../src/backends/split/split.ts";
import { crc32 } from "../../../src/base/crc32.ts";
import { SourceError, UsageError } from "../../../src/base/errors.ts";
import type { Engine } from "../../../src/engine/engine.ts";
import { generate, type RunControl } from "../../../src/engine/generator.ts";
import type { StateSource } from "../../../src/engine/saved/state-file.ts";
import { nodePlatform } from "../../../src/platform/node.ts";
import { mixedName } from "../../support/mixed-arch.ts";
import { Random } from "../../support/random.ts";
import { type TinyOptions, tinyEngine, tinyPrompt } from "../../support/tiny-engine.ts";

const control: RunControl = { aborted: false, yieldThread: async () => {}, now: () => 0 };
const how = { crc32, isAborted: () => false };

const load = (options: TinyOptions = {}): Promise<Engine> =>
  tinyEngine({ contextSize: 320, parallel: 2, ...options });

async function answer(engine: Engine, tokens: readonly number[], maxTokens: number) {
  const events: TokenEvent[] = [];
  const options = { temperature: 0, maxTokens, logprobs: 2 };
  const result = await generate(engine, { tokens, options }, control, (event) => {
    events.push(event);
  });
  return { events, tokens: result.tokenIds, cached: result.timings.cachedTokens };
}

async function bytesOf(engine: Engine, tokens: readonly number[]): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  let announced = 0;
  await engine.saved.save(tokens, how, async (bytes) => {
    announced = bytes;
    return { write: async (piece) => void pieces.push(piece.slice()) };
  });
  const all = Buffer.concat(pieces);
  expect(all.length).toBe(announced);
  return all;
}

const sourceOf = (bytes: Uint8Array): StateSource => ({
  name: "test",
  size: bytes.length,
  readInto: async (offset, target) => target.set(bytes.subarray(offset, offset + target.length)),
});

const cpu = (): Backend =>
  new CpuBackend({
    level: 3,
    threads: 2,
    startThread: () => nodePlatform.startThread("compute"),
  });
const split = (): Backend =>
  new SplitBackend({ host: cpu(), device: new ReferenceBackend(), layers: 1 });

const prompt = tinyPrompt(1, 100);

/** Saves after a first answer, loads into another engine, and goes on there and here. */
async function goesOn(options: () => TinyOptions): Promise<void> {
  const engine = await load(options());
  const first = await answer(engine, prompt, 25);
  const text = [...prompt, ...first.tokens];
  const saved = await bytesOf(engine, text);
  const next = [...text, ...tinyPrompt(2, 20)];
  const here = await answer(engine, next, 30);
  engine.dispose();
  const other = await load(options());
  const tokens = await other.saved.load(sourceOf(saved), how);
  // The last token of an answer is never computed.
  expect([...tokens]).toEqual(text.slice(0, -1));
  const there = await answer(other, next, 30);
  expect(there).toMatchObject({ cached: text.length - 1, events: here.events });
  other.dispose();
}

const makers: Record<string, () => Backend> = {
  reference: () => new ReferenceBackend(),
  cpu,
  split,
};

describe("a text goes on where it was saved", () => {
  for (const [name, backend] of Object.entries(makers)) {
    test(`with windows and recurrent state on ${name}`, () =>
      goesOn(() => ({ architecture: mixedName, backend: backend() })));
  }
  test.each(["f16", "q8_0", "q4_0"])("with a KV cache of %s", (kvType) =>
    goesOn(() => ({ kvType, backend: cpu() })),
  );
});

test("another backend goes on as well, and says that it rounds otherwise", async () => {
  const engine = await load({ backend: new ReferenceBackend() });
  await answer(engine, prompt, 1);
  const saved = await bytesOf(engine, prompt);
  engine.dispose();
  const other = await load({ backend: cpu() });
  const warnings: string[] = [];
  other.onWarning = (warning) => void warnings.push(warning);
  await other.saved.load(sourceOf(saved), how);
  expect(warnings).toEqual([expect.stringContaining("was computed by reference")]);
  expect((await answer(other, [...prompt, 7], 5)).cached).toBe(100);
  other.dispose();
});

test("only what is known is saved, and nothing is an error", async () => {
  const engine = await load();
  await answer(engine, prompt, 1);
  const pieces: Uint8Array[] = [];
  const sink = async () => ({ write: async (piece: Uint8Array) => void pieces.push(piece) });
  const found = await engine.saved.save([...prompt, ...tinyPrompt(9, 40)], how, sink);
  expect(found.tokens).toBe(100);
  const unknown = engine.saved.save(tinyPrompt(5, 40), how, sink);
  await expect(unknown).rejects.toThrow(UsageError);
  await expect(unknown).rejects.toThrow("nothing of these tokens");
  expect(engine.status()).toMatchObject({ running: 0 });
  engine.dispose();
});

describe("refused, and nothing has changed", () => {
  test("another model, another type of the KV cache, too small a context", async () => {
    const engine = await load();
    await answer(engine, prompt, 1);
    const saved = sourceOf(await bytesOf(engine, prompt));
    engine.dispose();
    const cases: [TinyOptions, string][] = [
      [{ architecture: "qwen2" }, 'was saved with "tiny" (llama, KV cache f32), and this is'],
      [{ kvType: "f16" }, "(llama, KV cache f32), and this is"],
      [{ contextSize: 64 }, "it has 100 tokens, and the context holds 64"],
    ];
    for (const [options, message] of cases) {
      const other = await load(options);
      await expect(other.saved.load(saved, how)).rejects.toThrow(message);
      expect(other.status()).toMatchObject({ kvBlocksUsed: 0, running: 0, cachedSequences: 0 });
      other.dispose();
    }
  });

  test("truncated, prolonged and damaged files, at every place", async () => {
    const engine = await load({ architecture: mixedName, contextSize: 320 });
    await answer(engine, prompt, 1);
    const saved = await bytesOf(engine, prompt);
    const before = engine.status();
    const random = new Random(3);
    const spoiled: Uint8Array[] = [new Uint8Array(), Buffer.concat([saved, Buffer.alloc(1)])];
    for (let i = 0; i < 30; i++) spoiled.push(saved.slice(0, random.below(saved.length)));
    const places = [0, 9, 13, 17, 21, 25, 33, 49, 65, 300];
    for (let i = 0; i < 40; i++) places.push(random.below(saved.length));
    for (const place of places) {
      const flipped = saved.slice();
      flipped[place]! ^= 1 << random.below(8);
      spoiled.push(flipped);
    }
    for (const bytes of spoiled) {
      const loaded = engine.saved.load(sourceOf(bytes), how);
      await expect(loaded).rejects.toThrow(SourceError);
      await expect(loaded).rejects.toThrow('saved state "test" is not used');
    }
    expect(engine.status()).toEqual(before);
    engine.dispose();
  });
});

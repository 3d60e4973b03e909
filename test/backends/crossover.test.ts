// From how many tokens on a device helps with prompts: what follows from measured times, and that a choice which was made once stays.

import { expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { SplitBackend } from "../../src/backends/split/split.ts";
import { crossing, msOf } from "../../src/backends/switch/crossover.ts";
import { SwitchBackend } from "../../src/backends/switch/switch.ts";
import type { GpuFacts } from "../../src/backends/webgpu/device.ts";
import { knownUseless, type OffloadKey, offloading } from "../../src/load/offload.ts";
import { greedyTokens, tinyEngine, tinyPrompt } from "../support/tiny-engine.ts";

const times = (...pairs: [number, number][]) => pairs.map(([tokens, ms]) => ({ tokens, ms }));

test("times are on lines between what was measured, and in proportion beyond", () => {
  const measured = times([32, 10], [128, 34]);
  expect([16, 32, 80, 128, 512].map((tokens) => msOf(measured, tokens))).toEqual([
    10, 10, 22, 34, 136,
  ]);
});

test("the crossover: clearly faster from there on, with every number of tokens", () => {
  const device = times([32, 50], [512, 60]);
  expect(crossing(times([32, 10], [512, 160]), device, 512)).toBe(224);
  expect(crossing(times([32, 100], [512, 1600]), device, 512)).toBe(32);
  // Faster by less than 15 %, or only in the middle.
  expect(crossing(times([32, 10], [512, 66]), device, 512)).toBeUndefined();
  expect(crossing(times([32, 10], [256, 200], [512, 62]), device, 512)).toBeUndefined();
});

const facts = { vendor: "v", architecture: "a", name: "gpu", driver: "1" } as unknown as GpuFacts;
const key: OffloadKey = { model: "m", cpu: "c", threads: 4, kernels: "k", layers: 2 };

/** A backend whose batches take so long on a clock of its own. */
function timed(clock: { ms: number }, msOfBatch: (tokens: number) => number): Backend {
  const backend = new ReferenceBackend();
  const run = backend.run.bind(backend);
  return Object.assign(backend, {
    batchTokens: 512,
    run: (...args: Parameters<Backend["run"]>) => {
      clock.ms += msOfBatch(args[0].tokenCount);
      return run(...args);
    },
  });
}

function disk() {
  const files = new Map<string, string>();
  const platform = {
    smallFiles: () => ({
      read: async (name: string) => files.get(name),
      write: async (name: string, text: string) => void files.set(name, text),
    }),
  };
  return { files, platform };
}

async function decided(files: ReturnType<typeof disk>, deviceMs: number) {
  const clock = { ms: 0 };
  const sides = {
    host: timed(clock, (tokens) => tokens),
    device: timed(clock, () => deviceMs),
  };
  const platform = { ...files.platform, now: () => clock.ms } as never;
  const { backend, decide } = offloading(sides, undefined, facts, key, platform);
  const engine = await tinyEngine({ backend, contextSize: 512 });
  await decide(() => {});
  const text = backend.explain().join("\n");
  engine.dispose();
  return { text, ms: clock.ms };
}

test("what is measured at the first load counts at the next ones", async () => {
  const files = disk();
  const first = await decided(files, 100);
  expect(first.text).toMatch(
    /op offload: prompts of 128 tokens and more \(measured: 32 tokens 33 ms on the processor and 101 on the GPU, 512 tokens 513 ms on the processor and 101 on the GPU\)/,
  );
  // Other times now: nothing is measured.
  const second = await decided(files, 10_000);
  expect(second.text).toMatch(/op offload: prompts of 128 tokens and more \(measured earlier: /);
  expect(second.ms).toBe(0);
  expect(await knownUseless(facts, key, files.platform as never)).toBeUndefined();
});

test("no gain: the processor computes, and nothing is opened the next time", async () => {
  const files = disk();
  const { text } = await decided(files, 500);
  expect(text).toMatch(/op offload: no. the GPU is not clearly faster \(measured: /);
  expect(await knownUseless(facts, key, files.platform as never)).toMatch(/not clearly faster/);
  const other = { ...key, model: "another" };
  expect(await knownUseless(facts, other, files.platform as never)).toBeUndefined();
});

test.each(["", "{", '{"version":1,"runs":[{"key":3},null]}', '{"version":9,"runs":[]}'])(
  "a file that is damaged counts as none: %s",
  async (text) => {
    const files = disk();
    files.files.set("offload.json", text);
    expect(await knownUseless(facts, key, files.platform as never)).toBeUndefined();
    expect((await decided(files, 100)).text).toMatch(/128 tokens and more \(measured: /);
  },
);

test("the front of a split takes turns: prompts of both sides and generated tokens in one batch", async () => {
  const prompts = [20, 60, 45, 90].map((length, i) => tinyPrompt(i + 1, length));
  const alone = await tinyEngine();
  const expected: number[][] = [];
  for (const tokens of prompts) expected.push(await greedyTokens(alone, tokens, 8));
  alone.dispose();
  const helper = Object.assign(new ReferenceBackend(), { batchTokens: 128 });
  const host = new SwitchBackend({
    ...{ host: new ReferenceBackend(), device: helper, helps: "if it can" },
    choice: { prompt: 1, generation: 0, fewest: 40 },
  });
  const sizes: number[] = [];
  const run = helper.run.bind(helper);
  helper.run = (batch, options) => {
    sizes.push(batch.tokenCount);
    return run(batch, options);
  };
  const device = Object.assign(new ReferenceBackend(), { batchTokens: 128 });
  const backend = new SplitBackend({ host, device, layers: 2 });
  const engine = await tinyEngine({ backend, parallel: 4, cacheTokens: 1024, promptChunk: 64 });
  const texts = await Promise.all(prompts.map((tokens) => greedyTokens(engine, tokens, 8)));
  expect(texts).toEqual(expected);
  expect(sizes.length).toBeGreaterThan(0);
  expect(Math.min(...sizes)).toBeGreaterThanOrEqual(40);
  expect(host.copiedBlocks).toBeGreaterThan(0);
  engine.dispose();
});

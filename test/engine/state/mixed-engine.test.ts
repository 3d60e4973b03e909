// The engine over a model that keeps every kind of state. It knows none of them: texts are those of a fresh engine, whatever
// is reused, shared, lost or computed elsewhere.

import { describe, expect, test } from "vitest";
import type { TokenEvent } from "../../../src/api/api.ts";
import type { Backend } from "../../../src/backends/backend.ts";
import { CpuBackend } from "../../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../../src/backends/reference/reference.ts";
import { SplitBackend } from "../../../src/backends/split/split.ts";
import { dtypeByName } from "../../../src/dtypes/table.ts";
import type { Engine } from "../../../src/engine/engine.ts";
import { generate, type RunControl } from "../../../src/engine/generator.ts";
import { estimateMemory } from "../../../src/engine/memory.ts";
import { nodePlatform } from "../../../src/platform/node.ts";
import { convolutionsName, mixedName, windowsName } from "../../support/mixed-arch.ts";
import { type TinyOptions, tinyEngine, tinyPrompt } from "../../support/tiny-engine.ts";

const load = (options: TinyOptions = {}): Promise<Engine> =>
  tinyEngine({ architecture: mixedName, contextSize: 320, parallel: 3, ...options });

interface Answer {
  /** With the log-probabilities of each token: not only the text is the same. */
  readonly events: readonly TokenEvent[];
  readonly tokens: readonly number[];
  readonly cached: number;
}

function controlOf(): RunControl & { aborted: boolean } {
  const yieldThread = () => new Promise<void>((resolve) => setImmediate(resolve));
  return { aborted: false, yieldThread, now: () => 0 };
}

async function answer(
  engine: Engine,
  tokens: readonly number[],
  maxTokens: number,
  control: RunControl = controlOf(),
  seen: (events: readonly TokenEvent[]) => void = () => {},
): Promise<Answer> {
  const events: TokenEvent[] = [];
  const options = { temperature: 0, maxTokens, logprobs: 2 };
  const result = await generate(engine, { tokens, options }, control, (event) => {
    events.push(event);
    seen(events);
  });
  return { events, tokens: result.tokenIds, cached: result.timings.cachedTokens };
}

/** What an engine says that has computed nothing before. */
async function fresh(tokens: readonly number[], maxTokens: number): Promise<Answer> {
  const engine = await load();
  const said = await answer(engine, tokens, maxTokens);
  expect(said.cached).toBe(0);
  engine.dispose();
  return said;
}

const prompt = tinyPrompt(1, 100);

describe("what was computed is reused", () => {
  test("by another turn, from where the first one ended", async () => {
    const engine = await load();
    const first = await answer(engine, prompt, 30);
    const turn = [...prompt, ...first.tokens, ...tinyPrompt(2, 20)];
    const second = await answer(engine, turn, 10);
    expect(second.cached).toBe(129); // nobody has computed what comes after the last token
    expect(second.events).toEqual((await fresh(turn, 10)).events);
    engine.dispose();
  });

  test("by the same prompt and by another branch, from the last checkpoint", async () => {
    const engine = await load();
    const first = await answer(engine, prompt, 60);
    const again = await answer(engine, prompt, 60);
    expect(again.cached).toBe(96);
    expect(again.events).toEqual(first.events);
    const branch = [...prompt.slice(0, 98), ...tinyPrompt(3, 9)];
    const other = await answer(engine, branch, 20);
    expect(other.cached).toBe(96);
    expect(other.events).toEqual((await fresh(branch, 20)).events);
    engine.dispose();
  });

  test("by nobody where no checkpoint is early enough", async () => {
    const engine = await load();
    await answer(engine, prompt, 10);
    const other = [...prompt.slice(0, 90), ...tinyPrompt(4, 5)];
    const said = await answer(engine, other, 5);
    expect(said.cached).toBe(0);
    expect(said.events).toEqual((await fresh(other, 5)).events);
    engine.dispose();
  });
});

test("generations at the same time say what they say alone, in room for three", async () => {
  const prompts = [120, 3, 64, 33].map((length, i) => tinyPrompt(10 + i, length));
  const alone = await Promise.all(prompts.map((tokens) => fresh(tokens, 25)));
  const engine = await load();
  const together = await Promise.all(prompts.map((tokens) => answer(engine, tokens, 25)));
  expect(together.map(({ events }) => events)).toEqual(alone.map(({ events }) => events));
  engine.dispose();
});

describe("a batch that does not come to its end leaves everything as it was", () => {
  test("it fails: the next try says the same", async () => {
    const backend = new ReferenceBackend();
    const run = backend.run.bind(backend);
    let left = 12; // batches until one fails, after it was computed
    backend.run = (batch, options) => {
      run(batch, options);
      if (--left === 0) throw new Error("a fault");
    };
    const engine = await load({ backend });
    await expect(answer(engine, prompt, 30)).rejects.toThrow("a fault");
    const said = await answer(engine, prompt, 30);
    expect(said.cached).toBe(96);
    expect(said.events).toEqual((await fresh(prompt, 30)).events);
    engine.dispose();
  });

  test("it is aborted: whoever goes on from there says the same", async () => {
    const engine = await load();
    const control = controlOf();
    const stopped = await answer(engine, prompt, 30, control, (events) => {
      control.aborted = events.length === 9;
    });
    const turn = [...prompt, ...stopped.tokens, 5, 6, 7];
    const said = await answer(engine, turn, 10);
    expect(said.cached).toBeGreaterThan(100);
    expect(said.events).toEqual((await fresh(turn, 10)).events);
    engine.dispose();
  });
});

const cpu = (threads: number): Backend =>
  new CpuBackend({ level: 3, threads, startThread: () => nodePlatform.startThread("compute") });

describe("elsewhere", () => {
  test("threads and neighbours change nothing", async () => {
    const said: Answer[][] = [];
    for (const threads of [1, 2]) {
      const engine = await load({ backend: cpu(threads) });
      said.push(await Promise.all([100, 40].map((n) => answer(engine, tinyPrompt(n, n), 20))));
      engine.dispose();
      await engine.ended();
    }
    expect(said[0]).toEqual(said[1]);
  });

  test("taps of another type than f32 give the reference's tokens, over the same slots", async () => {
    const weightType = "f16";
    const engine = await load({ weightType, backend: cpu(1) });
    const other = await load({ weightType });
    const first = await answer(engine, prompt, 20);
    expect(first.tokens).toEqual((await answer(other, prompt, 20)).tokens);
    expect(await answer(engine, prompt, 20)).toMatchObject({ cached: 96, events: first.events });
    for (const one of [engine, other]) one.dispose();
  });

  test.each([1, 3, 5])("with %i layers on another backend", async (layers) => {
    const [host, device] = [new ReferenceBackend(), new ReferenceBackend()];
    const engine = await load({ backend: new SplitBackend({ host, device, layers }) });
    const first = await answer(engine, prompt, 20);
    expect(first.events).toEqual((await fresh(prompt, 20)).events);
    const again = await answer(engine, prompt, 20);
    expect(again).toMatchObject({ cached: 96, events: first.events });
    engine.dispose();
  });
});

describe.each([windowsName, convolutionsName])(
  "a model that keeps nothing for good, %s",
  (architecture) => {
    const sizes = { architecture, contextSize: 512, parallel: 1 };

    test("goes on far beyond what its pools hold, and from there", async () => {
      const engine = await load({ ...sizes, backend: cpu(1) });
      const said = await answer(engine, prompt, 300);
      expect(said.events).toHaveLength(300);
      const turn = [...prompt, ...said.tokens, 1, 2];
      const other = await load(sizes); // on the reference
      const [next, fromScratch] = [await answer(engine, turn, 5), await answer(other, turn, 5)];
      expect(next.cached).toBe(399);
      expect(fromScratch.cached).toBe(0);
      expect(next.tokens).toEqual(fromScratch.tokens);
      expect(engine.status().kvBlocksUsed).toBeLessThan(16);
      for (const one of [engine, other]) one.dispose();
    });
  },
);

describe("memory", () => {
  test("windows and recurrent state take theirs, however long the context is", async () => {
    const [short, long] = [await load({ contextSize: 256 }), await load({ contextSize: 512 })];
    const f32 = dtypeByName("f32")!;
    const row = 2 * 4 * 2 * 16; // keys and values of a token in one layer
    const estimate = (tokens: number) => estimateMemory(short.graph, tokens, f32).kvBytes;
    // Of the windows of 70 and 9: the span that a batch of 32 reads, 32 to go back by, and as much again for what is kept.
    const windows = 32 * row * (2 * 2 * 6 + 2 * 4);
    const slots = 4 * (3 + 2) * 32 * 4;
    expect(estimate(512)).toBe(512 * row + windows + slots);
    expect(estimate(100)).toBe(128 * row * 4 + slots); // whole blocks, and shorter than the windows' room
    const held = (engine: Engine) => engine.status().stateBytesHeld;
    // The window of 70 has all 8 blocks of the short context, and 12 of the 16 of the long one.
    expect(held(long) - held(short)).toBe(256 * row + 2 * 4 * 32 * row);
    for (const engine of [short, long]) engine.dispose();
  });

  test.each([mixedName, windowsName, convolutionsName])(
    "%s: what is estimated of a context is what a backend allocates for it",
    async (architecture) => {
      for (const contextSize of [33, 256, 512]) {
        const backend = new ReferenceBackend();
        const engine = await load({ architecture, contextSize, parallel: 1, backend });
        const allocated = backend.memory().kvBytes;
        expect(engine.info.stateBytes).toBe(allocated);
        expect(engine.status().stateBytes).toBe(allocated);
        const { kvBytes } = estimateMemory(engine.graph, contextSize, engine.kvType);
        expect(kvBytes, `${contextSize} tokens`).toBe(allocated);
        engine.dispose();
      }
    },
  );
});

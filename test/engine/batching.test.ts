// Many generations at once: each gets the same result as alone, they share batches, none is starved, and cached
// prefixes are not computed again.

import { describe, expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { backendByName } from "../../src/backends/table.ts";
import type { Engine } from "../../src/engine/engine.ts";
import { type Generated, generate, type RunControl } from "../../src/engine/generator.ts";
import { Random } from "../support/random.ts";
import { tinyEngine, tinyShape } from "../support/tiny-engine.ts";

const greedy = { temperature: 0 };

function control(aborted = false): RunControl & { aborted: boolean } {
  return {
    aborted,
    yieldThread: () => new Promise((resolve) => setImmediate(resolve)),
    now: () => 0,
  };
}

function run(
  engine: Engine,
  tokens: number[],
  maxTokens: number,
  watch: RunControl = control(),
  seen?: () => void,
): Promise<Generated> {
  return generate(engine, { tokens, options: { ...greedy, maxTokens } }, watch, seen ?? (() => {}));
}

function prompt(seed: number, length: number): number[] {
  const random = new Random(seed);
  return Array.from({ length }, () => random.below(tinyShape.vocab));
}

/** The sizes of all batches: tokens in each, and of how many sequences. */
function watched(backend: Backend): {
  backend: Backend;
  batches: { tokens: number; tables: number }[];
} {
  const batches: { tokens: number; tables: number }[] = [];
  const original = backend.run.bind(backend);
  backend.run = (batch, options) => {
    const tables = new Set(batch.sequences.slice(0, batch.tokenCount));
    batches.push({ tokens: batch.tokenCount, tables: tables.size });
    return original(batch, options);
  };
  return { backend, batches };
}

function cpuBackend(): Backend {
  return backendByName("cpu")!.create({ level: 3, threads: 1, startThread: undefined });
}

describe.each([
  ["reference", () => new ReferenceBackend()],
  ["cpu", cpuBackend],
])("in a batch, %s", (_, make) => {
  test.each(["f32", "q8_0"])(
    "everybody gets what they get alone (%s weights)",
    async (weightType) => {
      const prompts = [3, 40, 1, 70, 9].map((length, i) => prompt(i + 1, length));
      const alone: number[][] = [];
      for (const tokens of prompts) {
        const engine = await tinyEngine({ weightType, backend: make() });
        alone.push((await run(engine, tokens, 20)).tokenIds);
        engine.dispose();
      }
      const { backend, batches } = watched(make());
      const engine = await tinyEngine({ weightType, backend, cacheTokens: 2048 });
      // They begin at different times, so that prompts are read while others decode.
      const together = prompts.map(async (tokens, i) => {
        for (let wait = 0; wait < 3 * i; wait++) await new Promise((done) => setImmediate(done));
        return (await run(engine, tokens, 20)).tokenIds;
      });
      expect(await Promise.all(together)).toEqual(alone);
      expect(Math.max(...batches.map(({ tables }) => tables))).toBeGreaterThan(2);
      engine.dispose();
    },
  );
});

describe.each([
  ["reference", () => new ReferenceBackend() as Backend],
  ["cpu", cpuBackend],
])("the same prompt at the same time, %s", (_, make) => {
  test.each([40, 46, 96])("is computed once: %i tokens", async (length) => {
    const tokens = prompt(7, length);
    const sampled = async (engine: Engine, seed: number, more: { cachePrompt?: boolean } = {}) => {
      const options = { temperature: 1, seed, maxTokens: 12, ignoreEos: true, ...more };
      return await generate(engine, { tokens, options }, control(), () => {});
    };
    const alone: number[][] = [];
    for (const seed of [1, 2, 3]) {
      const engine = await tinyEngine({ backend: make() });
      alone.push((await sampled(engine, seed)).tokenIds);
      engine.dispose();
    }
    expect(new Set(alone.map((ids) => ids.join())).size).toBe(3);

    const { backend, batches } = watched(make());
    const engine = await tinyEngine({ backend, cacheTokens: 2048 });
    const together = await Promise.all([1, 2, 3].map((seed) => sampled(engine, seed)));
    expect(together.map(({ tokenIds }) => tokenIds)).toEqual(alone);
    // All but the last token, whose logits everybody needs.
    const cached = together.map(({ timings }) => timings.cachedTokens);
    expect(cached).toEqual([0, length - 1, length - 1]);
    // 12 tokens are sampled, and 11 of them computed.
    const computed = batches.reduce((sum, batch) => sum + batch.tokens, 0);
    expect(computed).toBe(length + 2 + 3 * 11);
    // They write side by side.
    expect(batches.some(({ tables }) => tables === 3)).toBe(true);
    // Who wants it computed computes it.
    const anew = await Promise.all(
      [1, 2].map((seed) => sampled(engine, seed, { cachePrompt: false })),
    );
    expect(anew.map(({ timings }) => timings.cachedTokens)).toEqual([0, 0]);
    engine.dispose();
  });

  test("that was given up is computed by the next", async () => {
    const engine = await tinyEngine({ backend: make(), contextSize: 512, cacheTokens: 2048 });
    const first = control();
    const tokens = prompt(7, 300);
    const given = run(engine, tokens, 4, first);
    const second = run(engine, tokens, 4);
    await new Promise((resolve) => setImmediate(resolve));
    first.aborted = true;
    expect((await given).stopReason).toBe("aborted");
    expect((await second).tokenIds).toHaveLength(4);
    engine.dispose();
  });
});

describe("batches", () => {
  test("are shared: four that write together take the batches of one", async () => {
    const { backend, batches } = watched(new ReferenceBackend());
    const engine = await tinyEngine({ backend, cacheTokens: 2048 });
    await Promise.all([1, 2, 3, 4].map((seed) => run(engine, prompt(seed, 4), 16)));
    expect(batches.filter(({ tables }) => tables === 4).length).toBeGreaterThanOrEqual(14);
    expect(batches.length).toBeLessThan(22);
    engine.dispose();
  });

  test("take no more of a prompt than a chunk while others decode, and all they can when nobody does", async () => {
    const { backend, batches } = watched(new ReferenceBackend());
    const engine = await tinyEngine({
      backend,
      contextSize: 512,
      cacheTokens: 2048,
      promptChunk: 8,
    });
    await run(engine, prompt(1, 96), 1);
    expect(batches.map(({ tokens }) => tokens)).toEqual([32, 32, 32]);
    batches.length = 0;
    let writes = 0;
    const reader: { done?: Promise<Generated> } = {};
    // So long that there are shared batches also where a busy machine keeps the writer waiting now and then.
    await run(engine, prompt(2, 4), 80, control(), () => {
      if (++writes === 4) reader.done = run(engine, prompt(3, 450), 1);
    });
    await reader.done;
    const shared = batches.filter(({ tables }) => tables === 2);
    expect(shared.length).toBeGreaterThan(10);
    expect(Math.max(...shared.map(({ tokens }) => tokens))).toBe(9);
    engine.dispose();
  });

  test("fill up the tiles of tokens that a backend computes at once", async () => {
    const { backend, batches } = watched(Object.assign(new ReferenceBackend(), { tokenTile: 16 }));
    const sizes = { contextSize: 512, cacheTokens: 2048, promptChunk: 8 };
    const engine = await tinyEngine({ backend, ...sizes });
    let writes = 0;
    const reader: { done?: Promise<Generated> } = {};
    // So long that there are shared batches also where a busy machine keeps the writer waiting now and then.
    await run(engine, prompt(2, 4), 80, control(), () => {
      if (++writes === 4) reader.done = run(engine, prompt(3, 450), 1);
    });
    await reader.done;
    const shared = batches.filter(({ tables }) => tables === 2).map(({ tokens }) => tokens);
    expect(shared.slice(0, 6)).toEqual([16, 16, 16, 16, 16, 16]);
    engine.dispose();
  });

  test("go on for the others when one gives up", async () => {
    const engine = await tinyEngine({ cacheTokens: 2048 });
    const alone = (await run(await tinyEngine(), prompt(1, 5), 30)).tokenIds;
    const leaving = control();
    let seen = 0;
    const [stays, leaves] = await Promise.all([
      run(engine, prompt(1, 5), 30),
      run(engine, prompt(2, 5), 30, leaving, () => {
        leaving.aborted = ++seen === 7;
      }),
    ]);
    expect(stays.tokenIds).toEqual(alone);
    expect(leaves.stopReason).toBe("aborted");
    expect(leaves.tokenIds).toHaveLength(7);
    expect(engine.status().running).toBe(0);
    engine.dispose();
  });

  test("that fail are an error for all in them, and the engine goes on", async () => {
    const backend = new ReferenceBackend();
    const engine = await tinyEngine({ backend, cacheTokens: 2048 });
    const original = backend.run.bind(backend);
    let batches = 0;
    backend.run = (batch, options) => {
      if (++batches === 5) throw new Error("a thread was lost");
      return original(batch, options);
    };
    const results = await Promise.allSettled(
      [1, 2].map((seed) => run(engine, prompt(seed, 3), 20)),
    );
    expect(results.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    const alone = await run(await tinyEngine(), prompt(1, 3), 20);
    expect((await run(engine, prompt(1, 3), 20)).tokenIds).toEqual(alone.tokenIds);
    expect(engine.status().running).toBe(0);
    engine.dispose();
  });
});

describe("what was computed", () => {
  test("is not computed again: another turn, another branch, another user", async () => {
    const engine = await tinyEngine({ cacheTokens: 1024 });
    const first = prompt(1, 50);
    const { tokenIds } = await run(engine, first, 10);
    const turn = [...first, ...tokenIds.slice(0, -1), ...prompt(2, 5)];
    // The last generated token was never computed: nobody asked for what follows it.
    expect((await run(engine, turn, 3)).timings.cachedTokens).toBe(59);
    const branch = [...first.slice(0, 45), ...prompt(3, 8)];
    const known = (await run(engine, branch, 3)).timings.cachedTokens;
    expect(known).toBeGreaterThanOrEqual(45);
    // The turn is still known after the branch.
    expect((await run(engine, turn, 3)).timings.cachedTokens).toBeGreaterThanOrEqual(59);
    engine.dispose();
  });

  test("is the same when it is reused", async () => {
    const engine = await tinyEngine({ cacheTokens: 1024 });
    const first = prompt(1, 70);
    await run(engine, first, 12);
    const next = [...first.slice(0, 37), ...prompt(2, 20)];
    const fresh = await run(await tinyEngine(), next, 12);
    expect((await run(engine, next, 12)).tokenIds).toEqual(fresh.tokenIds);
    engine.dispose();
  });

  test("is shared while it is still being answered", async () => {
    const engine = await tinyEngine({ cacheTokens: 2048 });
    const shared = prompt(1, 80);
    let second: Promise<Generated> | undefined;
    await run(engine, [...shared, 1], 8, control(), () => {
      second ??= run(engine, [...shared, 2], 4);
    });
    expect((await second!).timings.cachedTokens).toBe(64);
    engine.dispose();
  });

  test("is forgotten, oldest first, when its blocks are needed; never what is running", async () => {
    const engine = await tinyEngine({ contextSize: 128, cacheTokens: 256 });
    const [a, b, c] = [1, 2, 3].map((seed) => prompt(seed, 90)) as [number[], number[], number[]];
    for (const tokens of [a, b, c]) await run(engine, tokens, 3);
    expect((await run(engine, c, 1)).timings.cachedTokens).toBe(89);
    expect((await run(engine, a, 1)).timings.cachedTokens).toBe(0);
    expect(engine.status().kvBlocksUsed).toBeLessThanOrEqual(8);
    engine.dispose();
  });

  test("gives every block back", async () => {
    const engine = await tinyEngine({ contextSize: 128, cacheTokens: 512 });
    const random = new Random(9);
    for (let round = 0; round < 12; round++) {
      await Promise.all(
        Array.from({ length: 3 }, () =>
          run(engine, prompt(random.below(4), 1 + random.below(100)), 1 + random.below(20)),
        ),
      );
    }
    const { running, waiting, kvBlocks, kvBlocksUsed } = engine.status();
    expect([running, waiting, kvBlocks]).toEqual([0, 0, 16]);
    expect(kvBlocksUsed).toBeLessThanOrEqual(16);
    // Everything that is only remembered can go: one that needs all of the cache still runs.
    const large = await run(engine, prompt(77, 100), 28);
    expect(large.tokenIds).toHaveLength(28);
    engine.dispose();
  });
});

describe("room", () => {
  test("is promised before a generation begins: whoever does not fit waits", async () => {
    const engine = await tinyEngine({ contextSize: 128, cacheTokens: 160 });
    const order: string[] = [];
    const first = run(engine, prompt(1, 60), 40).then(() => order.push("first"));
    const second = run(engine, prompt(2, 60), 40).then(() => order.push("second"));
    await new Promise((resolve) => setImmediate(resolve));
    expect(engine.status()).toMatchObject({ running: 1, waiting: 1 });
    await Promise.all([first, second]);
    expect(order).toEqual(["first", "second"]);
    engine.dispose();
  });

  test("can be waited for in vain: an abort ends it", async () => {
    const engine = await tinyEngine({ contextSize: 128, cacheTokens: 128 });
    const first = run(engine, prompt(1, 60), 40);
    const waiting = control();
    const second = run(engine, prompt(2, 60), 40, waiting);
    await new Promise((resolve) => setImmediate(resolve));
    waiting.aborted = true;
    engine.checkWaiting();
    expect(await second).toMatchObject({ stopReason: "aborted", text: "", tokenIds: [] });
    expect((await first).tokenIds).toHaveLength(40);
    engine.dispose();
  });
});

test("whoever looks at the values of a batch is alone in it", async () => {
  const { backend, batches } = watched(new ReferenceBackend());
  const engine = await tinyEngine({ backend, cacheTokens: 2048 });
  const tokens = prompt(5, 20);
  const running = await engine.open({ tokens: [], mayAdd: 20, isAborted: () => false });
  let rows = 0;
  let written = 0;
  const { promise: underWay, resolve } = Promise.withResolvers<void>();
  const others = [1, 2].map((seed) =>
    run(engine, prompt(seed, 4), 30, control(), () => {
      if (++written === 6) resolve();
    }),
  );
  await underWay; // from here on every batch would have tokens of all three
  for (let done = 0; done < tokens.length; ) {
    done += await engine.advance(running, tokens, done, {
      wants: () => true,
      onOutput: () => {},
      stop: () => false,
      tap: (value, data) => {
        if (value === engine.graph.outputs.logits) rows += data.length / value.cols;
      },
    });
  }
  engine.close(running);
  expect(rows).toBe(tokens.length);
  expect((await Promise.all(others)).map(({ tokenIds }) => tokenIds.length)).toEqual([30, 30]);
  expect(batches.some(({ tables }) => tables === 2)).toBe(true);
  engine.dispose();
});

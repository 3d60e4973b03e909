// Background generations take what foreground ones leave: in which batches their tokens are, who gives way to whom, and that no text
// changes by it. Orders are compared, never times.

import { describe, expect, test } from "vitest";
import type { Backend, RunOptions } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { backendByName } from "../../src/backends/table.ts";
import { AbortedError, UsageError } from "../../src/base/errors.ts";
import {
  type BackgroundPlace,
  BackgroundShare,
  isBackground,
  YieldError,
} from "../../src/engine/background.ts";
import type { Engine } from "../../src/engine/engine.ts";
import { generate, type RunControl } from "../../src/engine/generator.ts";
import type { AdvanceOptions } from "../../src/engine/job.ts";
import { Scheduler } from "../../src/engine/scheduler.ts";
import { NO_ADAPTERS } from "../../src/engine/state/adapter-use.ts";
import { Admission } from "../../src/engine/state/admission.ts";
import { ComingPrompts, type WaitingPrompt } from "../../src/engine/state/coming-prompts.ts";
import { Sequence } from "../../src/engine/state/sequence.ts";
import { Batch } from "../../src/graph/batch.ts";
import { Random } from "../support/random.ts";
import { tinyEngine, tinyShape } from "../support/tiny-engine.ts";

const place = (mayYield = true): BackgroundPlace => ({ mayYield, mustYield: false });
const soon = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));

describe("the scheduler", () => {
  /** A scheduler that records the tokens of its batches; `during` is called in each of them. */
  function setUp(
    options: { msOf?: (tokens: number) => number; during?: (stop: () => boolean) => void } = {},
  ) {
    const batch = new Batch({ maxTokens: 16, maxOutputs: 16 });
    const batches: number[][] = [];
    const state = { comes: false };
    const run = (_: Batch, { stop = () => false }: RunOptions) => {
      options.during?.(stop);
      if (stop()) throw new AbortedError("the batch");
      batches.push([...batch.tokens.subarray(0, batch.tokenCount)]);
    };
    const scheduler = new Scheduler({
      backend: { run } as unknown as Backend,
      ...{ batch, promptChunk: 4, tokenTile: 1, laps: undefined, makeRoom: () => undefined },
      ...(options.msOf && { sharedCosts: { msOf: options.msOf, note: () => undefined } }),
      foregroundComes: () => state.comes,
    });
    const advance = (
      sequence: Sequence,
      tokens: readonly number[],
      of?: BackgroundPlace,
      more: Partial<AdvanceOptions> = {},
    ) =>
      scheduler.advance(
        sequence,
        tokens,
        0,
        { wants: () => false, onOutput: () => undefined, stop: () => false, ...more },
        of,
      );
    return { batches, scheduler, advance, state };
  }
  const sequences = () => [new Sequence([], 64), new Sequence([], 64), new Sequence([], 64)];

  test("puts background tokens behind foreground ones, and none beside a foreground prompt", async () => {
    const { batches, scheduler, advance } = setUp();
    const [a, b, c] = sequences() as [Sequence, Sequence, Sequence];
    const of = place();
    scheduler.join(of);
    scheduler.join();
    // The background job asks first, and waits until the prompt is done.
    const waiting = advance(c, [9], of);
    await advance(a, [1, 2, 3]);
    expect(batches).toEqual([[1, 2, 3]]);
    await Promise.all([advance(a, [4]), waiting]);
    expect(batches).toEqual([
      [1, 2, 3],
      [4, 9],
    ]);
    // A second foreground sequence decodes while the first one's prompt comes: still none beside the prompt.
    scheduler.join();
    const late = advance(c, [8], of);
    await Promise.all([advance(b, [5]), advance(a, [6, 7])]);
    expect(batches.at(-1)).toEqual([5, 6, 7]);
    scheduler.leave();
    scheduler.leave();
    await late;
    expect(batches.at(-1)).toEqual([8]);
  });

  test("an answer is sent before background tokens alone are computed", async () => {
    const { batches, scheduler, advance } = setUp();
    const [, b] = sequences() as [Sequence, Sequence, Sequence];
    const of = place();
    scheduler.join(of);
    scheduler.join();
    const waiting = advance(b, [9], of);
    scheduler.leave();
    // What sends it takes no more than promises.
    for (let i = 0; i < 20; i++) await Promise.resolve();
    expect(batches).toEqual([]);
    await waiting;
    expect(batches).toEqual([[9]]);
  });

  test("computes no batch of background tokens alone while a foreground generation is about to ask", async () => {
    const { batches, scheduler, advance, state } = setUp();
    const [a, b] = sequences() as [Sequence, Sequence, Sequence];
    const of = place();
    scheduler.join(of);
    scheduler.join();
    const waiting = advance(b, [9], of);
    await soon();
    expect(batches).toEqual([]); // the foreground one has not asked
    await advance(a, [1]);
    await waiting;
    expect(batches).toEqual([[1, 9]]);
    scheduler.leave();
    state.comes = true;
    const again = advance(b, [8], of);
    await soon();
    expect(batches).toHaveLength(1); // a request is on its way
    state.comes = false;
    await again;
    expect(batches).toEqual([[1, 9], [8]]);
  });

  test("gives up a batch of background tokens when a request comes, and computes it later", async () => {
    let polls = 0;
    const { batches, scheduler, advance, state } = setUp({
      during: (stop) => {
        if (++polls === 1) state.comes = true; // in the middle of the first batch
        stop();
      },
    });
    const [a, b, c] = sequences() as [Sequence, Sequence, Sequence];
    const [one, two] = [place(), place()];
    scheduler.join(one);
    scheduler.join(two);
    const background = Promise.all([advance(a, [8], one), advance(b, [9, 10], two)]);
    await soon();
    expect(batches).toEqual([]);
    expect([a.length, b.length]).toEqual([0, 0]);
    scheduler.join();
    state.comes = false;
    await advance(c, [1, 2]);
    expect(batches).toEqual([[1, 2]]);
    scheduler.leave();
    expect(await background).toEqual([1, 2]);
    expect(batches).toEqual([
      [1, 2],
      [8, 9, 10],
    ]);
  });

  test("a foreground batch is not given up for another request", async () => {
    const { batches, scheduler, advance, state } = setUp();
    const [a, b] = sequences() as [Sequence, Sequence, Sequence];
    state.comes = true;
    const of = place();
    scheduler.join();
    scheduler.join(of);
    await Promise.all([advance(b, [9], of), advance(a, [1])]);
    expect(batches).toEqual([[1, 9]]);
  });

  test("a foreground batch does not wait for background generations that have not asked", async () => {
    const { batches, scheduler, advance } = setUp();
    const [a] = sequences() as [Sequence, Sequence, Sequence];
    scheduler.join();
    scheduler.join(place());
    const asked = advance(a, [1]);
    expect(batches).toEqual([[1]]); // at once
    await asked;
  });

  test("background prompts beside foreground tokens are as short as the costs say", async () => {
    // Each token takes as long as the first: one joins every tenth batch.
    const { batches, scheduler, advance } = setUp({ msOf: (tokens) => 10 * tokens });
    const [a, b] = sequences() as [Sequence, Sequence, Sequence];
    const of = place();
    scheduler.join();
    scheduler.join(of);
    const waiting = advance(b, [90, 91, 92], of);
    for (let token = 1; token <= 10; token++) await advance(a, [token]);
    expect(await waiting).toBe(1);
    expect(batches.map(({ length }) => length)).toEqual([1, 1, 1, 1, 1, 1, 1, 1, 1, 2]);
  });

  test("refuses background jobs that must yield, and leaves their sequences as they are", async () => {
    const { batches, scheduler, advance } = setUp();
    const [a, b] = sequences() as [Sequence, Sequence, Sequence];
    const [one, two] = [place(), place()];
    scheduler.join(one);
    scheduler.join(two);
    await Promise.all([advance(a, [1], one), advance(b, [2], two)]);
    two.mustYield = true;
    const refused = advance(b, [4], two).catch((error: unknown) => error);
    const other = advance(a, [3], one);
    expect(await refused).toBeInstanceOf(YieldError);
    expect(b.length).toBe(1);
    scheduler.leave(two);
    await other;
    expect(batches).toEqual([[1, 2], [3]]);
  });
});

describe("room", () => {
  test("of background generations goes to foreground ones, the last that began first", async () => {
    const admission = new Admission([10]);
    const places = [place(), place(), place(false)] as const;
    const held = await Promise.all(places.map((of) => admission.enter([3], () => false, of)));
    const order: string[] = [];
    const waiting = admission.enter([4], () => false, place()).then(() => order.push("background"));
    const wanted = admission.enter([4], () => false).then(() => order.push("foreground"));
    expect(places.map(({ mustYield }) => mustYield)).toEqual([false, true, false]); // 1 is free, 3 are given back
    expect(admission.foregroundWaiting).toBe(1);
    admission.leave(held[1]!);
    await wanted;
    expect(order).toEqual(["foreground"]);
    expect(places[0].mustYield).toBe(false);
    admission.leave(held[0]!);
    admission.leave(held[2]!);
    await waiting;
    expect(order).toEqual(["foreground", "background"]);
  });
});

test("a share of foreground batches is saved until a token fits", () => {
  const share = new BackgroundShare({
    msOf: (tokens) => (tokens <= 4 ? 10 : 14),
    note: () => undefined,
  });
  expect(share.room(1, 8)).toBe(3); // as fast as one alone
  share.joined(1, 3);
  const rooms = Array.from({ length: 3 }, () => share.room(1, 8));
  expect(rooms).toEqual([3, 3, 7]); // 4 ms were saved
  share.joined(1, 7);
  expect(share.room(1, 8)).toBe(3);
  for (let i = 0; i < 5; i++) share.room(1, 8);
  share.promptComes(); // the answer after it begins with nothing saved
  expect(share.room(1, 8)).toBe(3);
  expect(new BackgroundShare(undefined).room(1, 8)).toBe(7);
});

test("what a batch takes is the time to the next one, where both decode in the foreground", () => {
  const noted: [number, number][] = [];
  const share = new BackgroundShare({ msOf: () => 1, note: (...one) => void noted.push(one) });
  share.begins(1, 100); // the first after a prompt
  share.begins(3, 110);
  share.begins(1, 125);
  share.begins(0, 126); // a prompt, or background tokens alone
  share.begins(2, 200);
  share.begins(4, 207);
  share.begins(1, 216);
  expect(noted).toEqual([
    [3, 15],
    [4, 9],
  ]);
});

test("what is neither foreground nor background is refused", () => {
  expect([undefined, "foreground", "background"].map((one) => isBackground(one as never))).toEqual([
    false,
    false,
    true,
  ]);
  expect(() => isBackground("high" as never)).toThrow(UsageError);
  expect(() => isBackground("high" as never)).toThrow(
    'priority: got "high", expected "foreground" or "background"',
  );
});

describe("prompts that begin like one that is being computed", () => {
  const shared = Array.from({ length: 46 }, (_, i) => i);
  const waiting = (tokens: number[], more: Partial<WaitingPrompt> = {}): WaitingPrompt => ({
    ...{ tokens, adapters: NO_ADAPTERS, isBackground: false, isAborted: () => false },
    ...{ known: () => 0, usable: (count: number) => count },
    ...more,
  });
  /** Whether it waits until the first prompt is computed; `more`: what is known then, and all else. */
  const waits = async (
    first: { tokens: number[]; isBackground?: boolean },
    tokens: number[],
    more: Partial<WaitingPrompt> = {},
  ): Promise<boolean> => {
    const coming = new ComingPrompts();
    const begun = coming.begin(first.tokens, NO_ADAPTERS, first.isBackground);
    let isComputed = false;
    let hasBegun = false;
    const known = () => (isComputed ? tokens.length - 1 : 0);
    const second = coming.beginAfterOthers(waiting(tokens, { known, ...more })).then((other) => {
      hasBegun = true;
      other[Symbol.dispose]();
    });
    await soon();
    const waited = !hasBegun;
    expect(begun.isAwaited).toBe(waited);
    isComputed = true;
    begun[Symbol.dispose]();
    await second;
    return waited;
  };

  test("wait for it, where that saves computing and costs nothing", async () => {
    expect(await waits({ tokens: shared }, shared)).toBe(true);
    expect(await waits({ tokens: [...shared, 1] }, [...shared, 2])).toBe(true);
    expect(await waits({ tokens: shared }, [5, ...shared])).toBe(false); // nothing in common
    expect(await waits({ tokens: shared.slice(0, 16) }, shared.slice(0, 16))).toBe(false); // computed as soon
    expect(await waits({ tokens: shared }, shared, { known: () => 40 })).toBe(false);
    const toBlocks = (count: number) => count - (count % 32);
    expect(await waits({ tokens: shared }, shared, { usable: toBlocks })).toBe(true);
    expect(await waits({ tokens: shared }, shared.slice(0, 30), { usable: toBlocks })).toBe(false);
  });

  test("do not wait for what is longer or less urgent; background prompts do", async () => {
    const long = { tokens: [...shared, ...Array.from({ length: 40 }, () => 7)] };
    const background = { isBackground: true };
    expect(await waits(long, shared)).toBe(false);
    expect(await waits(long, shared, background)).toBe(true);
    expect(await waits({ tokens: shared, ...background }, shared)).toBe(false);
    expect(await waits({ tokens: shared, ...background }, shared, background)).toBe(true);
  });

  test("wait no longer when they are aborted", async () => {
    const coming = new ComingPrompts();
    using _ = coming.begin(shared, NO_ADAPTERS);
    let aborted = false;
    const second = coming.beginAfterOthers(waiting(shared, { isAborted: () => aborted }));
    await soon();
    aborted = true;
    coming.check();
    (await second)[Symbol.dispose]();
  });
});

describe.each([
  ["reference", () => new ReferenceBackend() as Backend],
  ["cpu", () => backendByName("cpu")!.create({ level: 3, threads: 1, startThread: undefined })],
])("generations, %s", (_, make) => {
  const control = (): RunControl => ({
    aborted: false,
    yieldThread: () => new Promise((resolve) => setImmediate(resolve)),
    now: () => 0,
  });
  const prompt = (seed: number, length: number): number[] => {
    const random = new Random(seed);
    return Array.from({ length }, () => random.below(tinyShape.vocab));
  };
  const run = (
    engine: Engine,
    tokens: number[],
    priority: "foreground" | "background",
    seen: () => void = () => {},
  ) => {
    const options = { temperature: 0.9, seed: 3, maxTokens: 40, ignoreEos: true, priority };
    return generate(engine, { tokens, options }, control(), seen);
  };

  test("a background text is the same after it gave its room away twice", async () => {
    const prompts = [prompt(1, 50), prompt(2, 20), prompt(3, 60), prompt(4, 60)];
    const alone: number[][] = [];
    for (const tokens of prompts) {
      const engine = await tinyEngine({ backend: make() });
      alone.push((await run(engine, tokens, "foreground")).tokenIds);
      engine.dispose();
    }
    // Room for two of them: background ones begin, foreground ones push them out at their 5th and 20th token.
    const engine = await tinyEngine({ backend: make(), contextSize: 128, cacheTokens: 224 });
    let closed = 0;
    const close = engine.close.bind(engine);
    engine.close = (running) => {
      closed++;
      close(running);
    };
    const ended: string[] = [];
    const foreground: Promise<number[]>[] = [];
    const start = (tokens: number[]) =>
      foreground.push(
        run(engine, tokens, "foreground").then(({ tokenIds }) => {
          ended.push("foreground");
          return tokenIds;
        }),
      );
    let seen = 0;
    const background = [0, 1].map(async (i) => {
      const { tokenIds } = await run(engine, prompts[i]!, "background", () => {
        seen++;
        if (seen === 5) start(prompts[2]!);
        if (seen === 20) start(prompts[3]!);
      });
      ended.push("background");
      return tokenIds;
    });
    expect(await Promise.all(background)).toEqual(alone.slice(0, 2));
    expect(await Promise.all(foreground)).toEqual(alone.slice(2));
    expect(ended[0]).toBe("foreground");
    expect(closed).toBeGreaterThanOrEqual(4 + 2); // each, and at least two that yielded
    engine.dispose();
  });

  test("one that cannot give its room away goes on while a foreground one waits for that room", async () => {
    const engine = await tinyEngine({ backend: make(), contextSize: 96, cacheTokens: 96 });
    const ended: string[] = [];
    let foreground: Promise<unknown> | undefined;
    const options = { temperature: 0, maxTokens: 40, ignoreEos: true, contextShift: true };
    await generate(
      engine,
      { tokens: prompt(1, 40), options: { ...options, priority: "background" } },
      control(),
      () => {
        foreground ??= run(engine, prompt(2, 40), "foreground").then(() =>
          ended.push("foreground"),
        );
      },
    );
    ended.push("background");
    await foreground;
    expect(ended).toEqual(["background", "foreground"]);
    engine.dispose();
  });

  test("a beginning that many background prompts share is computed once", async () => {
    const shared = prompt(9, 96);
    const engine = await tinyEngine({ backend: make(), contextSize: 256, cacheTokens: 4096 });
    const results = await Promise.all(
      [1, 2, 3, 4].map((seed) => run(engine, [...shared, ...prompt(seed, 8)], "background")),
    );
    expect(results.map(({ timings }) => timings.cachedTokens)).toEqual([0, 96, 96, 96]);
    engine.dispose();
  });
});

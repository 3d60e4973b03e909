// Failures while the scheduler fills a batch or undoes one: the failed job is rejected, the others get their batch, and the
// next batch starts. Nothing is computed here: the backend only records which tokens it was given.

import { expect, test, vi } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import type { AdvanceOptions } from "../../src/engine/job.ts";
import { Scheduler, type SchedulerParts } from "../../src/engine/scheduler.ts";
import { Sequence } from "../../src/engine/state/sequence.ts";
import { Batch } from "../../src/graph/batch.ts";

const fault = (): never => {
  throw new Error("a fault");
};

const newSequence = () => new Sequence([], 64);

function setUp(turn?: SchedulerParts["turn"], more: Partial<SchedulerParts> = {}) {
  const batch = new Batch({ maxTokens: 16, maxOutputs: 16 });
  const batches: number[][] = [];
  const run = () => void batches.push([...batch.tokens.subarray(0, batch.tokenCount)]);
  const rests: boolean[] = [];
  const rest = (isOn: boolean) => void rests.push(isOn);
  const backend = {
    run,
    rest,
    computesApart: more.promptsCome !== undefined,
  } as unknown as Backend;
  const parts = { backend, batch, promptChunk: 16, tokenTile: 1, laps: undefined };
  const scheduler = new Scheduler({ ...parts, ...more, turn, makeRoom: () => undefined });
  const advance = (
    sequence: Sequence,
    tokens: readonly number[],
    options: Partial<AdvanceOptions> = {},
  ) => {
    const asked = { wants: () => true, onOutput: () => undefined, stop: () => false, ...options };
    return scheduler.advance(sequence, tokens, 0, asked);
  };
  return { batch, batches, rests, backend, scheduler, advance };
}

type Faulty = Pick<ReturnType<typeof setUp>, "batch"> & { sequence: Sequence };

test.each<[string, (of: Faulty) => Partial<AdvanceOptions> | undefined]>([
  ["is asked whether it gives up", () => ({ stop: fault })],
  ["is asked what it wants", () => ({ wants: fault })],
  [
    "is asked how many tokens it takes",
    ({ sequence }) => {
      sequence.batchTokens = fault;
      return undefined;
    },
  ],
  [
    "is to make room",
    ({ sequence }) => {
      sequence.append = fault;
      return undefined;
    },
  ],
  [
    "has half of its tokens in the batch",
    ({ batch, sequence }) => {
      const add = batch.add.bind(batch);
      batch.add = (token, position, of, isOutput) =>
        of === sequence && position > 0 ? fault() : add(token, position, of, isOutput);
      return undefined;
    },
  ],
])("one that fails when it %s is left out of the batch", async (_, inject) => {
  const { batch, batches, scheduler, advance } = setUp();
  const [first, sequence, last] = [newSequence(), newSequence(), newSequence()];
  for (let i = 0; i < 3; i++) scheduler.join();
  const given = Promise.allSettled([
    advance(first, [1, 2]),
    advance(sequence, [3, 4], inject({ batch, sequence })),
    advance(last, [5, 6]),
  ]);
  expect(await given).toMatchObject([
    { value: 2 },
    { reason: { message: "a fault" } },
    { value: 2 },
  ]);
  expect(batches).toEqual([[1, 2, 5, 6]]);
  expect([first, sequence, last].map(({ length }) => length)).toEqual([2, 0, 2]);

  // Nobody is stuck.
  scheduler.leave();
  await Promise.all([advance(first, [7]), advance(last, [8])]);
  expect(batches).toEqual([
    [1, 2, 5, 6],
    [7, 8],
  ]);
});

test("a sequence that cannot be restored after a failed batch keeps nobody waiting", async () => {
  const { batches, backend, scheduler, advance } = setUp();
  const [stuck, other] = [newSequence(), newSequence()];
  const { run } = backend;
  backend.run = fault;
  stuck.restore = () => {
    throw new Error("a second fault");
  };
  scheduler.join();
  scheduler.join();
  const given = Promise.allSettled([advance(stuck, [1]), advance(other, [2])]);
  const message =
    "after a failed batch, a sequence could not be restored to 0 tokens: a second fault";
  const errors = [{ message: "a fault" }, { message: "a second fault" }];
  expect(await given).toMatchObject([
    { reason: { message, errors } },
    { reason: { message: "a fault" } },
  ]);
  expect(other.length).toBe(0);

  backend.run = run;
  scheduler.leave();
  expect(await advance(other, [3])).toBe(1);
  expect(batches).toEqual([[3]]);
});

test("threads rest after the last batch of a turn; the turn ends with the last generation", async () => {
  const lasts = [false, true, true, false];
  const calls: string[] = [];
  const { rests, scheduler, advance } = setUp({
    take: () => true,
    wait: async () => {},
    begin: () => lasts.shift()!,
    release: (isMore) => void calls.push(isMore ? "keeps" : "gives back"),
    end: () => void calls.push("ends"),
  });
  const sequence = newSequence();
  scheduler.join();
  for (let token = 0; token < 4; token++) await advance(sequence, [token]);
  expect(rests).toEqual([true, false]);
  await new Promise((resolve) => setTimeout(resolve)); // the last batch has ended
  scheduler.leave();
  expect(calls).toEqual(["keeps", "keeps", "keeps", "keeps", "ends"]);
});

/** A scheduler of a device, to which others come as long as `comes` is true, and timers that end when the test says so. */
function setUpComing() {
  vi.useFakeTimers({ toFake: ["setTimeout"] });
  const state = { comes: true };
  const given = setUp(undefined, { promptsCome: () => state.comes });
  const tokens = (from: number, count: number) => Array.from({ length: count }, (_, i) => from + i);
  return { ...given, state, tokens, [Symbol.dispose]: () => void vi.useRealTimers() };
}

const turnOfEventLoop = () => new Promise((resolve) => setImmediate(resolve));

test("a prompt waits for others that come, until its batch is full", async () => {
  using coming = setUpComing();
  const { batches, scheduler, advance, tokens } = coming;
  scheduler.join();
  const first = advance(newSequence(), tokens(0, 6));
  await turnOfEventLoop();
  expect(batches).toEqual([]);
  scheduler.join();
  const second = advance(newSequence(), tokens(10, 10));
  await Promise.all([first, second]);
  expect(batches).toEqual([[...tokens(0, 6), ...tokens(10, 10)]]);
});

test("or until nobody comes", async () => {
  using coming = setUpComing();
  const { batches, scheduler, advance, tokens, state } = coming;
  scheduler.join();
  const first = advance(newSequence(), tokens(0, 6));
  await turnOfEventLoop();
  expect(batches).toEqual([]);
  state.comes = false;
  scheduler.wake();
  await first;
  expect(batches).toEqual([tokens(0, 6)]);
});

test("but for three timers at most, in every batch; decoding sequences wait for nobody", async () => {
  using coming = setUpComing();
  const { batches, scheduler, advance, tokens } = coming;
  scheduler.join();
  const sequence = newSequence();
  for (let i = 0; i < 2; i++) {
    const prompt = advance(sequence, tokens(0, 6));
    for (let timer = 0; timer < 2; timer++) {
      vi.advanceTimersToNextTimer();
      await turnOfEventLoop();
    }
    expect(batches).toHaveLength(i);
    vi.advanceTimersToNextTimer();
    await prompt;
    expect(batches).toHaveLength(i + 1);
  }
  await advance(sequence, [7]);
  expect(batches.at(-1)).toEqual([7]);
});

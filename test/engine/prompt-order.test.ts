// Whose prompt is computed first: the shortest, but none waits forever. Nothing is computed here: the backend only records which tokens
// it was given.

import { expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { Scheduler } from "../../src/engine/scheduler.ts";
import { Sequence } from "../../src/engine/state/sequence.ts";
import { Batch } from "../../src/graph/batch.ts";

const SIZE = 16;

/** Users who ask at the same moment. A token's number is its user's, so that batches show who is in them. */
function users(): {
  readonly batches: string[];
  ask(user: number, tokens: number): Promise<void>;
} {
  const batch = new Batch({ maxTokens: SIZE, maxOutputs: SIZE });
  const batches: string[] = [];
  const run = () => {
    const tokens = batch.tokens.subarray(0, batch.tokenCount);
    const of = new Map<number, number>();
    for (const user of tokens) of.set(user, (of.get(user) ?? 0) + 1);
    batches.push([...of].map(([user, count]) => `${user}: ${count}`).join(", "));
  };
  const scheduler = new Scheduler({
    backend: { run } as unknown as Backend,
    batch,
    promptChunk: SIZE,
    tokenTile: 1,
    laps: undefined,
    makeRoom: () => undefined,
  });
  const ask = async (user: number, count: number): Promise<void> => {
    scheduler.join();
    const sequence = new Sequence([], 1000);
    const tokens = Array.from({ length: count }, () => user);
    const options = { wants: () => false, onOutput: () => undefined, stop: () => false };
    for (let from = 0; from < count; ) {
      from += await scheduler.advance(sequence, tokens, from, options);
      await new Promise((resolve) => setImmediate(resolve)); // as prompts do
    }
    scheduler.leave();
  };
  return { batches, ask };
}

test("the shortest first; what has begun is finished before the next of its size", async () => {
  const { batches, ask } = users();
  await Promise.all([ask(1, 40), ask(2, 12), ask(3, 12), ask(4, 2), ask(5, 12)]);
  // The first has nobody beside it yet.
  expect(batches).toEqual(["1: 16", "4: 2, 2: 12, 3: 2", "3: 10, 5: 6", "5: 6, 1: 10", "1: 14"]);
});

test("equal ones: one after the other, but the one that has waited for longest in every fourth batch", async () => {
  const { batches, ask } = users();
  await Promise.all([ask(1, 32), ask(2, 48), ask(3, 48)]);
  const turns = ["1: 16", "1: 16", "2: 16", "2: 16", "3: 16", "2: 16", "3: 16", "3: 16"];
  expect(batches).toEqual(turns);
});

test("a long one advances however many short ones come", async () => {
  const { batches, ask } = users();
  let doneAfter = Infinity;
  const shorts = async (user: number): Promise<void> => {
    while (doneAfter === Infinity && batches.length < 300) await ask(user, SIZE); // which fill a batch
  };
  const long = ask(1, 64).then(() => {
    doneAfter = batches.length;
  });
  await Promise.all([long, shorts(2), shorts(3), shorts(4)]);
  expect(doneAfter).toBeLessThan(60);
});

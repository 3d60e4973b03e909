// Batches from their file to their output: every line exactly once, whatever fails in between.

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type Batch, batchLimits, endStates, type OutputLine } from "../../apps/batch/batch.ts";
import { type Answerer, BatchRunner } from "../../apps/batch/runner.ts";
import type { BatchStore } from "../../apps/batch/store.ts";
import { StorageError } from "../../src/platform/database.ts";
import {
  type BatchPlaceOfTests,
  batchPlace,
  lineOf,
  linesOf,
  batchOf as storedBatch,
} from "./batch-store.ts";

let place: BatchPlaceOfTests;
let store: BatchStore;
let runner: BatchRunner | undefined;
const log: string[] = [];

beforeEach(() => {
  place = batchPlace();
  store = place.open();
  log.length = 0;
});
afterEach(async () => {
  await runner?.stop();
  runner = undefined;
  store.close();
  place.remove();
});

type Answers = (prompt: string, signal: AbortSignal) => Promise<{ status: number; body: unknown }>;

function run(answer: Answers, parallel: () => number = () => 4): BatchRunner {
  const answerer: Answerer = {
    parallel,
    async answer(url, body, signal) {
      expect(url).toBe("/v1/completions");
      const { prompt } = JSON.parse(new TextDecoder().decode(body)) as { prompt: string };
      return { requestId: "r", ...(await answer(prompt, signal)) };
    },
  };
  runner = new BatchRunner(store, answerer, { log: (line) => log.push(line), pauseMs: 1 });
  runner.start();
  return runner;
}

const usage = {
  prompt_tokens: 2,
  completion_tokens: 3,
  prompt_tokens_details: { cached_tokens: 1 },
};
const echo: Answers = async (prompt) => ({ status: 200, body: { text: prompt, usage } });

/** A new batch, of which the runner is told. */
async function batchOf(...[on, text, windowMs]: Parameters<typeof storedBatch>): Promise<Batch> {
  const batch = await storedBatch(on, text, windowMs);
  runner?.wake();
  return batch;
}

async function ended({ id }: Batch): Promise<Batch> {
  for (let tries = 0; tries < 12_000; tries++) {
    const batch = store.batch(id);
    if (endStates.has(batch.state)) return batch;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  throw new Error(`batch ${id} is ${store.batch(id).state}: ${log.join("; ")}`);
}

const names = (lines: readonly unknown[]): string[] =>
  lines.map((line) => (line as OutputLine).custom_id);

const many = (count: number): string =>
  Array.from({ length: count }, (_, i) => lineOf(`id-${i}`, `prompt ${i % 7} ${i}`)).join("\n");

describe("a batch", () => {
  test("has an answer for every line, in the order of the file", async () => {
    run(echo);
    const batch = await ended(await batchOf(store, `${many(300)}\n\n`));
    expect(batch).toMatchObject({ state: "completed", errors: [], errorFile: null });
    expect(batch.counts).toMatchObject({ total: 300, done: 300, failed: 0, waiting: 0 });
    expect(batch.usage).toEqual({ input: 600, cached: 300, output: 900 });
    const lines = (await linesOf(store, batch.outputFile)) as OutputLine[];
    expect(names(lines)).toEqual(Array.from({ length: 300 }, (_, i) => `id-${i}`));
    expect(lines[8]).toMatchObject({
      response: { status_code: 200, request_id: "r", body: { text: "prompt 1 8" } },
      error: null,
    });
    expect(new Set(lines.map(({ id }) => id)).size).toBe(300);
    expect(log).toEqual([]);
  });

  test("runs lines whose prompts begin alike one after the other, and no more than it may", async () => {
    const order: string[] = [];
    let now = 0;
    let most = 0;
    const waiting: (() => void)[] = [];
    run(
      async (prompt) => {
        order.push(prompt.slice(0, 8));
        most = Math.max(most, ++now);
        // Three at a time, whichever is read first: none is overtaken by more than two.
        const { promise, resolve } = Promise.withResolvers<void>();
        waiting.push(resolve);
        if (waiting.length === 3 || order.length === 40) for (const go of waiting.splice(0)) go();
        await promise;
        now--;
        return { status: 200, body: {} };
      },
      () => 3,
    );
    await ended(await batchOf(store, many(40)));
    expect(most).toBe(3);
    // Their bodies are read at the same time: neighbours may change places.
    for (const [at, begins] of order.toSorted((a, b) => a.localeCompare(b)).entries()) {
      expect(order.slice(Math.max(0, at - 3), at + 4)).toContain(begins);
    }
  });

  test("puts requests that were refused into the error file", async () => {
    run(async (prompt) =>
      prompt.endsWith("3")
        ? { status: 400, body: { error: { message: "no" } } }
        : echo(prompt, new AbortController().signal),
    );
    const batch = await ended(await batchOf(store, many(5)));
    expect(batch.state).toBe("completed");
    expect(batch.counts).toMatchObject({ done: 4, failed: 1 });
    expect(names(await linesOf(store, batch.outputFile))).toEqual(["id-0", "id-1", "id-2", "id-4"]);
    expect(await linesOf(store, batch.errorFile)).toMatchObject([
      { custom_id: "id-3", response: { status_code: 400 }, error: null },
    ]);
  });

  test("fails as a whole if a line is wrong, with all that is wrong", async () => {
    let asked = 0;
    run(async () => {
      asked++;
      return { status: 200, body: {} };
    });
    const text = [lineOf("a", "x"), "{", lineOf("a", "y"), lineOf("b", "x", "/v1/embeddings")];
    const batch = await ended(await batchOf(store, text.join("\n")));
    expect(batch).toMatchObject({ state: "failed", outputFile: null, counts: { total: 0 } });
    expect(batch.errors.map(({ code, line }) => [code, line]).toSorted()).toEqual([
      ["duplicate_custom_id", 3],
      ["invalid_json_line", 2],
      ["mismatched_url", 4],
    ]);
    expect(asked).toBe(0);
  });

  test("without requests fails", async () => {
    run(echo);
    const batch = await ended(await batchOf(store, "\n\n"));
    expect(batch).toMatchObject({ state: "failed", errors: [{ code: "empty_file" }] });
  });

  test("that is cancelled keeps the answers it has", async () => {
    let begun = 0;
    const batches = run((prompt, signal) => {
      begun++;
      if (begun <= 2) return echo(prompt, signal);
      return new Promise((_, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason as Error));
      });
    });
    const batch = await batchOf(store, many(10));
    while (store.batch(batch.id).counts.done < 2) await new Promise((r) => setTimeout(r, 2));
    expect(batches.cancel(batch.id).state).toBe("cancelling");
    const end = await ended(batch);
    expect(end).toMatchObject({ state: "cancelled", counts: { done: 2, cancelled: 8 } });
    expect((await linesOf(store, end.outputFile)).length).toBe(2);
    const errors = (await linesOf(store, end.errorFile)) as OutputLine[];
    expect(errors.map(({ error }) => error?.code)).toEqual(Array(8).fill("batch_cancelled"));
    expect(batches.cancel(batch.id).state).toBe("cancelled");
  });

  test("whose time is over keeps the answers it has", async () => {
    let time = 1000;
    store.close();
    store = place.open(() => time);
    runner = new BatchRunner(
      store,
      {
        parallel: () => 1,
        async answer() {
          time += 400;
          return { status: 200, requestId: "", body: {} };
        },
      },
      { now: () => time, log: (line) => log.push(line) },
    );
    runner.start();
    const batch = await ended(await batchOf(store, many(10), 1000));
    expect(batch).toMatchObject({ state: "expired", counts: { done: 3, expired: 7 } });
    const errors = (await linesOf(store, batch.errorFile)) as OutputLine[];
    expect(errors[0]).toMatchObject({ response: null, error: { code: "batch_expired" } });
  });

  test("tries again what failed in the engine, and waits where there is no room", async () => {
    const tries = new Map<string, number>();
    run(async (prompt) => {
      const count = (tries.get(prompt) ?? 0) + 1;
      tries.set(prompt, count);
      if (prompt.endsWith("1")) return { status: 500, body: { error: "always" } };
      if (prompt.endsWith("2")) return { status: count < 9 ? 429 : 200, body: {} };
      return { status: count < 3 ? 500 : 200, body: {} };
    });
    const batch = await ended(await batchOf(store, many(3)));
    expect([...tries.values()].toSorted()).toEqual([3, 3, 9]);
    expect(batch.counts).toMatchObject({ done: 2, failed: 1 });
  });

  test("gives back lines when others need the room", async () => {
    let room = 4;
    let begun = 0;
    const batches = run(
      async (prompt, signal) => {
        begun++;
        if (room === 4 && begun > 1) {
          await new Promise<void>((resolve) => {
            signal.addEventListener("abort", () => resolve());
          });
          signal.throwIfAborted();
        }
        return await echo(prompt, signal);
      },
      () => room,
    );
    const batch = await batchOf(store, many(8));
    while (begun < 5) await new Promise((resolve) => setTimeout(resolve, 2));
    room = 0;
    batches.wake();
    while (batches.running > 0) await new Promise((resolve) => setTimeout(resolve, 2));
    room = 2;
    batches.wake();
    const end = await ended(batch);
    expect(end.counts).toMatchObject({ done: 8, failed: 0 });
  });
});

describe("another process goes on", () => {
  test("where one was stopped: every line once", async () => {
    let answered = 0;
    const first = run(async (prompt, signal) => {
      if (++answered > 7)
        await new Promise<void>((r) => signal.addEventListener("abort", () => r()));
      signal.throwIfAborted();
      return await echo(prompt, signal);
    });
    const batch = await batchOf(store, many(20));
    while (answered < 9) await new Promise((resolve) => setTimeout(resolve, 2));
    await first.stop();
    store.close();
    store = place.open();
    const done = store.batch(batch.id).counts.done;
    expect(done).toBeGreaterThan(0);
    let again = 0;
    run(async (prompt, signal) => {
      again++;
      return await echo(prompt, signal);
    });
    const end = await ended(batch);
    expect(again).toBe(20 - done);
    const lines = await linesOf(store, end.outputFile);
    expect(names(lines)).toEqual(Array.from({ length: 20 }, (_, i) => `id-${i}`));
  });

  test("a line that was begun three times and never ended is an error", async () => {
    const batch = await batchOf(store, many(3));
    runner = run(echo, () => 0);
    while (store.batch(batch.id).state !== "in_progress") {
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    await runner.stop();
    for (let i = 0; i < batchLimits.tries; i++) store.began(batch.id, 1); // three processes were killed
    run(echo);
    const end = await ended(batch);
    expect(end.counts).toMatchObject({ done: 2, failed: 1 });
    expect(await linesOf(store, end.errorFile)).toMatchObject([
      { custom_id: "id-1", response: { status_code: 500, body: { error: { code: "no_answer" } } } },
    ]);
  });

  test("while the disk is full, answers wait: each is computed once, and none is lost", async () => {
    let isFull = true;
    let refused = 0;
    let computed = 0;
    for (const name of ["finish", "began"] as const) {
      const save = store[name].bind(store) as (...facts: unknown[]) => never;
      vi.spyOn(store, name).mockImplementation((...facts: unknown[]) => {
        if (isFull && (name === "finish" || refused > 20) && ++refused) {
          throw new StorageError("full", "the disk is full");
        }
        return save(...facts);
      });
    }
    run(async (prompt, signal) => {
      computed++;
      return await echo(prompt, signal);
    });
    const batch = await batchOf(store, many(12));
    await expect.poll(() => refused).toBeGreaterThan(40);
    expect(store.batch(batch.id).counts).toMatchObject({ done: 0, failed: 0 });
    isFull = false;
    expect((await ended(batch)).counts).toMatchObject({ done: 12, failed: 0 });
    expect(computed).toBe(12);
    expect(log).toEqual(["batches wait until they can be saved: the disk is full"]);
    log.length = 0;
    vi.restoreAllMocks();
  });

  test("lines that were in the works at two kills run alone: only one of them can be the killer", async () => {
    const batch = await batchOf(store, many(20));
    runner = run(echo, () => 0);
    while (store.batch(batch.id).state !== "in_progress") {
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    await runner.stop();
    const suspects = [3, 4, 11];
    for (const index of suspects)
      for (let i = 1; i < batchLimits.tries; i++) store.began(batch.id, index);
    const working = new Set<number>();
    const alone: number[] = [];
    let most = 0;
    run(async (prompt, signal) => {
      const index = Number(prompt.split(" ")[2]);
      working.add(index);
      most = Math.max(most, working.size);
      for (let ticks = 0; ticks < 3; ticks++) {
        await new Promise((resolve) => setTimeout(resolve, 1));
        const some = suspects.filter((one) => working.has(one));
        if (some.length > 0) expect(working.size).toBe(1);
      }
      if (suspects.includes(index)) alone.push(index);
      working.delete(index);
      return await echo(prompt, signal);
    });
    expect((await ended(batch)).counts).toMatchObject({ done: 20, failed: 0 });
    expect(alone.toSorted((a, b) => a - b)).toEqual(suspects);
    expect(most).toBe(4);
    expect(log).toEqual([]);
  });

  test("bytes that no row knows are removed, and files of others are not seen", async () => {
    const writer = await store.files.create({ owner: "me", name: "a", purpose: "batch" });
    await writer.write(new Uint8Array(10));
    await writer.complete(); // killed before its row
    const other = await store.files.create({ owner: "me", name: "b", purpose: "batch" });
    const kept = await other.finish();
    expect((await store.files.folder.list()).length).toBe(2);
    await store.files.clean();
    expect(await store.files.folder.list()).toEqual([kept.id]);
    expect(() => store.files.get(kept.id, "you")).toThrow("there is no file");
    expect(store.files.list({ limit: 10 }, { owner: "you" }).items).toEqual([]);
  });

  test("a file that a batch reads cannot be deleted", async () => {
    const batch = await batchOf(store, many(3));
    await expect(store.files.delete(batch.inputFile, "")).rejects.toThrow("is reading file");
  });
});

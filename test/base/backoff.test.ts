// Waits between tries: how they grow, when they end, what stops them. With a clock that the test turns.
// Held against: the delays written here.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Backoff, pause, poll, retry } from "../../src/base/backoff.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const fails = async (): Promise<never> => {
  throw new Error("away");
};

test("waits double up to the longest, and begin anew after a success", () => {
  const backoff = new Backoff({ firstMs: 100, mostMs: 1000, tries: Infinity });
  const waits = Array.from({ length: 6 }, () => backoff.next());
  expect(waits).toEqual([100, 200, 400, 800, 1000, 1000]);
  backoff.succeeded();
  expect(backoff.next()).toBe(100);
  for (let i = 0; i < 5000; i++) expect(backoff.next()).toBeLessThanOrEqual(1000);
});

test("the last try does not wait", async () => {
  const backoff = new Backoff({ firstMs: 100, mostMs: 1000, tries: 2 });
  const first = backoff.failed();
  await vi.advanceTimersByTimeAsync(100);
  expect(await first).toBe(true);
  expect(await backoff.failed()).toBe(false);
});

test("a retry gives up with the last error, and says each before", async () => {
  let asked = 0;
  const said: string[] = [];
  const ended = retry(
    async () => {
      throw new Error(`no ${++asked}`);
    },
    { firstMs: 10, mostMs: 20, tries: 3 },
    { onFailure: (error) => said.push((error as Error).message) },
  ).catch((error: Error) => error.message);
  await vi.runAllTimersAsync();
  expect(await ended).toBe("no 3");
  expect(said).toEqual(["no 1", "no 2", "no 3"]);
});

test("an error that another try cannot mend ends it at once, and so does the signal", async () => {
  const waits = { firstMs: 10, mostMs: 20, tries: Infinity };
  const onFailure = (error: unknown): void => {
    throw error;
  };
  await expect(retry(fails, waits, { onFailure })).rejects.toThrow("away");
  const stop = new AbortController();
  const ended = retry(fails, waits, { signal: stop.signal }).catch((error: Error) => error.message);
  await vi.advanceTimersByTimeAsync(5);
  stop.abort(new Error("stopped"));
  await vi.advanceTimersByTimeAsync(0);
  expect(await ended).toBe("stopped");
});

test("a pause ends with its signal, and leaves no timer and no listener", async () => {
  const stop = new AbortController();
  const waiting = pause(1000, stop.signal);
  stop.abort();
  await waiting;
  expect(vi.getTimerCount()).toBe(0);
  await pause(1000, stop.signal);
});

test("a poll slows down while it fails, looks never twice at a time, and stops", async () => {
  let looks = 0;
  let answer: () => Promise<void> = fails;
  const polling = poll(
    () => {
      looks++;
      return answer();
    },
    { everyMs: 1000, mostMs: 30_000 },
  );
  await vi.advanceTimersByTimeAsync(10 * 60_000);
  expect(looks).toBeLessThan(30); // 600 without a back-off
  expect(looks).toBeGreaterThan(15); // and it goes on
  const { promise, resolve } = Promise.withResolvers<void>();
  answer = () => promise;
  const before = looks;
  polling.now();
  await vi.advanceTimersByTimeAsync(0);
  expect(looks).toBe(before + 1);
  polling.now();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(looks).toBe(before + 1); // it waits for the answer
  resolve();
  await vi.advanceTimersByTimeAsync(3000);
  expect(looks).toBe(before + 4);
  polling.stop();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(looks).toBe(before + 4);
  expect(vi.getTimerCount()).toBe(0);
});

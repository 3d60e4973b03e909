// Chores that are done while nothing else happens: in order, paused by work, begun again after it.

import { expect, test } from "vitest";
import { IdleWork } from "../../apps/cli/idle-work.ts";
import { AbortedError } from "../../src/index.ts";

/** Waits until it is let go, or aborted. */
function patientChore(log: string[], name: string) {
  const { promise, resolve } = Promise.withResolvers<void>();
  const chore = (signal: AbortSignal): Promise<void> =>
    new Promise((done, fail) => {
      log.push(`${name} begins`);
      signal.addEventListener("abort", () => {
        log.push(`${name} stops`);
        fail(new AbortedError(name));
      });
      void promise.then(() => {
        if (signal.aborted) return;
        log.push(`${name} ends`);
        done();
      });
    });
  return { chore, finish: resolve };
}

test("a chore that was paused begins again, and the next one follows it", async () => {
  const log: string[] = [];
  const first = patientChore(log, "first");
  const second = patientChore(log, "second");
  const work = new IdleWork([first.chore, second.chore]);
  work.resume();
  work.resume(); // it is under way
  await work.pause();
  expect(log).toEqual(["first begins", "first stops"]);
  work.resume();
  first.finish();
  second.finish();
  await new Promise((resolve) => setTimeout(resolve));
  expect(log.slice(2)).toEqual(["first begins", "first ends", "second begins", "second ends"]);
  expect(work.isDone).toBe(true);
});

test("a chore that fails is over", async () => {
  const seen: string[] = [];
  const work = new IdleWork([
    () => Promise.reject(new Error("no disk")),
    async () => void seen.push("next"),
  ]);
  work.resume();
  await new Promise((resolve) => setTimeout(resolve));
  expect(seen).toEqual(["next"]);
  expect(work.isDone).toBe(true);
  await work.pause();
});

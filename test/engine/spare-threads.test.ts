// Compute threads that start before the engine's code is loaded: how many, who gets them, and what becomes of the rest.
// Held against: how many threads have started and ended.

import { expect, test } from "vitest";
import type { EngineThread } from "../../src/platform/platform.ts";
import { SpareThreads, sparesFor } from "../../src/threads/spare-threads.ts";

const request = {
  threads: undefined,
  backend: undefined,
  gpuLayers: undefined,
  gpuFor: undefined,
  binding: undefined,
};

test.each([
  ["all cores but the leader's", {}, 3],
  ["as many as asked for", { threads: 2 }, 1],
  ["none beside a single thread", { threads: 1 }, 0],
  ["the processor by name", { backend: "cpu" }, 3],
  ["none where a GPU may compute", { backend: "webgpu" }, 0],
  ["none for layers on a GPU", { gpuLayers: "auto" as const }, 0],
  ["none where threads are bound to CPUs", { binding: { mask: "3" } }, 0],
  ["none for a number that will be refused", { threads: 0.5 }, 0],
  ["not thousands", { threads: 4000 }, 63],
])("%s", (_, part, expected) => {
  expect(sparesFor({ ...request, ...part }, 4)).toBe(expected);
});

/** Starts threads that do nothing; `ended` counts those that were ended. */
function fakes() {
  const started: { fail(error: Error): void }[] = [];
  const facts = { started, ended: 0 };
  const startThread = (): EngineThread => {
    const listeners: ((error: Error) => void)[] = [];
    started.push({ fail: (error) => void listeners.map((listener) => listener(error)) });
    return {
      post: () => {},
      onMessage: () => {},
      onFailure: (listener) => void listeners.push(listener),
      ref: () => {},
      unref: () => {},
      terminate: async () => void facts.ended++,
    };
  };
  return { facts, spares: new SpareThreads({ startThread }) };
}

test("the backend takes them, then gets new ones; what nobody took is ended", async () => {
  const { facts, spares } = fakes();
  spares.start(3);
  expect(facts.started.length).toBe(3);
  spares.take();
  expect(facts.started.length).toBe(3);
  await spares.end();
  expect(facts.ended).toBe(2);
  spares.take();
  expect(facts.started.length).toBe(4);
});

test("a thread that fails before it is taken tells whoever takes it", () => {
  const { facts, spares } = fakes();
  spares.start(1);
  facts.started[0]!.fail(new Error("no memory"));
  const heard: string[] = [];
  spares.take().onFailure((error) => heard.push(error.message));
  expect(heard).toEqual(["no memory"]);
});

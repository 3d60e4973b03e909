// Compute threads that die: the running batch fails, the next one gets new threads and correct results. Threads end
// with their model.

import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { afterEach, expect, test } from "vitest";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { WorkerError } from "../../src/base/errors.ts";
import { open } from "../../src/index.ts";
import type { EngineThread } from "../../src/platform/platform.ts";
import type { TinyOptions } from "../support/tiny-engine.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { load, runBatches } from "./tiny-backend.ts";

const options: TinyOptions = { weightType: "q8_0", feedForward: 4096 };
const healthy = new URL("../../src/threads/compute.ts", import.meta.url);
const dying = new URL("dying-thread.ts", import.meta.url);

let workers: Worker[] = [];
afterEach(async () => {
  await Promise.all(workers.map((worker) => worker.terminate()));
  workers = [];
});

/** A thread whose worker the test can get at. */
function threadOf(script: URL, workerData?: "hangs"): EngineThread {
  const worker = new Worker(script, { workerData });
  worker.on("error", () => {}); // its exit follows
  workers.push(worker);
  return {
    post: (message) => worker.postMessage(message),
    onMessage: (listener) => void worker.on("message", listener),
    onFailure: (listener) =>
      void worker.on("exit", (code) => listener(new Error(`it ended with exit code ${code}`))),
    ref: () => worker.ref(),
    unref: () => worker.unref(),
    terminate: async () => void (await worker.terminate()),
  };
}

async function backendWith(startThread: () => EngineThread, lostMs?: number): Promise<CpuBackend> {
  const backend = new CpuBackend({ level: 3, threads: 2, startThread, ...(lostMs && { lostMs }) });
  await load(backend, options);
  return backend;
}

async function expectedLogits(): Promise<number[][]> {
  const alone = new CpuBackend({ level: 3, threads: 1, startThread: undefined });
  await load(alone, options);
  return await runBatches(alone, options);
}

test("a thread that dies in a batch fails it; the next batch has new threads", async () => {
  const scripts = [dying, healthy];
  const backend = await backendWith(() => threadOf(scripts.shift()!));
  let failure: unknown;
  // The leader may be done with a small batch before the helper has taken anything.
  while (failure === undefined) {
    failure = await runBatches(backend, options).then(
      () => undefined,
      (error: unknown) => error,
    );
  }
  expect(failure).toBeInstanceOf(WorkerError);
  // Not when it is given up for lost: that takes longer than this test may.
  expect((failure as WorkerError).cause).toMatchObject({ message: /lost: it died in the middle/ });
  expect(await runBatches(backend, options)).toEqual(await expectedLogits());
  expect(scripts).toEqual([]);
  backend.dispose();
});

test("a thread that hangs in a batch is given up after a while, and replaced", async () => {
  const scripts = [dying, healthy];
  const backend = await backendWith(() => threadOf(scripts.shift()!, "hangs"), 2000);
  let failure: unknown;
  while (failure === undefined) {
    failure = await runBatches(backend, options).then(
      () => undefined,
      (error: unknown) => error,
    );
  }
  expect((failure as WorkerError).cause).toMatchObject({ message: /lost: no progress for 2 s/ });
  expect(await runBatches(backend, options)).toEqual(await expectedLogits());
  backend.dispose();
});

test("a backend that is disposed of while it waits for a thread says so", async () => {
  const backend = await backendWith(() => threadOf(dying, "hangs"));
  for (;;) {
    const running = runBatches(backend, options);
    const waits = await Promise.race([running.then(() => false), sleep(300).then(() => true)]);
    if (!waits) continue;
    backend.dispose();
    await expect(running).rejects.toThrow("used after dispose");
    return;
  }
});

test("a thread that dies between two steps is replaced before the next", async () => {
  const backend = await backendWith(() => threadOf(healthy));
  await runBatches(backend, options);
  await workers[0]!.terminate();
  expect(await runBatches(backend, options)).toEqual(await expectedLogits());
  expect(workers).toHaveLength(2);
  backend.dispose();
});

test("a thread that cannot start is an error of the load", async () => {
  const failing = backendWith(() => threadOf(new URL("no-such-thread.ts", import.meta.url)));
  await expect(failing).rejects.toThrow("a compute thread did not start");
});

const isLinux = process.platform === "linux";
test.skipIf(!isLinux)(
  `disposing in the middle of a generation leaves no thread${isLinux ? "" : " [needs /proc]"}`,
  async () => {
    const file = await tinyFile({ feedForward: 20_000 });
    const model = await open(file.path, { contextSize: 512, threads: 3 });
    const generation = model.generate([1], { maxTokens: 500, temperature: 0 });
    const ended = generation.result.catch(() => {}); // aborted or rejected, as it comes
    await generation[Symbol.asyncIterator]().next();
    expect(computeThreads()).toBe(2);
    await model.dispose();
    await ended;
    await expect.poll(computeThreads).toBe(0);
    file.remove();
  },
);

function computeThreads(): number {
  return readdirSync("/proc/self/task")
    .map((id) => nameOf(id))
    .filter((name) => name === "lantern-compute").length;
}

/** A thread may end between being listed and being asked. */
function nameOf(id: string): string | undefined {
  try {
    return readFileSync(`/proc/self/task/${id}/comm`, "utf8").trim();
  } catch {
    return undefined;
  }
}

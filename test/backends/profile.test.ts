// What the compute threads record: rings that lose nothing, times that fit into their batches, and the same results as
// without recording. No time is asserted; what is asserted is that times add up.

import { Worker } from "node:worker_threads";
import { afterEach, describe, expect, test } from "vitest";
import { type BackendProfile, EVENT_NUMBERS } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { Arena } from "../../src/backends/cpu/memory/arena.ts";
import { BatchRecords } from "../../src/backends/cpu/threads/batch-records.ts";
import {
  placeRecords,
  RecordReader,
  RecordWriter,
} from "../../src/backends/cpu/threads/records.ts";
import { CallTable } from "../../src/base/call-table.ts";
import { Batch } from "../../src/graph/batch.ts";
import { buildModel } from "../../src/models/build.ts";
import type { EngineThread } from "../../src/platform/platform.ts";
import { type TinyOptions, tinyModel } from "../support/tiny-engine.ts";
import { load, runBatches } from "./tiny-backend.ts";

const options: TinyOptions = { weightType: "q8_0", feedForward: 1024 };

let workers: Worker[] = [];
afterEach(async () => {
  await Promise.all(workers.map((worker) => worker.terminate()));
  workers = [];
});

function startThread(): EngineThread {
  const worker = new Worker(new URL("../../src/threads/compute.ts", import.meta.url));
  workers.push(worker);
  return {
    post: (message) => worker.postMessage(message),
    onMessage: (listener) => void worker.on("message", listener),
    onFailure: () => {},
    ref: () => worker.ref(),
    unref: () => worker.unref(),
    terminate: async () => void (await worker.terminate()),
  };
}

async function loaded(threads: number, profile: boolean): Promise<CpuBackend> {
  const backend = new CpuBackend({ level: 3, threads, startThread, profile });
  await load(backend, options);
  return backend;
}

/** All numbers of a thread's events: [part, chunks, start, end]. */
function eventsOf({ events }: BackendProfile, thread: number): number[][] {
  const { numbers } = events[thread]!;
  return Array.from({ length: numbers.length / EVENT_NUMBERS }, (_, i) => [
    ...numbers.subarray(i * EVENT_NUMBERS, (i + 1) * EVENT_NUMBERS),
  ]);
}

describe.each([1, 2])("%i threads", (threads) => {
  test("the results are the same, and times fit into their batches", async () => {
    using plain = disposable(await loaded(threads, false));
    using backend = disposable(await loaded(threads, true));
    expect(await runBatches(backend.it, options)).toEqual(await runBatches(plain.it, options));
    expect(plain.it.profile()).toBeUndefined();
    const profile = backend.it.profile()!;
    const { prompt, generation } = profile.phases;
    expect(generation).toMatchObject({ batchMs: 0, sizes: [] });
    const batches = prompt.sizes.map(({ tokens, outputs, batches: count }) => [
      tokens,
      outputs,
      count,
    ]);
    expect(batches).toEqual([
      [1, 1, 3],
      [3, 3, 1],
      [12, 12, 2],
      [5, 5, 1],
      [8, 8, 1],
    ]);
    expect(prompt.busyMs).toHaveLength(threads);
    for (const busy of prompt.busyMs) {
      const busyMs = busy.reduce((sum, ms) => sum + ms, 0);
      expect(busyMs).toBeLessThanOrEqual(prompt.batchMs * 1.001);
    }
    // Somebody was at work on every part.
    for (let part = 0; part < profile.parts.length; part++) {
      expect(prompt.busyMs.reduce((sum, busy) => sum + busy[part]!, 0)).toBeGreaterThan(0);
    }
  });

  test("a thread does one thing after the other, and all chunks are done once", async () => {
    using backend = disposable(await loaded(threads, true));
    await runBatches(backend.it, options);
    const profile = backend.it.profile()!;
    const ordered = Array.from({ length: threads }, (_, thread) => eventsOf(profile, thread));
    for (const events of ordered) {
      let last = Number.NEGATIVE_INFINITY;
      for (const [, chunks, start, end] of events) {
        expect(chunks).toBeGreaterThan(0);
        expect(start).toBeGreaterThanOrEqual(last);
        expect(end).toBeGreaterThanOrEqual(start!);
        last = end!;
      }
    }
    // The rows of a norm are its chunks: one for each of the 43 tokens of the batches.
    const norm = profile.parts.findIndex(({ name }) => name === "blk.0.attn_norm");
    const chunks = ordered.flat().filter(([part]) => part === norm);
    expect(chunks.reduce((sum, [, count]) => sum + count!, 0)).toBe(43);
  });

  test("reset forgets", async () => {
    using backend = disposable(await loaded(threads, true));
    await runBatches(backend.it, options);
    backend.it.resetProfile();
    const { phases, events } = backend.it.profile()!;
    expect(phases.prompt).toMatchObject({ batchMs: 0, sizes: [] });
    for (const busy of phases.prompt.busyMs) expect(busy.every((ms) => ms === 0)).toBe(true);
    for (const { numbers } of events) expect(numbers).toHaveLength(0);
  });
});

test("every node of the graph is one part's, in order", async () => {
  using backend = disposable(await loaded(1, true));
  const { graph } = buildModel(tinyModel(options));
  const { parts } = backend.it.profile()!;
  const names = parts.flatMap(({ nodes }) => nodes.map(({ name }) => name));
  expect(names).toEqual(graph.nodes.map(({ name }) => name));
  const preparing = parts.filter(({ nodes }) => nodes.length === 0);
  expect(new Set(preparing.map(({ op }) => op))).toEqual(new Set(["quantize", "rope_table"]));
  const first = preparing.find(({ op }) => op === "quantize");
  expect(first).toMatchObject({ name: "blk.0.attn_q" });
});

test("a helper's first record of a batch is its waking up; a late one of the batch before is not", () => {
  const arena = new Arena({ shared: false, memory64: false, start: 0 });
  const area = placeRecords(arena, 1, 2);
  arena.commit();
  const { buffer } = arena.memory;
  const calls = new CallTable();
  for (const thread of [0, 1]) {
    const writer = new RecordWriter(buffer, area, thread);
    writer.write(0, 1, 90, 99);
    writer.write(0, 1, 103, 104);
    writer.write(0, 1, 104, 106);
    writer.write(0, 1, 110, 111);
    new RecordReader(buffer, area, thread).addTo(new Float64Array(1), 100, calls);
  }
  expect(calls.records()).toMatchObject([
    { name: "barrier wait", count: 2, ms: 8 },
    { name: "wake of a thread", count: 1, ms: 3 },
  ]);
});

test("says of how many batches the waits and wakes are, where some were not recorded", () => {
  const arena = new Arena({ shared: false, memory64: false, start: 0 });
  const area = placeRecords(arena, 1, 2);
  arena.commit();
  const records = new BatchRecords(arena.memory.buffer, area, 1, 1);
  const batch = new Batch({ maxTokens: 1, maxOutputs: 1 });
  const run = (count: number): void => {
    for (let i = 0; i < count; i++) {
      records.begin(batch, "generation");
      records.end();
    }
  };
  run(16);
  expect(records.notes()).toEqual([]);
  run(3); // 16 is sampled, 17 and 18 are not
  expect(records.notes()).toEqual([
    "waits and wakes of threads are those of 17 of 19 batches, which were recorded",
  ]);
});

test("a ring keeps what was not read, and the last events", () => {
  const arena = new Arena({ shared: false, memory64: false, start: 0 });
  const area = { ...placeRecords(arena, 1, 2 ** 15), capacity: 4 };
  arena.commit();
  const { buffer } = arena.memory;
  const writer = new RecordWriter(buffer, area, 0);
  const reader = new RecordReader(buffer, area, 0);
  const busyMs = new Float64Array(3);
  const calls = new CallTable();
  for (let i = 0; i < 6; i++) {
    writer.write(i % 3, 1, 10 * i, 10 * i + 2 ** i);
    if (i === 2) reader.addTo(busyMs, 0, calls);
  }
  reader.addTo(busyMs, 30, calls);
  reader.addTo(busyMs, 60, calls);
  expect([...busyMs]).toEqual([1 + 8, 2 + 16, 4 + 32]);
  // The gaps 1-10, 12-20 and 38-40; the record of 40-56 and that of 50-82 overlap.
  expect(calls.records()).toMatchObject([
    { name: "barrier wait", count: 3, ms: 19, minMs: 2, maxMs: 9 },
  ]);
  const { numbers, dropped } = reader.last();
  expect(dropped).toBe(2);
  expect([...numbers]).toEqual([2, 1, 20, 24, 0, 1, 30, 38, 1, 1, 40, 56, 2, 1, 50, 82]);
  reader.forget();
  expect(reader.last()).toEqual({ numbers: new Float64Array(0), dropped: 0 });
});

function disposable(it: CpuBackend): Disposable & { it: CpuBackend } {
  return { it, [Symbol.dispose]: () => it.dispose() };
}

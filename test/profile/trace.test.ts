// The trace: Chrome's Trace Event Format. Processes of this computer and of a GPU, a track for the engine, for each compute thread, for
// calls and copies; counters; microseconds from the first event.
// Held against: the events that the test recorded.

import { describe, expect, test } from "vitest";
import type { ChromeTrace, TraceEvent } from "../../src/api/api.ts";
import type { BackendProfile } from "../../src/backends/backend.ts";
import { joinProfiles } from "../../src/backends/join-profiles.ts";
import { CallTable } from "../../src/base/call-table.ts";
import { Laps } from "../../src/profile/laps.ts";
import { chromeTrace } from "../../src/profile/trace.ts";
import { checkTrace } from "../support/trace-format.ts";

const part = { nodes: [], rows: "tokens", isAlone: false } as const;
const nothing = { batchMs: 0, sizes: [], busyMs: [] };
const phases = { prompt: nothing, generation: nothing };
const memory = { weightBytes: 100, kvBytes: 20, workBytes: 3 };
const backend = { name: "cpu", memory: () => memory };

/** Two batches of 4 ms, one right after the other. */
function twoBatches(): Laps {
  let now = 1000;
  const laps = new Laps(() => now);
  laps.resume();
  for (const end of [1004, 1008]) {
    now = end;
    laps.lap("generation", "batch");
  }
  laps.pause();
  return laps;
}

/** Two threads; only the first batch is recorded. */
const threads: BackendProfile = {
  parts: [
    { ...part, op: "quantize", name: "blk.0.attn_q" },
    { ...part, op: "matmul", name: "blk.0.attn_q" },
  ],
  phases,
  events: [
    // part, chunks, start, end
    { numbers: Float64Array.of(0, 1, 1000, 1001, 1, 3, 1001, 1003), dropped: 0 },
    { numbers: Float64Array.of(1, 5, 1001, 1002), dropped: 0 },
  ],
  packMs: 0,
};

function gpuProfile(): BackendProfile {
  const calls = new CallTable();
  calls.allocated(4096, 1000);
  calls.log("createBuffer", 1000, 1000.5, 4096);
  calls.log("writeBuffer", 1001, 1001.25, 64, "host to device");
  calls.log("submit", 1001.25, 1001.5, 0);
  calls.log("mapAsync", 1001.5, 1003, 0); // waited for while others are made
  calls.log("submit", 1002, 1003.5, 0);
  calls.log("read mapped range", 1003.5, 1003.75, 32, "device to host");
  calls.allocated(-4096, 1007);
  return {
    parts: [{ ...part, op: "matmul", name: "logits" }],
    phases,
    events: [{ numbers: Float64Array.of(0, 1, 1002, 1003), dropped: 0 }],
    packMs: 0,
    worker: "GPU",
    log: calls.logged(),
  };
}

const named = ({ traceEvents }: ChromeTrace, what: string): string[] =>
  traceEvents
    .filter(({ name }) => name === what)
    .map(({ pid, tid, args }) => `${pid}/${tid} ${args!.name}`);

const spansOn = ({ traceEvents }: ChromeTrace, name: string): TraceEvent[] => {
  const track = traceEvents.find((one) => one.name === "thread_name" && one.args!.name === name)!;
  return traceEvents.filter(
    ({ ph, pid, tid }) => ph === "X" && pid === track.pid && tid === track.tid,
  );
};

const counter = ({ traceEvents }: ChromeTrace, name: string): TraceEvent[] =>
  traceEvents.filter((one) => one.ph === "C" && one.name === name);

test("threads: a track for each, on one time line", () => {
  const trace = chromeTrace(twoBatches(), threads, backend);
  checkTrace(trace);
  expect(named(trace, "process_name")).toEqual(["1/0 Lantern"]);
  expect(named(trace, "thread_name")).toEqual([
    "1/1 engine",
    "1/2 compute 0 (the engine's thread)",
    "1/3 compute 1",
  ]);
  const span = (ts: number, dur: number) => ({ ph: "X", pid: 1, ts, dur });
  expect(spansOn(trace, "engine")).toMatchObject([
    { name: "batch", cat: "generation", ...span(0, 4000) },
    { name: "batch", cat: "generation", ...span(4000, 4000) },
  ]);
  expect(spansOn(trace, "compute 0 (the engine's thread)")).toMatchObject([
    { name: "blk.0.attn_q", ...span(0, 1000), args: { op: "quantize", chunks: 1 } },
    { name: "blk.0.attn_q", ...span(1000, 2000), args: { op: "matmul", chunks: 3 } },
  ]);
  expect(spansOn(trace, "compute 1")).toMatchObject([{ ...span(1000, 1000) }]);
});

test("counters: the share of the threads that is busy, slice by slice, and memory", () => {
  const trace = chromeTrace(twoBatches(), threads, backend);
  const used = counter(trace, "utilisation of the threads");
  // 8 slices of half a millisecond, of two threads; the batch that was not recorded counts as the average of the other.
  const recorded = [50, 50, 100, 100, 50, 50, 0, 0];
  expect(used.map(({ ts, args }) => [ts, ...Object.values(args!)])).toEqual([
    ...recorded.map((percent, i) => [i * 500, percent, 0]),
    [4000, 0, 0],
    [4000, 0, 50],
    [8000, 0, 0],
  ]);
  const held = counter(trace, "memory");
  expect(held.map(({ ts, pid }) => [ts, pid])).toEqual([
    [0, 1],
    [8000, 1],
  ]);
  expect(held[0]!.args).toEqual({ weights: 100, "KV cache": 20, "working memory": 3 });
});

describe("a model on two backends", () => {
  const joined = joinProfiles("cpu+webgpu", [
    { name: "cpu", profile: threads, memory },
    { name: "webgpu", profile: gpuProfile(), memory },
  ]);
  const trace = chromeTrace(twoBatches(), joined, { name: "cpu+webgpu", memory: () => memory });

  test("is a process for each, and threads keep their tracks", () => {
    checkTrace(trace);
    expect(named(trace, "process_name")).toEqual(["1/0 Lantern", "2/0 GPU (webgpu)"]);
    expect(spansOn(trace, "GPU")).toMatchObject([{ name: "logits", pid: 2, ts: 2000, dur: 1000 }]);
    expect(spansOn(trace, "compute 1")).toMatchObject([{ pid: 1 }]);
    const used = counter(trace, "utilisation of the GPU");
    expect(new Set(used.map(({ pid }) => pid))).toEqual(new Set([2]));
    expect(used.slice(0, 8).map(({ args }) => args!["% recorded"])).toEqual([
      0, 0, 0, 0, 100, 100, 0, 0,
    ]);
  });

  test("has the calls of the API, those that are waited for beside the others, and copies with their bytes", () => {
    const calls = spansOn(trace, "calls of webgpu");
    expect(calls.map(({ name }) => name)).toEqual([
      ...["createBuffer", "writeBuffer", "submit", "mapAsync", "read mapped range"],
    ]);
    expect(spansOn(trace, "calls of webgpu, beside those").map(({ name }) => name)).toEqual([
      "submit",
    ]);
    expect(spansOn(trace, "copies").map(({ pid, name, args }) => [pid, name, args])).toEqual([
      [2, "host to device", { call: "writeBuffer", bytes: 64 }],
      [2, "device to host", { call: "read mapped range", bytes: 32 }],
    ]);
  });

  test("has the memory of the GPU's buffers over time", () => {
    const held = counter(trace, "memory").filter(({ pid }) => pid === 2);
    expect(held.map(({ ts, args }) => [ts, args!.bytes])).toEqual([
      [0, 4096],
      [7000, 0],
    ]);
  });
});

test("what is no trace is found", () => {
  const event = { name: "a", ph: "X", pid: 1, tid: 1, ts: 0, dur: 10 } as const;
  const traceOf = (...traceEvents: TraceEvent[]): ChromeTrace => ({
    traceEvents,
    displayTimeUnit: "ms",
  });
  const { ts: _, ...timeless } = event;
  expect(() => checkTrace(traceOf(timeless as TraceEvent))).toThrow();
  expect(() => checkTrace(traceOf(event, { ...event, ts: 5 }))).toThrow("overlap");
  expect(() => checkTrace(traceOf({ ...event, dur: -1 }))).toThrow();
});

// The trace: Chrome's format, one track for the engine and one for each compute thread, microseconds from the first event.

import { expect, test } from "vitest";
import type { BackendProfile } from "../../src/backends/backend.ts";
import { Laps } from "../../src/profile/laps.ts";
import { chromeTrace } from "../../src/profile/trace.ts";

test("events of the engine and of the threads on one time line", () => {
  let now = 1000;
  const laps = new Laps(() => now);
  laps.resume();
  now = 1003;
  laps.lap("generation", "batch");
  laps.pause();
  const part = { nodes: [], rows: "tokens", isAlone: false } as const;
  const nothing = { batchMs: 0, sizes: [], busyMs: [] };
  const recorded: BackendProfile = {
    parts: [
      { ...part, op: "quantize", name: "blk.0.attn_q" },
      { ...part, op: "matmul", name: "blk.0.attn_q" },
    ],
    phases: { prompt: nothing, generation: nothing },
    events: [
      // part, chunks, start, end
      { numbers: Float64Array.of(0, 1, 1000.5, 1001, 1, 3, 1001, 1002), dropped: 0 },
      { numbers: Float64Array.of(1, 5, 1001.25, 1002.5), dropped: 0 },
    ],
    packMs: 0,
  };
  const { traceEvents, displayTimeUnit } = chromeTrace(laps, recorded);
  expect(displayTimeUnit).toBe("ms");
  const name = (tid: number, track: string, what = "thread_name") => ({
    name: what,
    ph: "M",
    pid: 1,
    tid,
    args: { name: track },
  });
  const span = (tid: number, what: string, cat: string, ts: number, dur: number) => ({
    name: what,
    cat,
    ph: "X",
    pid: 1,
    tid,
    ts,
    dur,
  });
  expect(traceEvents).toEqual([
    name(1, "Lantern", "process_name"),
    name(1, "engine"),
    span(1, "batch", "generation", 0, 3000),
    name(2, "compute 0 (the engine's thread)"),
    { ...span(2, "blk.0.attn_q", "quantize", 500, 500), args: { op: "quantize", chunks: 1 } },
    { ...span(2, "blk.0.attn_q", "matmul", 1000, 1000), args: { op: "matmul", chunks: 3 } },
    name(3, "compute 1"),
    { ...span(3, "blk.0.attn_q", "matmul", 1250, 1250), args: { op: "matmul", chunks: 5 } },
  ]);
});

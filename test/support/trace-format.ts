// What the Trace Event Format demands of a trace, after it was written and read as JSON: every event has ph, ts, pid and tid; slices of a
// track lie in each other or apart; counters have numbers; and there is a counter of utilisation and of memory for each process that computes.

import { expect } from "vitest";
import type { ChromeTrace, TraceEvent } from "../../src/api/api.ts";

/** Of double arithmetic, in microseconds. */
const SLACK = 0.01;

export function checkTrace(made: ChromeTrace): void {
  const trace = JSON.parse(JSON.stringify(made)) as ChromeTrace;
  expect(trace.displayTimeUnit).toBe("ms");
  for (const event of trace.traceEvents) {
    expect(event).toMatchObject({
      name: expect.any(String),
      ph: expect.stringMatching(/^[XCM]$/),
      ts: expect.any(Number),
      pid: expect.any(Number),
      tid: expect.any(Number),
    });
    expect(event.ts).toBeGreaterThanOrEqual(0);
    if (event.ph === "X") expect(event.dur).toBeGreaterThanOrEqual(0);
    if (event.ph !== "C") continue;
    const values = Object.values(event.args!);
    expect(values.length).toBeGreaterThan(0);
    expect(values.every((value) => Number.isFinite(value))).toBe(true);
    if (!event.name.startsWith("utilisation")) continue;
    for (const value of values as number[]) {
      expect(value).toBeGreaterThanOrEqual(0);
      expect(value).toBeLessThanOrEqual(100 + SLACK);
    }
  }
  const slices = trace.traceEvents.filter(({ ph }) => ph === "X");
  for (const track of Map.groupBy(slices, ({ pid, tid }) => `${pid}/${tid}`).values()) {
    checkNested(track);
  }
  const computing = new Set(
    trace.traceEvents
      .filter(({ name, args }) => name === "thread_name" && /^(compute|GPU)/.test(`${args!.name}`))
      .map(({ pid }) => pid),
  );
  for (const process of computing) {
    const counters = trace.traceEvents.filter(({ ph, pid }) => ph === "C" && pid === process);
    const names = new Set(counters.map(({ name }) => name.split(" ")[0]));
    expect(names).toEqual(new Set(["utilisation", "memory"]));
  }
}

function checkNested(slices: readonly TraceEvent[]): void {
  const open: TraceEvent[] = [];
  const end = ({ ts, dur }: TraceEvent): number => ts + dur!;
  for (const slice of slices.toSorted((a, b) => a.ts - b.ts || b.dur! - a.dur!)) {
    while (open.length > 0 && end(open.at(-1)!) <= slice.ts + SLACK) open.pop();
    const outer = open.at(-1);
    if (outer && end(slice) > end(outer) + SLACK) {
      throw new Error(`slices overlap: ${JSON.stringify(outer)} and ${JSON.stringify(slice)}`);
    }
    open.push(slice);
  }
}

// Recorded events as a trace in Chrome's format, for https://ui.perfetto.dev and chrome://tracing: one track for the
// engine, one for each compute thread. Gaps in a compute track are waiting. Times are microseconds from the first
// event.

import type { ChromeTrace, TraceEvent } from "../api/api.ts";
import { type BackendProfile, EVENT_NUMBERS } from "../backends/backend.ts";
import { LAP_NUMBERS, type Laps, lapKinds, lapSections } from "./laps.ts";

const PROCESS = 1;
const ENGINE_TRACK = 1;
const FIRST_COMPUTE_TRACK = 2;

export function chromeTrace(laps: Laps, recorded: BackendProfile | undefined): ChromeTrace {
  const lapEvents = laps.events();
  const threadEvents = recorded?.events.map((events) => events.numbers) ?? [];
  const origin = Math.min(
    firstStart(lapEvents, LAP_NUMBERS, 2),
    ...threadEvents.map((numbers) => firstStart(numbers, EVENT_NUMBERS, 2)),
  );
  const traceEvents: TraceEvent[] = [
    named("process_name", ENGINE_TRACK, "Lantern"),
    named("thread_name", ENGINE_TRACK, "engine"),
  ];
  for (let at = 0; at < lapEvents.length; at += LAP_NUMBERS) {
    const [start, end] = [lapEvents[at + 2]!, lapEvents[at + 3]!];
    const name = lapKinds[lapEvents[at + 1]!]!;
    const section = lapSections[lapEvents[at]!]!;
    traceEvents.push(span(name, section, ENGINE_TRACK, start - origin, end - start));
  }
  threadEvents.forEach((numbers, thread) => {
    const track = FIRST_COMPUTE_TRACK + thread;
    const first = recorded?.worker ?? "compute 0 (the engine's thread)";
    const label = thread === 0 ? first : `compute ${thread}`;
    traceEvents.push(named("thread_name", track, label));
    for (let at = 0; at < numbers.length; at += EVENT_NUMBERS) {
      const [chunks, start, end] = [numbers[at + 1]!, numbers[at + 2]!, numbers[at + 3]!];
      const { name, op } = recorded!.parts[numbers[at]!]!;
      const event = span(name, op, track, start - origin, end - start);
      traceEvents.push({ ...event, args: { op, chunks } });
    }
  });
  return { traceEvents, displayTimeUnit: "ms" };
}

function firstStart(events: Float64Array, stride: number, offset: number): number {
  let first = Number.POSITIVE_INFINITY;
  for (let at = offset; at < events.length; at += stride) first = Math.min(first, events[at]!);
  return first;
}

function span(name: string, cat: string, tid: number, startMs: number, ms: number): TraceEvent {
  return { name, cat, ph: "X", pid: PROCESS, tid, ts: startMs * 1000, dur: ms * 1000 };
}

function named(what: "process_name" | "thread_name", tid: number, name: string): TraceEvent {
  return { name: what, ph: "M", pid: PROCESS, tid, args: { name } };
}

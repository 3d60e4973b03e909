// Recorded events as a trace in Chrome's format, for https://ui.perfetto.dev and chrome://tracing. Process 1 is this computer: the
// engine, each compute thread, the calls of the GPU's API. Process 2 is the GPU: its computations, and copies to and from it. Gaps in a
// compute track are waiting. Counters (trace-counters.ts) are utilisation and memory of each. Times are microseconds from the first
// event.

import type { ChromeTrace, TraceEvent } from "../api/api.ts";
import {
  type Backend,
  type BackendProfile,
  EVENT_NUMBERS,
  type SideProfile,
} from "../backends/backend.ts";
import { CALL_NUMBERS, type CallLog } from "../base/call-table.ts";
import { LAP_NUMBERS, type Laps, lapKinds, lapSections } from "./laps.ts";
import { type BatchSpan, memoryCounters, utilisation } from "./trace-counters.ts";

const [HOST, DEVICE] = [1, 2];
const ENGINE_TRACK = 1;
const FIRST_COMPUTE_TRACK = 2;

export function chromeTrace(
  laps: Laps,
  recorded: BackendProfile | undefined,
  backend: Pick<Backend, "name" | "memory">,
): ChromeTrace {
  const { name } = backend;
  const whole = recorded && [{ name, profile: recorded, memory: backend.memory() }];
  const sides = recorded?.sides ?? whole ?? [];
  const lapEvents = laps.events();
  const origin = Math.min(
    firstStart(lapEvents, LAP_NUMBERS, 2),
    ...sides.flatMap(({ profile: { events, log } }) => [
      ...events.map(({ numbers }) => firstStart(numbers, EVENT_NUMBERS, 2)),
      ...(log ? [firstStart(log.numbers, CALL_NUMBERS, 1), firstStart(log.held, 2, 0)] : []),
    ]),
  );
  const at = (ms: number): number => (ms - origin) * 1000;
  const batches = batchSpans(lapEvents);
  const tracks = new Tracks();
  tracks.computer(HOST, "Lantern");
  tracks.track(HOST, ENGINE_TRACK, "engine", lapSpans(lapEvents, at));
  for (const side of sides) addSide(tracks, side, batches, at);
  return { traceEvents: tracks.events, displayTimeUnit: "ms" };
}

/** A slice of a track before it has one. */
type Span = Pick<TraceEvent, "name" | "cat" | "ts" | "args"> & { dur: number };

function addSide(
  tracks: Tracks,
  side: SideProfile,
  batches: readonly BatchSpan[],
  at: (ms: number) => number,
): void {
  const { profile, memory } = side;
  const { worker, events, parts, log } = profile;
  const pid = worker === undefined ? HOST : DEVICE;
  if (pid === DEVICE) tracks.computer(DEVICE, `GPU (${side.name})`);
  events.forEach(({ numbers }, thread) => {
    const first = worker ?? "compute 0 (the engine's thread)";
    const label = thread === 0 ? first : `compute ${thread}`;
    const spans = Array.from({ length: numbers.length / EVENT_NUMBERS }, (_, i): Span => {
      const [part, chunks, start, end] = row(numbers, i, EVENT_NUMBERS);
      const { name, op } = parts[part]!;
      return { ...spanOf(name, op, start, end, at), args: { op, chunks: chunks } };
    });
    tracks.track(pid, FIRST_COMPUTE_TRACK + thread, label, spans);
  });
  if (log) {
    tracks.nested(HOST, `calls of ${side.name}`, callSpans(log, "call", at));
    tracks.nested(DEVICE, "copies", callSpans(log, "copy", at));
  }
  const what = worker === undefined ? "threads" : "GPU";
  tracks.counters(pid, `utilisation of the ${what}`, utilisation(events, batches), at);
  tracks.counters(pid, "memory", memoryCounters(memory, log?.held, batches), at);
}

function lapSpans(laps: Float64Array, at: (ms: number) => number): Span[] {
  return Array.from({ length: laps.length / LAP_NUMBERS }, (_, i) => {
    const [section, kind, start, end] = row(laps, i, LAP_NUMBERS);
    return spanOf(lapKinds[kind]!, lapSections[section]!, start, end, at);
  });
}

function batchSpans(laps: Float64Array): BatchSpan[] {
  const spans: BatchSpan[] = [];
  for (let i = 0; i < laps.length; i += LAP_NUMBERS) {
    if (lapKinds[laps[i + 1]!] !== "batch") continue;
    spans.push({ phase: lapSections[laps[i]!]!, start: laps[i + 2]!, end: laps[i + 3]! });
  }
  return spans.sort((a, b) => a.start - b.start);
}

/** All calls, or those that copy. */
function callSpans(log: CallLog, what: "call" | "copy", at: (ms: number) => number): Span[] {
  const spans = Array.from({ length: log.numbers.length / CALL_NUMBERS }, (_, i): Span[] => {
    const [index, start, end, bytes] = row(log.numbers, i, CALL_NUMBERS);
    const { name, copy } = log.names[index]!;
    if (what === "copy" && !copy) return [];
    const span = spanOf(what === "copy" ? copy! : name, what, start, end, at);
    return [bytes > 0 ? { ...span, args: { call: name, bytes: bytes } } : span];
  });
  return spans.flat();
}

function spanOf(
  name: string,
  cat: string,
  startMs: number,
  endMs: number,
  at: (ms: number) => number,
): Span {
  return { name, cat, ts: at(startMs), dur: (endMs - startMs) * 1000 };
}

class Tracks {
  readonly events: TraceEvent[] = [];
  /** Of those that are numbered here. */
  #nextTrack = 1000;

  computer(pid: number, name: string): void {
    const isKnown = this.events.some((one) => one.name === "process_name" && one.pid === pid);
    if (!isKnown) this.#named("process_name", pid, 0, name);
  }

  track(pid: number, tid: number, name: string, spans: readonly Span[]): void {
    this.#named("thread_name", pid, tid, name);
    for (const { name: of, cat, ts, dur, args } of spans) {
      this.events.push({ name: of, cat: cat!, ph: "X", pid, tid, ts, dur, ...(args && { args }) });
    }
  }

  /** Slices of a track lie in each other or apart: a call that is waited for while others are made needs another track. */
  nested(pid: number, name: string, spans: readonly Span[]): void {
    const sorted = spans.toSorted((a, b) => a.ts - b.ts || b.dur - a.dur);
    const lanes: { spans: Span[]; open: number[] }[] = [];
    for (const span of sorted) {
      const end = span.ts + span.dur;
      const fits = ({ open }: { open: number[] }): boolean => {
        while (open.length > 0 && open.at(-1)! <= span.ts) open.pop();
        return open.length === 0 || end <= open.at(-1)!;
      };
      let lane = lanes.find(fits);
      if (!lane) {
        lane = { spans: [], open: [] };
        lanes.push(lane);
      }
      lane.open.push(end);
      lane.spans.push(span);
    }
    lanes.forEach((lane, i) => {
      this.track(pid, this.#nextTrack++, i === 0 ? name : `${name}, beside those`, lane.spans);
    });
  }

  counters(
    pid: number,
    name: string,
    samples: readonly { readonly ms: number; readonly values: Record<string, number> }[],
    at: (ms: number) => number,
  ): void {
    for (const { ms, values } of samples) {
      this.events.push({ name, ph: "C", pid, tid: 0, ts: Math.max(0, at(ms)), args: values });
    }
  }

  #named(what: "process_name" | "thread_name", pid: number, tid: number, name: string): void {
    this.events.push({ name: what, ph: "M", pid, tid, ts: 0, args: { name } });
  }
}

/** The numbers of one event: four. */
function row(events: Float64Array, index: number, size: number): [number, number, number, number] {
  return [...events.subarray(index * size, (index + 1) * size)] as [number, number, number, number];
}

function firstStart(events: Float64Array, stride: number, offset: number): number {
  let first = Number.POSITIVE_INFINITY;
  for (let at = offset; at < events.length; at += stride) first = Math.min(first, events[at]!);
  return first;
}

// The engine's stopwatch. A lap ends where the next one starts, so all time between resume() and pause() is counted.
// It knows no threads and no ops; those are in the backend's profile (BackendProfile).
//
// Concurrent generations share one stopwatch: the engine has one thread, and a lap belongs to the generation that ends
// it.

import type { BatchPhase } from "../backends/backend.ts";
import { CallTable } from "../base/call-table.ts";
import { HeapWatch } from "./heap.ts";

/**
 * Kinds of work that the engine spends time on. "start": its thread starts and loads its code; "request": template, tokenizing, and other work before a
 * generation starts; "batch": the backend computes.
 */
export const lapKinds = [
  "start",
  "open",
  "prepare",
  "weights",
  "request",
  "bookkeeping",
  "batch",
  "logits",
  "sampling",
  "text",
  "messages",
] as const;
export type LapKind = (typeof lapKinds)[number];

export const lapSections = ["load", "prompt", "generation"] as const;
export type LapSection = "load" | BatchPhase;

/** Numbers per event: section, kind, start, end. */
export const LAP_NUMBERS = 4;
/** Events that are kept: enough for several thousand tokens. */
const EVENTS = 2 ** 15;

export class Laps {
  /** Calls of the engine itself: reads of the model's files. */
  readonly calls: CallTable = new CallTable();
  readonly #now: () => number;
  readonly #heap: HeapWatch;
  /** ms of each kind: [section][kind]. */
  readonly #totals: Readonly<Record<LapSection, Float64Array>> = {
    load: new Float64Array(lapKinds.length),
    prompt: new Float64Array(lapKinds.length),
    generation: new Float64Array(lapKinds.length),
  };
  readonly #events: Float64Array = new Float64Array(EVENTS * LAP_NUMBERS);
  #eventCount = 0;
  #last = 0;
  /** Running requests. */
  #active = 0;

  /** `heapBytes` returns the size of the thread's heap, or undefined if the platform does not report it. */
  constructor(now: () => number, heapBytes: () => number | undefined = () => undefined) {
    this.#now = now;
    this.#heap = new HeapWatch(heapBytes);
  }

  /** A request starts: time counts from now, or from `ago` ms earlier, unless the stopwatch runs already. */
  resume(ago: number = 0): void {
    if (this.#active++ > 0) return;
    this.#heap.pause();
    this.#last = this.#now() - ago;
  }

  pause(): void {
    this.#active--;
  }

  /** Counts the time since the last lap as `kind`. */
  lap(section: LapSection, kind: LapKind): void {
    if (this.#active === 0) return;
    const now = this.#now();
    const kindIndex = lapKinds.indexOf(kind);
    this.#totals[section][kindIndex]! += now - this.#last;
    const at = (this.#eventCount++ % EVENTS) * LAP_NUMBERS;
    this.#events[at] = lapSections.indexOf(section);
    this.#events[at + 1] = kindIndex;
    this.#events[at + 2] = this.#last;
    this.#events[at + 3] = now;
    this.#last = now;
    if (kind === "batch" && section !== "load") this.#heap.batch(section);
  }

  /** Measures a read of a model file. */
  async reading(bytes: number, read: Promise<void>): Promise<void> {
    const start = this.#now();
    await read;
    this.calls.add("read file", this.#now() - start, bytes);
  }

  /** Forgets everything but the load. */
  reset(): void {
    this.#totals.prompt.fill(0);
    this.#totals.generation.fill(0);
    this.#eventCount = 0;
    this.#heap.reset();
  }

  /** JavaScript heap that is allocated from one batch to the next; undefined if not known. */
  heapBytesPerBatch(phase: BatchPhase): number | undefined {
    return this.#heap.bytesPerBatch(phase);
  }

  ms(section: LapSection, kind: LapKind): number {
    return this.#totals[section][lapKinds.indexOf(kind)]!;
  }

  sectionMs(section: LapSection): number {
    return this.#totals[section].reduce((sum, ms) => sum + ms, 0);
  }

  /** The last laps, in no particular order. */
  events(): Float64Array {
    return this.#events.slice(0, Math.min(this.#eventCount, EVENTS) * LAP_NUMBERS);
  }
}

// The times that compute threads record: each thread has a ring buffer of records in the shared memory, which it alone writes
// and the leader alone reads (batch-records.ts). Nothing is allocated and no thread waits.
//
// The rings are long, because they also hold the last events of each thread for a trace. A ring is an i32 count of the
// records written so far, and from RING_START on the records as in RecordedEvents: float64 instruction, chunks, start, end.
// Times are ms on the leader's clock: in a browser the clock of a worker begins at its start, so a thread adds the difference
// of the two origins.

import type { CallTable } from "../../../base/call-table.ts";
import { EVENT_NUMBERS, type RecordedEvents } from "../../backend.ts";
import type { Arena } from "../memory/arena.ts";

const RING_START = 64;
/** The least number of records of all threads together: 200 tokens of a model with 22 layers, on two threads. 4 MB. */
const RECORDS = 2 ** 17;

/** The global is a getter in some engines, and the clock is read hundreds of times per token. */
const clock: Performance = performance;

/** The addresses of the rings: plain data, sent to every thread. */
export interface RecordArea {
  readonly at: number;
  readonly ringBytes: number;
  /** Records of a ring: a power of two. */
  readonly capacity: number;
  /** performance.timeOrigin of the leader. */
  readonly origin: number;
  /** i32: 1 while batches are recorded; the leader decides before each. */
  readonly isOn: number;
}

/**
 * Places rings that lose nothing: the leader reads them in every batch, and a slow thread has at most the records of one
 * more batch in its ring.
 */
export function placeRecords(arena: Arena, instructions: number, threads: number): RecordArea {
  const capacity = 2 ** Math.ceil(Math.log2(Math.max(4 * instructions, RECORDS / threads)));
  const ringBytes = RING_START + capacity * EVENT_NUMBERS * 8;
  const at = arena.allocate(ringBytes * threads, "work", "records", threads);
  const isOn = arena.allocate(4, "work", "whether times are recorded");
  return { at, ringBytes, capacity, origin: clock.timeOrigin, isOn };
}

/** A ring with its views. */
class Ring {
  /** Records written. */
  readonly count: Int32Array;
  readonly numbers: Float64Array;
  readonly mask: number;

  constructor(buffer: ArrayBufferLike, { at, ringBytes, capacity }: RecordArea, thread: number) {
    const start = at + thread * ringBytes;
    this.count = new Int32Array(buffer, start, 1);
    this.numbers = new Float64Array(buffer, start + RING_START, capacity * EVENT_NUMBERS);
    this.mask = capacity - 1;
  }
}

/** The writing end of a ring, and the thread's clock. */
export class RecordWriter {
  readonly #ring: Ring;
  readonly #offset: number;
  readonly #flag: Int32Array;
  #written: number;

  constructor(buffer: ArrayBufferLike, area: RecordArea, thread: number) {
    this.#ring = new Ring(buffer, area, thread);
    this.#offset = clock.timeOrigin - area.origin;
    this.#flag = new Int32Array(buffer, area.isOn, 1);
    this.#written = Atomics.load(this.#ring.count, 0); // not 0 for a thread that replaces one that was lost
  }

  /** Whether this batch is recorded. */
  get isOn(): boolean {
    return Atomics.load(this.#flag, 0) === 1;
  }

  now(): number {
    return clock.now() + this.#offset;
  }

  write(instruction: number, chunks: number, start: number, end: number): void {
    const { numbers, mask, count } = this.#ring;
    const at = (this.#written & mask) * EVENT_NUMBERS;
    numbers[at] = instruction;
    numbers[at + 1] = chunks;
    numbers[at + 2] = start;
    numbers[at + 3] = end;
    this.#written = (this.#written + 1) | 0;
    Atomics.store(count, 0, this.#written);
  }
}

/** The reading end of a ring, for the leader. */
export class RecordReader {
  readonly #ring: Ring;
  readonly #thread: number;
  #read = 0;
  /** Records before this one are dropped. */
  #first = 0;

  constructor(buffer: ArrayBufferLike, area: RecordArea, thread: number) {
    this.#ring = new Ring(buffer, area, thread);
    this.#thread = thread;
  }

  /** Drops the records that were read until now. */
  forget(): void {
    this.#first = this.#read;
  }

  /**
   * Adds the times written since the last call to those of their instructions. The time from one record to the next is a
   * wait for other threads, that from the batch's start to a helper's first record its waking up.
   */
  addTo(busyMs: Float64Array, startedMs: number, calls: CallTable): void {
    const { numbers, mask, count } = this.#ring;
    const written = Atomics.load(count, 0);
    let lastEnd = this.#thread > 0 ? startedMs : Number.POSITIVE_INFINITY;
    let name = "wake of a thread";
    for (let i = this.#read; i !== written; i = (i + 1) | 0) {
      const at = (i & mask) * EVENT_NUMBERS;
      const [start, end] = [numbers[at + 2]!, numbers[at + 3]!];
      busyMs[numbers[at]!]! += end - start;
      if (start < startedMs) continue; // the late last record of the batch before
      if (start > lastEnd) calls.add(name, start - lastEnd);
      name = "barrier wait";
      lastEnd = end;
    }
    this.#read = written;
  }

  /** The records that are still there, oldest first. */
  last(): RecordedEvents {
    const { numbers, mask, count } = this.#ring;
    const written = (Atomics.load(count, 0) - this.#first) >>> 0;
    const kept = Math.min(written, mask + 1);
    const found = new Float64Array(kept * EVENT_NUMBERS);
    for (let i = 0; i < kept; i++) {
      const at = ((this.#first + written - kept + i) & mask) * EVENT_NUMBERS;
      found.set(numbers.subarray(at, at + EVENT_NUMBERS), i * EVENT_NUMBERS);
    }
    return { numbers: found, dropped: written - kept };
  }
}

// Times that the compute threads record: each thread has a ring of records in the shared memory, which it alone writes
// and the leader alone reads (step-records.ts). Nothing is allocated and nobody waits.
//
// A ring is an i32 count of the records written so far, and from RING_START on the records: four float64 numbers each,
// instruction, chunks, start, end. Times are ms on the leader's clock: every worker of a browser counts from its own
// start, so a thread adds the difference of the two origins.

import type { Arena } from "./arena.ts";

const RECORD_NUMBERS = 4;
const RING_START = 64;

/** Where the rings are: plain data, sent to every thread. */
export interface RecordArea {
  readonly at: number;
  readonly ringBytes: number;
  /** Records of a ring: a power of two. */
  readonly capacity: number;
  /** performance.timeOrigin of the leader. */
  readonly origin: number;
}

/**
 * Rings that cannot overflow: the leader empties them in every step, and a thread that lags behind has written at most
 * what it did in the step before.
 */
export function placeRecords(arena: Arena, instructions: number, threads: number): RecordArea {
  const capacity = 2 ** Math.ceil(Math.log2(4 * Math.max(1, instructions)));
  const ringBytes = RING_START + capacity * RECORD_NUMBERS * 8;
  const at = arena.allocate(ringBytes * threads, "work");
  return { at, ringBytes, capacity, origin: performance.timeOrigin };
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
    this.numbers = new Float64Array(buffer, start + RING_START, capacity * RECORD_NUMBERS);
    this.mask = capacity - 1;
  }
}

/** A thread's end of its ring, and its clock. */
export class RecordWriter {
  readonly #ring: Ring;
  readonly #offset: number;
  #written: number;

  constructor(buffer: ArrayBufferLike, area: RecordArea, thread: number) {
    this.#ring = new Ring(buffer, area, thread);
    this.#offset = performance.timeOrigin - area.origin;
    this.#written = Atomics.load(this.#ring.count, 0); // not 0 for a thread that replaces one that was lost
  }

  now(): number {
    return performance.now() + this.#offset;
  }

  write(instruction: number, chunks: number, start: number, end: number): void {
    const { numbers, mask, count } = this.#ring;
    const at = (this.#written & mask) * RECORD_NUMBERS;
    numbers[at] = instruction;
    numbers[at + 1] = chunks;
    numbers[at + 2] = start;
    numbers[at + 3] = end;
    this.#written = (this.#written + 1) | 0;
    Atomics.store(count, 0, this.#written);
  }
}

/** The leader's end of a thread's ring. */
export class RecordReader {
  readonly #ring: Ring;
  #read = 0;

  constructor(buffer: ArrayBufferLike, area: RecordArea, thread: number) {
    this.#ring = new Ring(buffer, area, thread);
  }

  /** Takes what was written since the last time. */
  take(see: (instruction: number, chunks: number, start: number, end: number) => void): void {
    const { numbers, mask, count } = this.#ring;
    const written = Atomics.load(count, 0);
    for (; this.#read !== written; this.#read = (this.#read + 1) | 0) {
      const at = (this.#read & mask) * RECORD_NUMBERS;
      see(numbers[at]!, numbers[at + 1]!, numbers[at + 2]!, numbers[at + 3]!);
    }
  }
}

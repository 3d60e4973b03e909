// A measuring thread: gets the kernels and the memory once, then runs the rounds that measure.ts requests; or wakes
// another, for notify.ts.
//
// In a round all threads start together, take chunks of work dynamically (like the engine's threads, so that a delayed
// one does not hold up the others) and end together, when the first of them has worked long enough.

import { BLOCK_BYTES, type NativeJob, openNativeJob } from "../backends/cpu/native/entry.ts";
import type { WasmMemory } from "../kernels/asm/wasm.ts";
import type { EnginePort, NativeAccess } from "../platform/platform.ts";
import type { MeasureKernel } from "./kernels.ts";

// Shared i32 words at the start of the memory.
const ARRIVED = 0;
const NEXT = 1;
const STOP = 2;
const WORDS = 3;
/** Start of the threads' results: a cache line each, after the words. */
const RESULTS = 64;
const RESULT_BYTES = 64;

/** Offset of the parameter blocks of machine code, after the results. */
export function blocksAt(threads: number): number {
  return RESULTS + RESULT_BYTES * threads;
}

/** Bytes at the start of the memory that are not measured. */
export function controlBytes(threads: number): number {
  return blocksAt(threads) + BLOCK_BYTES * threads;
}

export interface MeasureJob {
  readonly kind: "job";
  readonly module: WebAssembly.Module;
  /** Shared with the other threads; undefined if memory cannot be shared: then the thread allocates its own. */
  readonly memory: WebAssembly.Memory | undefined;
  readonly limits: WasmMemory;
  /** The kernels as machine code; if given, these are measured. */
  readonly native: NativeJob | undefined;
  readonly thread: number;
}

/** Writes all bytes once: memory that was never written has no pages yet. */
export interface FillTask {
  readonly kind: "fill";
  readonly from: number;
  readonly bytes: number;
}

export interface RoundTask {
  readonly kind: "round";
  readonly kernel: string;
  readonly threads: number;
  readonly ms: number;
  /** Chunk i starts at from + (i mod chunks) * chunkBytes; the first of the round is chunk `first`. */
  readonly from: number;
  readonly chunkBytes: number;
  readonly chunks: number;
  readonly first: number;
  /** Rounds of the kernel per chunk. */
  readonly rounds: number;
  readonly stride: number;
}

/** The result of a thread's round. */
export interface RoundReport {
  readonly chunks: number;
  readonly ms: number;
}

/** Two threads wake each other alternately; needs no job. */
export interface WakeTask {
  readonly kind: "wake";
  /** Shared; the first says whose turn it is. */
  readonly words: Int32Array;
  /** 0 begins, and takes the times. */
  readonly side: number;
  readonly rounds: number;
  /** The task ends after this many milliseconds, with fewer rounds. */
  readonly ms: number;
}

export interface WakeReport {
  /** Microseconds of a wake-up, round by round. */
  readonly us: readonly number[];
}

/** Replies to every message with a RoundReport, or a WakeReport. */
export function serveMeasure({ port, now, native }: MeasureHost): void {
  let worker: MeasureWorker | undefined;
  const begin = (job: MeasureJob, host: NativeAccess) => {
    worker = new MeasureWorker(job, host, now);
    port.post(nothing);
  };
  port.onMessage((received) => {
    const message = received as MeasureJob | FillTask | RoundTask | WakeTask;
    if (message.kind === "round") port.post(worker!.round(message));
    else if (message.kind === "wake") port.post(takeTurns(message, now));
    else if (message.kind === "fill") {
      worker!.fill(message);
      port.post(nothing);
    } else if (message.native) void native().then((host) => begin(message, host));
    else begin(message, "all kernels are WebAssembly");
  });
}

/** A sleeper looks again after this long, so that it sees the end of the time. */
const SLEEP_MS = 20;

function takeTurns({ words, side, rounds, ms }: WakeTask, now: () => number): WakeReport {
  const us: number[] = [];
  const other = 1 - side;
  const pass = () => {
    Atomics.store(words, 0, other);
    Atomics.notify(words, 0);
  };
  const deadline = now() + ms;
  for (let round = 0; round < rounds; round++) {
    const started = now();
    if (side === 0) pass();
    while (Atomics.load(words, 0) !== side) {
      if (now() > deadline) return { us };
      Atomics.wait(words, 0, other, SLEEP_MS);
    }
    us.push(((now() - started) * 1000) / 2);
    if (side === 1) pass();
  }
  return { us };
}

const nothing: RoundReport = { chunks: 0, ms: 0 };

/** The functions that a measuring thread needs from its platform. */
export interface MeasureHost {
  readonly port: EnginePort;
  now(): number;
  native(): Promise<NativeAccess>;
}

class MeasureWorker {
  readonly #bytes: Uint8Array;
  readonly #words: Int32Array;
  readonly #kernels: Readonly<Record<string, MeasureKernel>>;
  readonly #out: number;
  readonly #now: () => number;

  constructor(job: MeasureJob, host: NativeAccess, now: () => number) {
    const { module, memory: shared, limits, native, thread } = job;
    const memory = shared ?? new WebAssembly.Memory(limits);
    const { exports } = new WebAssembly.Instance(module, { env: { memory } });
    this.#bytes = new Uint8Array(memory.buffer);
    this.#words = new Int32Array(memory.buffer, 0, WORDS);
    this.#kernels = native
      ? openNativeJob(native, host, memory.buffer, thread)
      : (exports as unknown as Record<string, MeasureKernel>);
    this.#out = RESULTS + RESULT_BYTES * thread;
    this.#now = now;
  }

  fill({ from, bytes }: FillTask): void {
    this.#bytes.fill(1, from, from + bytes);
  }

  round(task: RoundTask): RoundReport {
    const { from, chunkBytes, rounds, stride, ms } = task;
    const kernel = this.#kernels[task.kernel]!;
    const words = this.#words;
    this.#barrier(task.threads);
    const started = this.#now();
    for (let chunks = 1; ; chunks++) {
      const chunk = (task.first + Atomics.add(words, NEXT, 1)) % task.chunks;
      kernel(from + chunk * chunkBytes, this.#out, rounds, stride);
      const spent = this.#now() - started;
      if (spent >= ms) Atomics.store(words, STOP, 1);
      if (Atomics.load(words, STOP) !== 0) return { chunks, ms: spent };
    }
  }

  /** A barrier of all threads. The last one to arrive clears the state of the round before. */
  #barrier(threads: number): void {
    const words = this.#words;
    const arrived = Atomics.add(words, ARRIVED, 1) + 1;
    if (arrived === threads) {
      Atomics.store(words, NEXT, 0);
      Atomics.store(words, STOP, 0);
      Atomics.store(words, ARRIVED, 0);
      Atomics.notify(words, ARRIVED);
      return;
    }
    for (let here = arrived; here !== 0; here = Atomics.load(words, ARRIVED)) {
      Atomics.wait(words, ARRIVED, here);
    }
  }
}

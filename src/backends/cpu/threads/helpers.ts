// The helper threads of the CPU backend, as the leader sees them. They are started and get their jobs before weights are
// read, since they help to pack them, and report when they are ready. There are no messages after that. A helper that dies is
// noticed during a batch (batch-wait.ts) or between two; either way all helpers are replaced.

import { WorkerError } from "../../../base/errors.ts";
import type { EngineThread } from "../../../platform/platform.ts";
import type { ComputeJob } from "./compute.ts";

export type JobOf = (thread: number) => ComputeJob;

export class Helpers {
  readonly #count: number;
  readonly #start: (() => EngineThread) | undefined;
  #threads: EngineThread[] = [];
  #ready: Promise<unknown> = Promise.resolve();
  #isLost = false;

  constructor(count: number, start: (() => EngineThread) | undefined) {
    this.#count = count;
    this.#start = start;
  }

  /** Starts helpers for the threads 1, 2, ... and gives them their jobs. */
  begin(jobOf: JobOf): void {
    const start = this.#start;
    this.#isLost = false;
    this.#threads = start ? Array.from({ length: this.#count }, start) : [];
    this.#ready = Promise.all(this.#threads.map((thread) => this.#whenReady(thread)));
    this.#ready.catch(() => {}); // ready() tells
    this.#threads.forEach((thread, i) => {
      thread.post(jobOf(i + 1));
    });
  }

  /** Resolves when all helpers are ready. */
  async ready(): Promise<void> {
    await this.#ready;
  }

  /** One of them has died, or hangs. */
  get isLost(): boolean {
    return this.#isLost;
  }

  lose(): void {
    this.#isLost = true;
  }

  /** Ends the remaining helpers; resolves when none of them accesses the memory any more. */
  async end(): Promise<void> {
    const threads = this.#threads.splice(0);
    await Promise.all(threads.map((thread) => thread.terminate()));
  }

  #whenReady(thread: EngineThread): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    thread.onMessage(() => {
      thread.unref(); // a helper does not keep the process alive
      resolve();
    });
    thread.onFailure((cause) => {
      this.lose();
      reject(new WorkerError(`a compute thread did not start (${cause.message})`, { cause }));
    });
    return promise;
  }
}

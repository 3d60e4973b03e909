// The threads that help the CPU backend, from its side: started and given their job before weights are read, since they
// help to pack them, and counted when they have said that they take part. After that nothing is said. One that dies is
// missed in the middle of a batch (team.ts), or seen to be gone between two; either way all of them are replaced.

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

  /** Resolves when all of them take part. */
  async ready(): Promise<void> {
    await this.#ready;
  }

  /** One of them is gone, or does not finish what it took. */
  get isLost(): boolean {
    return this.#isLost;
  }

  lose(): void {
    this.#isLost = true;
  }

  /** Ends those that are left; resolves when none of them touches the memory any more. */
  async end(): Promise<void> {
    const threads = this.#threads.splice(0);
    await Promise.all(threads.map((thread) => thread.terminate()));
  }

  #whenReady(thread: EngineThread): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    thread.onMessage(() => {
      thread.unref(); // helping keeps no process alive
      resolve();
    });
    thread.onFailure((cause) => {
      this.lose();
      reject(new WorkerError(`a compute thread did not start (${cause.message})`, { cause }));
    });
    return promise;
  }
}

// The threads that help the CPU backend, from its side: started while weights are still being read, given their job when
// there is a program, and counted only when they have said that they take part. After that nothing is said; a thread that
// is lost is missed in the middle of a step (team.ts).

import { WorkerError } from "../../base/errors.ts";
import type { EngineThread } from "../../platform/platform.ts";
import type { ComputeJob } from "./compute.ts";

export class Helpers {
  readonly #threads: EngineThread[];
  readonly #ready: Promise<void>[];

  constructor(count: number, start: (() => EngineThread) | undefined) {
    this.#threads = start ? Array.from({ length: count }, start) : [];
    this.#ready = this.#threads.map(whenReady);
  }

  /** Gives helper i (from 0) the job of thread i + 1; resolves when all of them take part. */
  async begin(jobOf: (thread: number) => ComputeJob): Promise<void> {
    this.#threads.forEach((thread, i) => {
      thread.post(jobOf(i + 1));
    });
    await Promise.all(this.#ready);
  }

  end(): void {
    for (const thread of this.#threads) void thread.terminate();
  }
}

function whenReady(thread: EngineThread): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  promise.catch(() => {}); // begin() is told; it may not have been called yet
  thread.onMessage(() => {
    thread.unref(); // helping keeps no process alive
    resolve();
  });
  thread.onFailure((cause) => {
    reject(new WorkerError(`a compute thread did not start (${cause.message})`, { cause }));
  });
  return promise;
}

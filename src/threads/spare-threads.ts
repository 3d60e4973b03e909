// Spare compute threads, which start before their work is known: while the engine's thread still loads its own code and reads the
// model's header. Starting a thread takes as long as reading hundreds of megabytes.
//
// Their number is a guess. The backend takes them one by one, and gets new ones if they do not suffice; end() ends the unused ones.

import type { OpenRequest } from "../engine/protocol.ts";
import type { EngineThread, Platform } from "../platform/platform.ts";

/** No more than this, however many cores there are: each takes some memory. */
const MOST_SPARES = 63;

/** The compute threads that a request will probably need, beside the leader. */
export function sparesFor(
  request: Pick<OpenRequest, "threads" | "backend" | "gpuLayers" | "gpuFor" | "binding">,
  cores: number,
): number {
  const { threads = cores, backend = "cpu", gpuLayers = 0, gpuFor, binding } = request;
  const isElsewhere = backend !== "cpu" || gpuLayers !== 0 || gpuFor !== undefined;
  if (isElsewhere || binding || !Number.isInteger(threads)) return 0;
  return Math.min(Math.max(threads - 1, 0), MOST_SPARES);
}

export class SpareThreads {
  readonly #platform: Pick<Platform, "startThread">;
  readonly #spares: EngineThread[] = [];

  constructor(platform: Pick<Platform, "startThread">) {
    this.#platform = platform;
  }

  start(count: number): void {
    for (let i = 0; i < count; i++) {
      this.#spares.push(keepingFailure(this.#platform.startThread("compute")));
    }
  }

  /** A thread that is starting already, or a new one. */
  take(): EngineThread {
    return this.#spares.shift() ?? this.#platform.startThread("compute");
  }

  /** Ends the threads that were not taken. */
  async end(): Promise<void> {
    await Promise.all(this.#spares.splice(0).map((thread) => thread.terminate()));
  }
}

/** Tells the thread's taker that it has failed, also if it did before. */
function keepingFailure(thread: EngineThread): EngineThread {
  let failure: Error | undefined;
  let onFailure: ((error: Error) => void) | undefined;
  thread.onFailure((error) => {
    failure = error;
    onFailure?.(error);
  });
  return {
    ...thread,
    onFailure: (listener) => {
      onFailure = listener;
      if (failure) listener(failure);
    },
  };
}

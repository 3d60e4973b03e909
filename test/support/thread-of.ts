// A worker of a test in the place of an engine's thread.

import type { Worker } from "node:worker_threads";
import type { EngineThread } from "../../src/platform/platform.ts";

export function threadOf(worker: Worker): EngineThread {
  let ended = false;
  return {
    post: (message, transfer) => worker.postMessage(message, transfer ?? []),
    onMessage: (listener) => void worker.on("message", listener),
    onFailure: (listener) => {
      worker.on("error", (error) => listener(error as Error));
      worker.on("exit", (code) => {
        if (!ended) listener(new Error(`it ended with exit code ${code}`));
      });
    },
    ref: () => worker.ref(),
    unref: () => worker.unref(),
    terminate: async () => {
      ended = true;
      await worker.terminate();
    },
  };
}

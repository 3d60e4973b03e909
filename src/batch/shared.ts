// What a server asks of whoever keeps its batches where other servers see them, too (src/cluster/shared-batches.ts).

import type { BatchRunner } from "./runner.ts";
import type { BatchStore } from "./store.ts";

export interface SharedState {
  /** Resolves when the store knows what all others know; the runner begins then. */
  start(): Promise<void>;
  /** Before a request: resolves when the store knows what others had said until now. Rejects with a StorageError. */
  upToDate(): Promise<void>;
  /** After a request: resolves when others can know what it changed. Rejects with a StorageError. */
  flush(): Promise<void>;
  close(): Promise<void>;
}

export type ShareBatches = (store: BatchStore, runner: BatchRunner) => SharedState;

// The interface between a server and the part that shares its batches with other servers
// (apps/cluster/shared-batches.ts).

import type { BatchRunner } from "./runner.ts";
import type { BatchStore } from "./store.ts";

export interface SharedState {
  /** Resolves when the store has all records of the others; the runner begins then. */
  start(): Promise<void>;
  /** Before a request: resolves when the store has all records that others had written until now. Rejects with a StorageError. */
  upToDate(): Promise<void>;
  /** After a request: resolves when others can read its changes. Rejects with a StorageError. */
  flush(): Promise<void>;
  close(): Promise<void>;
}

export type ShareBatches = (store: BatchStore, runner: BatchRunner) => SharedState;

// Opens a database that another process may still have open for a moment: a restarted server waits for the old one to
// end.

import { type Database, StorageError } from "../platform/database.ts";

export interface WaitOptions {
  /** Default: 12 tries, one second apart, which is longer than a server takes to end. */
  tries?: number;
  pauseMs?: number;
  /** Called once, if it has to wait. */
  onWait?: (problem: StorageError) => void;
}

export async function openWhenFree(
  open: () => Database,
  { tries = 12, pauseMs = 1000, onWait }: WaitOptions = {},
): Promise<Database> {
  for (let tried = 1; ; tried++) {
    try {
      return open();
    } catch (error) {
      const isBusy = error instanceof StorageError && error.problem === "busy";
      if (!isBusy || tried >= tries) throw error;
      if (tried === 1) onWait?.(error);
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
  }
}

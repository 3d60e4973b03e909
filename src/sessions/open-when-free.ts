// Opens a database that another process may still have open for a moment: a restarted server waits for the old one to
// end.

import { retry } from "../base/backoff.ts";
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
  let hasSaid = false;
  const onFailure = (error: unknown): void => {
    if (!(error instanceof StorageError && error.problem === "busy")) throw error;
    if (!hasSaid && tries > 1) onWait?.(error);
    hasSaid = true;
  };
  const waits = { firstMs: pauseMs, mostMs: pauseMs, tries };
  return await retry(async () => open(), waits, { onFailure });
}

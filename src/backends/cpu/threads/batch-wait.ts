// The leader's wait for other threads' chunks, after it has polled for a while: it yields to its event loop, which reports
// compute threads that have died, and then looks again. So a dead thread is noticed at once, not after LOST_MS.

import type { BatchEnd, TeamMember } from "./team.ts";

/** After so long without progress, though no thread died, a thread hangs. */
export const LOST_MS = 20_000;

export interface BatchWait {
  stop?: (() => boolean) | undefined;
  /** Whether a thread of the team has died. */
  isLost(): boolean;
  /** Called in between; throws if the batch is no longer wanted. */
  check?(): void;
  lostMs?: number | undefined;
}

/** Ends a batch that "waits". Throws when a thread was lost or hangs. */
export async function waitForOthers(team: TeamMember, wait: BatchWait): Promise<BatchEnd> {
  const { stop, isLost, check, lostMs = LOST_MS } = wait;
  let seen = team.ready;
  let since = performance.now();
  for (let end: BatchEnd = "waits"; ; ) {
    await new Promise((resolve) => setTimeout(resolve)); // a turn of the event loop
    check?.();
    end = team.resume(stop);
    if (end !== "waits") return end;
    // Asked after resume(): chunks that the lost thread had finished count.
    if (isLost()) throw new Error("a compute thread was lost: it died in the middle of a batch");
    if (team.ready !== seen) {
      seen = team.ready;
      since = performance.now();
    }
    if (performance.now() - since > lostMs) {
      throw new Error(`a compute thread was lost: no progress for ${lostMs / 1000} s`);
    }
  }
}

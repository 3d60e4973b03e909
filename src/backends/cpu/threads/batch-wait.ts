// What the leader does when it has waited for others' chunks for a while: it lets its thread's events in, for that is how it
// hears that a compute thread has died, and then looks again. A thread that died in a batch is missed at once, not when its
// chunk is given up for lost.

import type { BatchEnd, TeamMember } from "./team.ts";

/** No progress for this long, though nobody died: a thread hangs. */
const LOST_MS = 20_000;

export interface BatchWait {
  stop?: (() => boolean) | undefined;
  /** Whether a thread of the team is gone. */
  isLost(): boolean;
  /** Called in between; throws where nobody waits for the batch any more. */
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
    end = team.goOn(stop);
    if (end !== "waits") return end;
    // Asked after it was found to wait: what the lost thread had finished counts.
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

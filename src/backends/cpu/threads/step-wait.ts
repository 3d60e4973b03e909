// What the leader does when it has waited for others' chunks for a while: it lets its thread's events in, for that is how it
// hears that a compute thread has died, and then looks again. A thread that died in a step is missed at once, not when its
// chunk is given up for lost.

import type { StepEnd, TeamMember } from "./team.ts";

/** No progress for this long, though nobody died: a thread hangs. */
const LOST_MS = 20_000;

export interface StepWait {
  stop?: (() => boolean) | undefined;
  /** Whether a thread of the team is gone. */
  isLost(): boolean;
  /** Called in between; throws where nobody waits for the step any more. */
  check?(): void;
  lostMs?: number | undefined;
}

/** Ends a step that "waits". Throws when a thread was lost or hangs. */
export async function waitForOthers(team: TeamMember, wait: StepWait): Promise<StepEnd> {
  const { stop, isLost, check, lostMs = LOST_MS } = wait;
  let seen = team.ready;
  let since = performance.now();
  for (let end: StepEnd = "waits"; ; ) {
    await new Promise((resolve) => setTimeout(resolve)); // a turn of the event loop
    check?.();
    end = team.goOn(stop);
    if (end !== "waits") return end;
    // Asked after it was found to wait: what the lost thread had finished counts.
    if (isLost()) throw new Error("a compute thread was lost: it died in the middle of a step");
    if (team.ready !== seen) {
      seen = team.ready;
      since = performance.now();
    }
    if (performance.now() - since > lostMs) {
      throw new Error(`a compute thread was lost: no progress for ${lostMs / 1000} s`);
    }
  }
}

// Whether the machine did anything else during a measurement: cores' working time less our own. A load average answers
// that too late (it looks a minute back) and counts our own threads.

import type { MachineLoad } from "../../platform/node-cli.ts";

/** Cores that other processes may use before a measurement is called disturbed. */
export const quietCores = 0.15;

/**
 * Times are remembered for weeks: not those that were taken while other processes used more than this share of the
 * machine.
 */
const disturbedShare = 0.15;

/** Whether what was measured meanwhile should not be remembered. */
export function isDisturbed(others: number, cores: number): boolean {
  return others > disturbedShare * cores;
}

/** The system counts in steps of 10 ms on each core; over a short time that is noise, not work. */
const countingErrorSeconds = 0.03;

/** Cores that other processes used between two looks, on average; 0 where the time was too short to tell. */
export function othersCores(before: MachineLoad, after: MachineLoad): number {
  const seconds = (after.atMs - before.atMs) / 1000;
  const busy = after.busySeconds - before.busySeconds;
  const own = after.ownSeconds - before.ownSeconds;
  const others = busy - own - countingErrorSeconds;
  return seconds > 0 && others > 0 ? others / seconds : 0;
}

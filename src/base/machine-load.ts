// Whether other programs used the machine meanwhile: the cores' busy time minus our own. A load average is useless for that: it
// looks a minute back and counts our own threads. Arithmetic on two readings, which the platform makes.

import type { RoundWatch } from "./measure.ts";

/** The system's counters at a moment; the difference of two of these describes the time in between. */
export interface CpuTimes {
  /** CPU seconds that all cores together have worked since the machine started. */
  readonly busySeconds: number;
  /** CPU seconds of this process since it started. */
  readonly ownSeconds: number;
  readonly atMs: number;
  /** Cores that are counted. A container may use fewer. */
  readonly cores: number;
}

/** Cores that other processes may use before a measurement counts as disturbed. */
export const quietCores = 0.15;

/** Times are stored for weeks, so they are not stored if other processes used more than this fraction of the machine. */
const disturbedShare = 0.15;

/** Whether a measurement should not be stored, or a speed is to be read with others in mind. */
export function isDisturbed(others: number, cores: number): boolean {
  return others > disturbedShare * cores;
}

/** undefined where the system does not count. */
export type ReadCpuTimes = () => CpuTimes | undefined;

/** Watches for other programs; no round counts as disturbed if the system does not count. */
export function loadWatch(read: ReadCpuTimes | undefined): RoundWatch {
  let before: CpuTimes | undefined;
  return {
    begin() {
      before = read?.();
    },
    disturbance() {
      const now = read?.();
      if (!before || !now) return undefined;
      const others = othersCores(before, now);
      if (!isDisturbed(others, now.cores)) return undefined;
      return `other programs used ${others.toFixed(2)} cores`;
    },
  };
}

/** The system counts in steps of 10 ms per core, which is noise over a short time. */
const countingErrorSeconds = 0.03;

/** Cores that other processes used between two readings, on average; 0 if the time was too short to tell. */
export function othersCores(
  before: Omit<CpuTimes, "cores">,
  after: Omit<CpuTimes, "cores">,
): number {
  const seconds = (after.atMs - before.atMs) / 1000;
  const busy = after.busySeconds - before.busySeconds;
  const own = after.ownSeconds - before.ownSeconds;
  const others = busy - own - countingErrorSeconds;
  return seconds > 0 && others > 0 ? others / seconds : 0;
}

// The working times of the cores and of this process: a run derives other programs' share of the machine from them.

import { readFileSync } from "node:fs";
import { cpus } from "node:os";
import type { CpuTimes } from "../base/machine-load.ts";

/** Linux counts in these; every kernel of the last twenty years reports it to programs. */
const ticksPerSecond = 100;

let cores: number | undefined;

/** undefined where the system does not say. */
export function nodeCpuTimes(): CpuTimes | undefined {
  const busySeconds = process.platform === "linux" ? busyOnLinux() : busyElsewhere();
  if (busySeconds === undefined) return undefined;
  const { user, system } = process.cpuUsage(); // microseconds
  cores ??= cpus().length;
  return { busySeconds, ownSeconds: (user + system) / 1e6, atMs: performance.now(), cores };
}

/** The first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq of all cores. os.cpus() asks ten files more. */
function busyOnLinux(): number | undefined {
  try {
    const ticks = /^cpu +([\d ]+)/.exec(readFileSync("/proc/stat", "latin1"))![1]!.split(" ");
    const [user, nice, system, , , irq, softirq] = ticks.map(Number);
    const busy = (user! + nice! + system! + irq! + softirq!) / ticksPerSecond;
    return Number.isFinite(busy) ? busy : undefined;
  } catch {
    return undefined; // a sandbox without it
  }
}

function busyElsewhere(): number | undefined {
  const all = cpus();
  if (all.length === 0) return undefined;
  const workOf = ({ times }: (typeof all)[number]) =>
    times.user + times.nice + times.sys + times.irq;
  return all.reduce((sum, core) => sum + workOf(core), 0) / 1000;
}

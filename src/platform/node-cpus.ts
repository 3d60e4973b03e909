// The CPUs of this machine as Linux numbers them: the CPUs that this process may use, the CPUs of each NUMA node, and the call that
// binds a thread to some of them. Other systems have no such call, or no numbers.

import { readdirSync, readFileSync } from "node:fs";
import { cpusIn } from "../base/cpu-list.ts";
import type { Ffi } from "./node-libc.ts";
import type { CpuTopology } from "./platform.ts";

const nodeFolder = "/sys/devices/system/node";

/** A string says why it is not known. */
export function nodeCpuTopology(platform: string = process.platform): CpuTopology | string {
  if (platform !== "linux") return `threads are bound to CPUs on Linux only, this is ${platform}`;
  try {
    const status = readFileSync("/proc/thread-self/status", "latin1");
    const allowed = cpusIn(/^Cpus_allowed_list:\s*(\S+)$/m.exec(status)?.[1] ?? "");
    if (!allowed) return "/proc/thread-self/status does not list the CPUs of this process";
    return { allowed, nodes: numaNodes() ?? [allowed], current: currentCpu() };
  } catch (error) {
    return `the CPUs of this process are not known: ${(error as Error).message}`;
  }
}

/** CPUs of each NUMA node; undefined where the system does not report nodes. Nodes without CPUs are left out. */
function numaNodes(): number[][] | undefined {
  let names: string[];
  try {
    names = readdirSync(nodeFolder).filter((name) => /^node\d+$/.test(name));
  } catch {
    return undefined; // a kernel without NUMA, or a container that hides it
  }
  const byNumber = names.sort((a, b) => Number(a.slice(4)) - Number(b.slice(4)));
  const nodes = byNumber
    .map((name) => cpusIn(readFileSync(`${nodeFolder}/${name}/cpulist`, "latin1").trim()) ?? [])
    .filter((cpus) => cpus.length > 0);
  return nodes.length > 0 ? nodes : undefined;
}

/** The CPU that this thread runs on now: field 39 of its stat file. The name in field 2 may contain spaces. */
function currentCpu(): number | undefined {
  const stat = readFileSync("/proc/thread-self/stat", "latin1");
  const cpu = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[36]);
  return Number.isInteger(cpu) ? cpu : undefined;
}

/** Binds the calling thread to these CPUs; a string says why that failed. */
export function bindThread(ffi: Ffi, cpus: readonly number[]): string | undefined {
  const bytes = new Uint8Array((Math.max(...cpus) >> 6) * 8 + 8); // whole 64-bit words
  for (const cpu of cpus) bytes[cpu >> 3]! |= 1 << (cpu & 7);
  try {
    const bind = new ffi.DynamicLibrary(null).getFunction("sched_setaffinity", {
      arguments: ["i32", "u64", "pointer"],
      return: "i32",
    });
    const result = bind(0, BigInt(bytes.length), ffi.getRawPointer(bytes)); // 0: the calling thread
    return result === 0 ? undefined : "the system refused it (sched_setaffinity)";
  } catch (error) {
    return (error as Error).message;
  }
}

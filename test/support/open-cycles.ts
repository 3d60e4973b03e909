// What a process holds, as Linux counts it (elsewhere only its memory), and one cycle of opening a model, letting it write and disposing of it: for the
// test and the script that look for leaks.

import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type { Model } from "../../src/api/api.ts";

/** Bytes and counts. */
export interface Held {
  readonly resident: number;
  readonly heap: number;
  readonly external: number;
  readonly buffers: number;
  readonly threads: number;
  readonly descriptors: number;
  readonly mappings: number;
}

export function held(): Held {
  const { rss, heapUsed, external, arrayBuffers } = process.memoryUsage();
  return {
    resident: rss,
    heap: heapUsed,
    external,
    buffers: arrayBuffers,
    threads: counted(() => readdirSync("/proc/self/task").length),
    descriptors: counted(() => readdirSync("/proc/self/fd").length),
    mappings: counted(() => readFileSync("/proc/self/maps", "utf8").split("\n").length - 1),
  };
}

/** 0 where there is no /proc. */
function counted(count: () => number): number {
  return process.platform === "linux" ? count() : 0;
}

/** The same once threads that are ending have ended: as soon as two looks see the same threads. */
export async function settled(): Promise<Held> {
  for (let before = held().threads, tries = 0; ; tries++) {
    await sleep(50);
    const now = held();
    if (now.threads === before || tries > 100) return now;
    before = now.threads;
  }
}

export async function openCycle(open: () => Promise<Model>): Promise<void> {
  const model = await open();
  await model.generate("Once", { maxTokens: 4, temperature: 0 }).result;
  await model.dispose();
}

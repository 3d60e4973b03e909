// Large pages for the engine's memory. With pages of 4 KiB a processor that streams weights needs a new TLB entry every 64
// cache lines, and its prefetchers stop at the end of each page; pages of 2 MiB avoid both. Linux gives them where a process
// asks ("madvise" in /sys/kernel/mm/transparent_hugepage/enabled, the usual setting) before the memory is first written to.
// It is advice: without them, everything works the same.

import type { NativeAccess, NativeHost } from "../../../platform/platform.ts";
import { type MemoryCall, memoryCall } from "./memory.ts";

const adviseHugePages: MemoryCall = {
  name: "ask_for_large_pages",
  numbers: { x64: 28, arm64: 233 }, // madvise
  argument: 14, // MADV_HUGEPAGE
};

/** Asks for large pages, where machine code can run; returns a line for --explain. */
export function largePages(
  host: NativeAccess,
  memories: readonly WebAssembly.Memory[],
): string | undefined {
  if (typeof host === "string") return undefined;
  const answers = memories.map(({ buffer }) => askForLargePages(host, buffer));
  const refused = answers.find((answer) => answer !== undefined);
  return refused === undefined
    ? "memory: huge pages where the system has them"
    : `memory: no huge pages: ${refused}`;
}

/** A string: why there are none, as the system says. */
export function askForLargePages(host: NativeHost, memory: ArrayBufferLike): string | undefined {
  const advise = memoryCall(host, adviseHugePages);
  if (typeof advise === "string") return advise;
  const answer = advise(host.address(memory), memory.byteLength);
  return answer === 0 ? undefined : `the system does not give them (${-answer})`;
}

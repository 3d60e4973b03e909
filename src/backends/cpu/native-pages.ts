// Large pages for the engine's memory. With pages of 4 KiB a processor that streams weights looks up an address every 64 cache
// lines, and its prefetchers stop at each page's end; pages of 2 MiB leave both out. Linux gives them where a process asks
// ("madvise" in /sys/kernel/mm/transparent_hugepage/enabled, the usual setting) before the memory is first written to.
// Asking is a system call that Node does not make, so a small function of ours does, opened as kernels are. It is advice:
// whatever the answer, the memory is the same.

import { sharedObject, symbolOf } from "../../kernels/asm/elf.ts";
import type { NativeAccess, NativeHost } from "../../platform/platform.ts";

/** void advise(double block): madvise(slot 1, slot 2, MADV_HUGEPAGE); what it says goes into slot 3 of the block. */
const adviseCode: Readonly<Record<NativeHost["arch"], readonly number[]>> = {
  x64: [
    ...[0xf2, 0x4c, 0x0f, 0x2c, 0xc0], // cvttsd2si r8, xmm0
    ...[0xf2, 0x49, 0x0f, 0x2c, 0x78, 0x08], // cvttsd2si rdi, [r8 + 8]
    ...[0xf2, 0x49, 0x0f, 0x2c, 0x70, 0x10], // cvttsd2si rsi, [r8 + 16]
    ...[0xba, 0x0e, 0x00, 0x00, 0x00], // mov edx, 14
    ...[0xb8, 0x1c, 0x00, 0x00, 0x00], // mov eax, 28
    ...[0x0f, 0x05], // syscall
    ...[0xf2, 0x48, 0x0f, 0x2a, 0xc0], // cvtsi2sd xmm0, rax
    ...[0xf2, 0x41, 0x0f, 0x11, 0x40, 0x18], // movsd [r8 + 24], xmm0
    0xc3, // ret
  ],
  arm64: [
    ...[0x09, 0x00, 0x79, 0x9e], // fcvtzu x9, d0
    ...[0x21, 0x05, 0x40, 0xfd], // ldr d1, [x9, #8]
    ...[0x20, 0x00, 0x79, 0x9e], // fcvtzu x0, d1
    ...[0x21, 0x09, 0x40, 0xfd], // ldr d1, [x9, #16]
    ...[0x21, 0x00, 0x79, 0x9e], // fcvtzu x1, d1
    ...[0xc2, 0x01, 0x80, 0xd2], // mov x2, #14
    ...[0x28, 0x1d, 0x80, 0xd2], // mov x8, #233
    ...[0x01, 0x00, 0x00, 0xd4], // svc #0
    ...[0x00, 0x00, 0x62, 0x9e], // scvtf d0, x0
    ...[0x20, 0x0d, 0x00, 0xfd], // str d0, [x9, #24]
    ...[0xc0, 0x03, 0x5f, 0xd6], // ret
  ],
};

/** Asks for large pages, where machine code can be run; returns a line for people. */
export function largePages(host: NativeAccess, memory: ArrayBufferLike): string | undefined {
  if (typeof host === "string") return undefined;
  const refused = askForLargePages(host, memory);
  return refused === undefined
    ? "memory: large pages, where the system has them"
    : `memory: no large pages: ${refused}`;
}

/** A string: why there are none, as far as the system says. */
export function askForLargePages(host: NativeHost, memory: ArrayBufferLike): string | undefined {
  const advise = { name: "ask_for_large_pages", bytes: new Uint8Array(adviseCode[host.arch]) };
  const library = host.load(sharedObject([advise], host.arch));
  if (typeof library === "string") return library;
  const block = new Float64Array(new SharedArrayBuffer(32));
  block.set([0, host.address(memory), memory.byteLength, Number.NaN]);
  library.function(symbolOf(advise.name))(host.address(block.buffer));
  const answer = block[3]!;
  return answer === 0 ? undefined : `the system does not give them (${-answer})`;
}

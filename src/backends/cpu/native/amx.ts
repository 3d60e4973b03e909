// Asks Linux for the permission to use AMX tiles, which a process needs once, for all its threads. Node does not make this
// system call, so a small function of machine code does, loaded as kernels are.

import { sharedObject, symbolOf } from "../../../kernels/asm/elf.ts";
import type { NativeHost } from "../../../platform/platform.ts";

/** void ask(double block): arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA); its result goes into slot 1 of the block. */
const askCode: readonly number[] = [
  ...[0xf2, 0x4c, 0x0f, 0x2c, 0xc0], // cvttsd2si r8, xmm0
  ...[0xbf, 0x23, 0x10, 0x00, 0x00], // mov edi, 0x1023
  ...[0xbe, 0x12, 0x00, 0x00, 0x00], // mov esi, 18
  ...[0xb8, 0x9e, 0x00, 0x00, 0x00], // mov eax, 158
  ...[0x0f, 0x05], // syscall
  ...[0xf2, 0x48, 0x0f, 0x2a, 0xc0], // cvtsi2sd xmm0, rax
  ...[0xf2, 0x41, 0x0f, 0x11, 0x40, 0x08], // movsd [r8 + 8], xmm0
  0xc3, // ret
];

/** Asks for AMX tiles. A string: why this process may not use them. */
export function askForTiles(host: NativeHost): string | undefined {
  const ask = { name: "ask_for_tiles", bytes: new Uint8Array(askCode) };
  const library = host.load(sharedObject([ask], host.arch));
  if (typeof library === "string") return library;
  const block = new Float64Array(new SharedArrayBuffer(16));
  block[1] = Number.NaN;
  library.function(symbolOf(ask.name))(host.address(block.buffer));
  const answer = block[1];
  return answer === 0 ? undefined : `the system does not let this process use AMX (${-answer})`;
}

// Machine code that is written by hand, for both architectures: something to open and to call.

import type { ElfMachine } from "../../src/kernels/asm/elf.ts";
import type { NativeFunction } from "../../src/kernels/asm/native-function.ts";

/** Copies slot 1 of its block to slot 2. */
const copySlot: Readonly<Record<ElfMachine, readonly number[]>> = {
  x64: [
    ...[0xf2, 0x48, 0x0f, 0x2c, 0xc0], // cvttsd2si rax, xmm0
    ...[0xf2, 0x0f, 0x10, 0x48, 0x08], // movsd xmm1, [rax + 8]
    ...[0xf2, 0x0f, 0x11, 0x48, 0x10], // movsd [rax + 16], xmm1
    0xc3, // ret
  ],
  arm64: [
    ...[0x00, 0x00, 0x79, 0x9e], // fcvtzu x0, d0
    ...[0x01, 0x04, 0x40, 0xfd], // ldr d1, [x0, #8]
    ...[0x01, 0x08, 0x00, 0xfd], // str d1, [x0, #16]
    ...[0xc0, 0x03, 0x5f, 0xd6], // ret
  ],
};

const nothing: Readonly<Record<ElfMachine, readonly number[]>> = {
  x64: [0xc3],
  arm64: [0xc0, 0x03, 0x5f, 0xd6],
};

export function handWritten(machine: ElfMachine): NativeFunction[] {
  return [
    { name: "nothing.at-all", bytes: new Uint8Array(nothing[machine]) },
    { name: "copy.slot", bytes: new Uint8Array(copySlot[machine]) },
  ];
}

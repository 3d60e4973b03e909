// System calls on memory that Node does not make (madvise, mprotect), by a small function of machine code that is loaded as
// kernels are. All have the same form: an address, bytes, and a constant that is part of the code.

import { sharedObject, symbolOf } from "../../../kernels/asm/elf.ts";
import type { NativeHost } from "../../../platform/platform.ts";

/** A system call as Linux numbers it, and its third argument: both below 2^15. */
export interface MemoryCall {
  readonly name: string;
  readonly numbers: Readonly<Record<NativeHost["arch"], number>>;
  readonly argument: number;
}

const low = (value: number) => value & 0xff;
const high = (value: number) => value >> 8;

/** void call(double block): makes the call with slots 1 and 2 of the block; its result goes into slot 3. */
const codes: Readonly<Record<NativeHost["arch"], (number: number, argument: number) => number[]>> =
  {
    x64: (number, argument) => [
      ...[0xf2, 0x4c, 0x0f, 0x2c, 0xc0], // cvttsd2si r8, xmm0
      ...[0xf2, 0x49, 0x0f, 0x2c, 0x78, 0x08], // cvttsd2si rdi, [r8 + 8]
      ...[0xf2, 0x49, 0x0f, 0x2c, 0x70, 0x10], // cvttsd2si rsi, [r8 + 16]
      ...[0xba, low(argument), high(argument), 0x00, 0x00], // mov edx, argument
      ...[0xb8, low(number), high(number), 0x00, 0x00], // mov eax, number
      ...[0x0f, 0x05], // syscall
      ...[0xf2, 0x48, 0x0f, 0x2a, 0xc0], // cvtsi2sd xmm0, rax
      ...[0xf2, 0x41, 0x0f, 0x11, 0x40, 0x18], // movsd [r8 + 24], xmm0
      0xc3, // ret
    ],
    arm64: (number, argument) => [
      ...[0x09, 0x00, 0x79, 0x9e], // fcvtzu x9, d0
      ...[0x21, 0x05, 0x40, 0xfd], // ldr d1, [x9, #8]
      ...[0x20, 0x00, 0x79, 0x9e], // fcvtzu x0, d1
      ...[0x21, 0x09, 0x40, 0xfd], // ldr d1, [x9, #16]
      ...[0x21, 0x00, 0x79, 0x9e], // fcvtzu x1, d1
      ...movz(2, argument), // mov x2, #argument
      ...movz(8, number), // mov x8, #number
      ...[0x01, 0x00, 0x00, 0xd4], // svc #0
      ...[0x00, 0x00, 0x62, 0x9e], // scvtf d0, x0
      ...[0x20, 0x0d, 0x00, 0xfd], // str d0, [x9, #24]
      ...[0xc0, 0x03, 0x5f, 0xd6], // ret
    ],
  };

function movz(register: number, value: number): number[] {
  const word = value * 32 + register;
  return [low(word), low(high(word)), 0x80 | (word >> 16), 0xd2];
}

/** Loads the call: (address, bytes) to its result, 0 or minus an error number. A string: why it cannot be made. */
export function memoryCall(
  host: NativeHost,
  { name, numbers, argument }: MemoryCall,
): ((address: number, bytes: number) => number) | string {
  const code = new Uint8Array(codes[host.arch](numbers[host.arch], argument));
  const library = host.load(sharedObject([{ name, bytes: code }], host.arch));
  if (typeof library === "string") return library;
  const run = library.function(symbolOf(name));
  const block = new Float64Array(new SharedArrayBuffer(32));
  const blockAddress = host.address(block.buffer);
  return (address, bytes) => {
    block.set([0, address, bytes, Number.NaN]);
    run(blockAddress);
    return block[3]!;
  };
}

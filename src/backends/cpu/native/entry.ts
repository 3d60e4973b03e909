// Calls machine code kernels from JavaScript: writes the parameters into a block of the shared memory (layout:
// kernels/lower/machine.ts), then makes one call with the block's address. Every thread gets plain data, loads the code for
// itself and has its own block. A call allocates nothing.
//
// All kernels are called through one function, the entry, which jumps to the address in the block's last slot. The call site
// is then monomorphic, which takes 20 to 35 ns; with a function for each kernel it takes 170 to 200 ns.

import { WorkerError } from "../../../base/errors.ts";
import type { NativeAccess, NativeHost, NativeLibrary } from "../../../platform/platform.ts";
import type { Kernels } from "../executor.ts";

/** The most parameters of a kernel. */
export const MOST_PARAMS = 12;
/** Slots of a block: the memory's address, parameters, SCRATCH_SLOTS, and the kernel's address in the last. */
export const BLOCK_SLOTS = 32;
const ENTRY_SLOT = 31;
export const BLOCK_BYTES: number = BLOCK_SLOTS * 8;

/** void entry(double block): jumps to the address in slot 31 of the block, and leaves its argument unchanged. */
export const entryCode: Readonly<Record<NativeHost["arch"], readonly number[]>> = {
  x64: [
    ...[0xf2, 0x48, 0x0f, 0x2c, 0xc0], // cvttsd2si rax, xmm0
    ...[0xf2, 0x48, 0x0f, 0x2c, 0x88, 248, 0, 0, 0], // cvttsd2si rcx, [rax + 248]
    ...[0xff, 0xe1], // jmp rcx
  ],
  arm64: [
    ...[0x10, 0x00, 0x79, 0x9e], // fcvtzu x16, d0
    ...[0x01, 0x7e, 0x40, 0xfd], // ldr d1, [x16, #248]
    ...[0x31, 0x00, 0x79, 0x9e], // fcvtzu x17, d1
    ...[0x20, 0x02, 0x1f, 0xd6], // br x17
  ],
};

/** Kernels as a shared object. */
export interface NativeImage {
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** The symbols of the entry, and of each kernel by name. */
  readonly entry: string;
  readonly kernels: Readonly<Record<string, string>>;
}

/** Data that a thread needs to call machine code kernels: plain data, sent to every thread. */
export interface NativeJob {
  readonly image: NativeImage;
  /** Parameter blocks, one for each thread. */
  readonly blocks: number;
}

/** Loads the code on this thread; the leader has loaded it before. */
export function openNativeJob(
  { image, blocks }: NativeJob,
  host: NativeAccess,
  memory: ArrayBufferLike,
  thread: number,
): Kernels {
  const library = typeof host === "string" ? host : host.load(image.bytes);
  if (typeof host === "string" || typeof library === "string") {
    throw new WorkerError(`machine code cannot be run on thread ${thread}: ${library}`);
  }
  return nativeCalls(image, library, host.address(memory), memory, blocks + thread * BLOCK_BYTES);
}

/** The kernels of an image, with the signatures of WebAssembly kernels and their parameter block at this offset. */
export function nativeCalls(
  image: NativeImage,
  library: NativeLibrary,
  base: number,
  memory: ArrayBufferLike,
  blockAt: number,
): Kernels {
  const block = new Float64Array(memory, blockAt, BLOCK_SLOTS);
  block[0] = base;
  const entry = library.function(image.entry);
  const calls = Object.entries(image.kernels).map(
    ([name, symbol]) =>
      [name, callOf(entry, library.address(symbol), block, base + blockAt)] as const,
  );
  return Object.fromEntries(calls);
}

/** Also writes the slots of parameters that a kernel does not have: they are scratch before the call. */
function callOf(
  entry: (block: number) => void,
  kernel: number,
  block: Float64Array,
  blockAddress: number,
): Kernels[string] {
  // biome-ignore format: one line for each four
  return (
    a = 0, b = 0, c = 0, d = 0,
    e = 0, f = 0, g = 0, h = 0,
    i = 0, j = 0, k = 0, l = 0,
  ) => {
    block[1] = a;
    block[2] = b;
    block[3] = c;
    block[4] = d;
    block[5] = e;
    block[6] = f;
    block[7] = g;
    block[8] = h;
    block[9] = i;
    block[10] = j;
    block[11] = k;
    block[12] = l;
    block[ENTRY_SLOT] = kernel;
    entry(blockAddress);
  };
}

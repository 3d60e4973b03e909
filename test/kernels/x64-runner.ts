// Runs kernels as x86-64 machine code for the tests, at each isa that this processor has. Memory is a copy with guard
// bytes around it; parameter blocks and guards are checked after the call. Where this machine is not x86-64, isas that
// qemu knows are run under it (x64-process.ts); LANTERN_TEST_X64=qemu has them run so on x86-64, too.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe } from "vitest";
import { sharedObject, symbolOf } from "../../src/kernels/asm/elf.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import type { Semantics } from "../../src/kernels/ir/meanings.ts";
import { blockSlots, KernelRefused } from "../../src/kernels/lower/machine.ts";
import { lowerToX64 } from "../../src/kernels/lower/x64.ts";
import type { X64Target } from "../../src/kernels/lower/x64-rules.ts";
import type { KernelCall } from "./executable.ts";
import { emulateX64, emulatorLacks } from "./x64-process.ts";

export interface X64Isa extends X64Target {
  readonly width: number;
  readonly semantics: Semantics;
  /** Flags of /proc/cpuinfo. */
  readonly needs: readonly string[];
  /** Run under qemu: only by runX64Calls(). */
  readonly isEmulated?: boolean;
}

const avx2 = ["avx2", "fma", "f16c"];

export const x64Isas: readonly X64Isa[] = [
  {
    isa: "avx512",
    width: 64,
    semantics: { dot4: "unsigned", fused: true },
    needs: [...avx2, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"],
  },
  {
    isa: "avx2-vnni",
    width: 32,
    semantics: { dot4: "unsigned", fused: true },
    needs: [...avx2, "avx_vnni"],
  },
  { isa: "avx2", width: 32, semantics: { dot4: "i7", fused: true }, needs: avx2 },
];

interface Ffi {
  readonly DynamicLibrary: new (
    path: string,
  ) => {
    getFunction(name: string, signature: object): (block: number) => void;
  };
  getRawPointer(memory: ArrayBufferLike): bigint;
}

const ffi = process.getBuiltinModule("node:ffi") as unknown as Ffi | undefined;

/** Why a isa cannot be run here; undefined: it can. */
function lacking({ needs }: X64Isa): string | undefined {
  if (process.platform !== "linux" || process.arch !== "x64") return "needs Linux on x86-64";
  if (process.env.LANTERN_TEST_X64 === "qemu") return "LANTERN_TEST_X64 is qemu";
  if (!ffi) return "this Node has no node:ffi";
  const flags = /^flags\s*:(.*)$/m.exec(readFileSync("/proc/cpuinfo", "latin1"))?.[1] ?? "";
  const missing = needs.filter((need) => !flags.split(" ").includes(need));
  return missing.length === 0 ? undefined : `this processor lacks ${missing.join(", ")}`;
}

/** Those that this machine has. */
export const x64Here: readonly X64Isa[] = x64Isas.filter((isa) => lacking(isa) === undefined);

/**
 * describe() for each isa. Where the processor is another one, it is emulated, if it can be; otherwise a isa that this
 * machine lacks is skipped, with the reason.
 */
export function describeX64(body: (isa: X64Isa) => void): void {
  const isAnother = x64Here.length === 0;
  for (const isa of x64Isas) {
    const why = lacking(isa);
    const whyNot = isAnother ? emulatorLacks(isa) : "";
    if (why === undefined) describe(isa.isa, () => body(isa));
    else if (whyNot === undefined) {
      describe(`${isa.isa}, under qemu`, () => body({ ...isa, isEmulated: true }));
    } else describe.skip(`${isa.isa} [${[why, whyNot].filter(Boolean).join("; ")}]`, () => {});
  }
}

/** The memories after the calls; each call has one of its own. */
export function runX64Calls(
  calls: readonly KernelCall[],
  { isa, isEmulated }: X64Isa,
): Uint8Array<ArrayBuffer>[] {
  if (isEmulated) return emulateX64(calls, { isa });
  const code = openX64([...new Set(calls.map(({ kernel }) => kernel))], { isa });
  return calls.map(({ kernel, memory, args }) => runX64(code.get(kernel)!, kernel, memory, args));
}

/** The kernel needs more registers than there are. */
export function isRefused(kernel: Kernel, target: X64Target): boolean {
  try {
    lowerToX64(kernel, target);
    return false;
  } catch (error) {
    if (error instanceof KernelRefused) return true;
    throw error;
  }
}

/** What was opened: a library that nobody holds is closed, and its functions are gone. */
const opened: unknown[] = [];

/** Opens the code of kernels; the file is gone at once. */
export function openX64(
  kernels: readonly Kernel[],
  target: X64Target,
): Map<Kernel, (block: number) => void> {
  const folder = mkdtempSync(join(tmpdir(), "lantern-x64-"));
  try {
    const path = join(folder, "kernels.so");
    const functions = kernels.map((kernel) => lowerToX64(kernel, target));
    writeFileSync(path, sharedObject(functions, "x64"), { mode: 0o500 });
    const library = new ffi!.DynamicLibrary(path);
    opened.push(library);
    const signature = { arguments: ["f64"], return: "void" };
    return new Map(
      kernels.map((kernel) => [kernel, library.getFunction(symbolOf(kernel.name), signature)]),
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
}

export function addressOf(memory: ArrayBufferLike): number {
  return Number(ffi!.getRawPointer(memory));
}

/** A kernel's code as a function of its arguments. */
export function callX64(
  kernel: Kernel,
  memory: ArrayBufferLike,
  target: X64Target,
): (...args: number[]) => void {
  const run = openX64([kernel], target).get(kernel)!;
  const block = new Float64Array(new SharedArrayBuffer(8 * blockSlots(kernel.params.length)));
  block[0] = addressOf(memory);
  return (...args) => {
    block.set(args.slice(0, kernel.params.length), 1);
    run(addressOf(block.buffer));
  };
}

const guardBytes = 256;
const guardByte = 0xa5;

/** Runs a kernel on a copy of `bytes` and returns the memory afterwards. */
export function runX64(
  run: (block: number) => void,
  kernel: Kernel,
  bytes: Uint8Array,
  args: readonly number[],
): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(new SharedArrayBuffer(bytes.length + 2 * guardBytes)).fill(guardByte);
  all.set(bytes, guardBytes);
  const slots = blockSlots(kernel.params.length);
  const block = new Float64Array(new SharedArrayBuffer(8 * (slots + 1))).fill(0.125);
  block.set([addressOf(all.buffer) + guardBytes, ...args.slice(0, kernel.params.length)]);
  run(addressOf(block.buffer));
  if (block[slots] !== 0.125) throw new Error(`${kernel.name} wrote behind its parameter block`);
  const [front, back] = [all.subarray(0, guardBytes), all.subarray(guardBytes + bytes.length)];
  if ([...front, ...back].some((byte) => byte !== guardByte)) {
    throw new Error(`${kernel.name} wrote outside its memory`);
  }
  return Uint8Array.from(all.subarray(guardBytes, guardBytes + bytes.length));
}

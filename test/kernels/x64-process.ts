// x86-64 kernels in a process of their own, under qemu-user: for machines that are not x86-64, and for the instruction sets
// that qemu knows (AVX2 since 7.2; no AVX-512, no VNNI, no AMX). Part of x64-runner.ts.

import { spawnSync } from "node:child_process";
import { lowerToX64 } from "../../src/kernels/lower/x64.ts";
import type { X64Target } from "../../src/kernels/lower/x64-rules.ts";
import { IMAGE, type KernelCall, recordBytes, runProcess } from "./executable.ts";

const runner = ["qemu-x86_64", "-cpu", "max"];
const emulatedIsas: readonly X64Target["isa"][] = ["avx2"];
const kept = ["rbp", "r13", "r14", "r15"];

/** Why a isa cannot be emulated here; undefined: it can. */
export function emulatorLacks({ isa }: X64Target): string | undefined {
  if (process.platform !== "linux") return "the executable is for Linux";
  if (!emulatedIsas.includes(isa)) return `qemu has no ${isa}`;
  const [, major = 0, minor = 0] =
    /version (\d+)\.(\d+)/.exec(spawnSync(runner[0]!, ["--version"]).stdout?.toString() ?? "") ??
    [];
  if (major === 0) return "no qemu-x86_64 (Debian: qemu-user)";
  const isKnown = Number(major) > 7 || (Number(major) === 7 && Number(minor) >= 2);
  return isKnown ? undefined : `qemu ${major}.${minor} has no ${isa}; 7.2 has`;
}

/** The memories after the calls; each call has one of its own. */
export function emulateX64(
  calls: readonly KernelCall[],
  target: X64Target,
): Uint8Array<ArrayBuffer>[] {
  const code = (kernel: KernelCall["kernel"]) => lowerToX64(kernel, target);
  return runProcess(calls, { elf: 62, runner, kept, code, start: startCode });
}

function int32(value: number): number[] {
  return [...new Uint8Array(Int32Array.of(value).buffer)];
}

const SYS = { read: 0, write: 1, exit: 60 };

/** Reads the image, makes the calls, writes the image. rbx and r12, which a call must preserve too, are where it is. */
function startCode(calls: number, imageBytes: number): Uint8Array<ArrayBuffer> {
  const exit = (status: number) => [
    ...[0xbf, ...int32(status)], // mov edi, status
    ...[0xb8, ...int32(SYS.exit)], // mov eax, exit
    ...[0x0f, 0x05], // syscall
  ];
  /** Until nothing is left. */
  const transfer = (file: number, call: number) => {
    const before = [
      ...[0xbb, ...int32(IMAGE)], // mov ebx, image
      ...[0x41, 0xbc, ...int32(imageBytes)], // mov r12d, bytes
    ];
    const again = [
      ...[0xbf, ...int32(file)], // mov edi, file
      ...[0x48, 0x89, 0xde], // mov rsi, rbx
      ...[0x44, 0x89, 0xe2], // mov edx, r12d
      ...[0xb8, ...int32(call)], // mov eax, call
      ...[0x0f, 0x05], // syscall
      ...[0x48, 0x85, 0xc0], // test rax, rax
      ...[0x7f, exit(1).length], // jg over what follows
      ...exit(1),
      ...[0x48, 0x01, 0xc3], // add rbx, rax
      ...[0x41, 0x29, 0xc4], // sub r12d, eax
    ];
    return [...before, ...again, ...back(again)];
  };
  const enter = [
    ...[0xbb, ...int32(IMAGE)], // mov ebx, image
    ...[0x48, 0x8b, 0x6b, 0], // mov rbp, [rbx]
    ...[0x4c, 0x8b, 0x6b, 8], // mov r13, [rbx + 8]
    ...[0x4c, 0x8b, 0x73, 16], // mov r14, [rbx + 16]
    ...[0x4c, 0x8b, 0x7b, 24], // mov r15, [rbx + 24]
    ...[0x48, 0x83, 0xc3, 8 * kept.length], // add rbx, 32
    ...[0x41, 0xbc, ...int32(calls)], // mov r12d, calls
  ];
  const call = [
    ...[0xf2, 0x0f, 0x10, 0x43, 8], // movsd xmm0, [rbx + 8]
    ...[0xff, 0x13], // call [rbx]
    ...[0x48, 0x89, 0x6b, 16], // mov [rbx + 16], rbp
    ...[0x4c, 0x89, 0x6b, 24], // mov [rbx + 24], r13
    ...[0x4c, 0x89, 0x73, 32], // mov [rbx + 32], r14
    ...[0x4c, 0x89, 0x7b, 40], // mov [rbx + 40], r15
    ...[0x48, 0x83, 0xc3, recordBytes(kept.length)], // add rbx, 48
    ...[0x41, 0xff, 0xcc], // dec r12d
  ];
  return Uint8Array.of(
    ...transfer(0, SYS.read),
    ...[...enter, ...call, ...back(call)],
    ...transfer(1, SYS.write),
    ...exit(0),
  );
}

/** jnz to the beginning of the code in front of it. */
function back(code: readonly number[]): number[] {
  return [0x0f, 0x85, ...int32(-code.length - 6)];
}

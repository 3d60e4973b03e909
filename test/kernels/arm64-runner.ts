// Runs arm64 kernels for the tests: on an arm64 machine that has what they need as they are, elsewhere under qemu-user. All
// calls of a batch run in one process (executable.ts), whose start code is written with the project's own encoder.

import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { Arm64Code } from "../../src/kernels/asm/arm64.ts";
import type { NativeFunction } from "../../src/kernels/asm/native-function.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import type { Semantics } from "../../src/kernels/ir/meanings.ts";
import { type Arm64Target, lowerToArm64 } from "../../src/kernels/lower/arm64.ts";
import { KernelRefused } from "../../src/kernels/lower/machine.ts";
import { IMAGE, type KernelCall, recordBytes, runProcess } from "./executable.ts";
import { firstDifference, type Region } from "./same-memory.ts";

/** A target, and the processor that qemu is where this machine does not have what it needs. */
export interface Arm64Machine extends Arm64Target {
  readonly needs: string;
  readonly cpu: string;
}

/** As a processor without anything newer. */
export const arm64Target: Arm64Machine = {
  name: "arm64-dotprod",
  needs: "asimddp",
  cpu: "neoverse-n1",
};
/** Of the processors that qemu 7.2 knows by name, none has SMMLA. */
export const pairsTarget: Arm64Machine = {
  name: "arm64-i8mm",
  i8mm: true,
  needs: "i8mm",
  cpu: "max",
};
export const arm64Semantics: Semantics = { dot4: "signed", fused: true };

/** What stands in front of an arm64 executable here: nothing, or qemu. */
function runnerFor({ needs, cpu }: Arm64Machine): readonly string[] {
  return hasFeature(needs) ? [] : ["qemu-aarch64", "-cpu", cpu];
}

function hasFeature(name: string): boolean {
  if (process.arch !== "arm64" || process.platform !== "linux") return false;
  const lines = readFileSync("/proc/cpuinfo", "latin1").match(/^Features\s*:.*$/gm) ?? [];
  return lines.length > 0 && lines.every((line) => line.split(/\s+/).includes(name));
}

/** Why nothing can be run for a target here; undefined: it can. */
export function lacksFor(machine: Arm64Machine): string | undefined {
  if (process.platform !== "linux") return "the executable is for Linux";
  const [command] = runnerFor(machine);
  if (command === undefined || spawnSync(command, ["--version"]).status === 0) return undefined;
  return `no arm64 machine with ${machine.needs} and no ${command} (Debian: qemu-user)`;
}

export const arm64Lacks: string | undefined = lacksFor(arm64Target);

export interface CheckedCall extends KernelCall {
  /** Where what kind of values are, for comparing. */
  readonly regions: readonly Region[];
}

/** Runs all calls in one process; a sentence for each whose memory is not what the interpreter makes of it. */
export function arm64Differences(
  calls: readonly CheckedCall[],
  machine: Arm64Machine = arm64Target,
): string[] {
  const after = runArm64(calls, machine);
  return calls.flatMap(({ kernel, memory, args, regions }, index) => {
    const meant = memory.slice();
    interpret(kernel, meant.buffer, args, arm64Semantics);
    if (meant.every((byte, i) => byte === memory[i])) return [`${kernel.name}: changes nothing`];
    const difference = firstDifference(after[index]!, meant, regions);
    return difference === undefined ? [] : [`${kernel.name}: ${difference}`];
  });
}

/** Each kernel's code, or why it has none, by target. */
const lowered = new WeakMap<Kernel, Map<Arm64Machine, NativeFunction | KernelRefused>>();

function codeOf(kernel: Kernel, machine: Arm64Machine): NativeFunction | KernelRefused {
  const byTarget = lowered.get(kernel) ?? new Map<Arm64Machine, NativeFunction | KernelRefused>();
  lowered.set(kernel, byTarget);
  const code = byTarget.get(machine) ?? lower(kernel, machine);
  byTarget.set(machine, code);
  return code;
}

function lower(kernel: Kernel, machine: Arm64Machine): NativeFunction | KernelRefused {
  try {
    return lowerToArm64(kernel, machine);
  } catch (error) {
    if (error instanceof KernelRefused) return error;
    throw error;
  }
}

/** It does not fit the registers. */
export function isRefused(kernel: Kernel, machine: Arm64Machine = arm64Target): boolean {
  return codeOf(kernel, machine) instanceof KernelRefused;
}

/** x21 to x28, then d8 to d15. */
const kept: readonly string[] = Array.from({ length: 16 }, (_, i) =>
  i < 8 ? `x${21 + i}` : `d${i}`,
);

/** The memories after the calls; each call has one of its own. */
export function runArm64(
  calls: readonly KernelCall[],
  machine: Arm64Machine = arm64Target,
): Uint8Array<ArrayBuffer>[] {
  return runProcess(calls, {
    elf: 183,
    runner: runnerFor(machine),
    kept,
    code: (kernel) => {
      const code = codeOf(kernel, machine);
      if (code instanceof KernelRefused) throw code;
      return code;
    },
    start: startCode,
  });
}

/** Reads the image, makes the calls, writes the image. x19 and x20, which a call must preserve too, are where it is. */
function startCode(calls: number, imageBytes: number): Uint8Array<ArrayBuffer> {
  const code = new Arm64Code();
  const integer = (to: number, value: number) => {
    code.op("movz.w", to, value & 0xffff);
    code.op("movk.w_lsl16", to, value >>> 16);
  };
  const failed = code.label();
  /** Reads or writes until nothing is left. */
  const transfer = (file: number, call: number) => {
    const again = code.label();
    integer(19, IMAGE);
    integer(20, imageBytes);
    code.place(again);
    integer(0, file);
    code.op("mov.x", 1, 19);
    code.op("mov.w", 2, 20);
    integer(8, call);
    code.op("svc", 0);
    code.op("cmp.w_imm", 0, 0);
    code.op("b.le", failed);
    code.op("add.x", 19, 19, 0);
    code.op("sub.w", 20, 20, 0);
    code.op("cbnz.w", 20, again);
  };
  transfer(0, 63); // read
  integer(19, IMAGE);
  for (let i = 0; i < 8; i++) code.op("ldr.x", 21 + i, 19, 8 * i);
  for (let i = 8; i < kept.length; i++) code.op("ldr.d", i, 19, 8 * i);
  code.op("add.imm", 19, 19, 8 * kept.length);
  integer(20, calls);
  const next = code.label();
  code.place(next);
  code.op("ldr.x", 9, 19, 0);
  code.op("ldr.d", 0, 19, 8);
  code.op("blr", 9);
  for (let i = 0; i < 8; i++) code.op("str.x", 21 + i, 19, 16 + 8 * i);
  for (let i = 8; i < kept.length; i++) code.op("str.d", i, 19, 16 + 8 * i);
  code.op("add.imm", 19, 19, recordBytes(kept.length));
  code.op("subs.w_imm", 20, 20, 1);
  code.op("b.ne", next);
  transfer(1, 64); // write
  integer(0, 0);
  integer(8, 93); // exit
  code.op("svc", 0);
  code.place(failed);
  integer(0, 1);
  integer(8, 93);
  code.op("svc", 0);
  return code.finish("_start").bytes;
}

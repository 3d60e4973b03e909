// Runs arm64 kernels for the tests: on an arm64 machine that has what they need as they are, elsewhere under qemu-user. All
// calls of a batch run in one process: a static executable, written with the project's own encoder, that reads an image of
// memory from its standard input, makes the calls that the image lists, and writes the image back.
//
// The image: 16 values for registers that a call must preserve; a record for each call; parameter blocks; memories, with
// guard bytes between them. A record has the address of the code, that of the parameter block (as f64), and room for the
// 16 registers as they are after the call.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Arm64Code } from "../../src/kernels/asm/arm64.ts";
import type { NativeFunction } from "../../src/kernels/asm/native-function.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import type { Semantics } from "../../src/kernels/ir/meanings.ts";
import { type Arm64Target, lowerToArm64 } from "../../src/kernels/lower/arm64.ts";
import { blockSlots, KernelRefused } from "../../src/kernels/lower/machine.ts";
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

export interface Arm64Call {
  readonly kernel: Kernel;
  readonly memory: Uint8Array<ArrayBuffer>;
  readonly args: readonly number[];
}

export interface CheckedCall extends Arm64Call {
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

const CODE = 0x400000;
const HEADERS = 4096;
const IMAGE = 0x10000000;
const KEPT = 16;
const RECORD = 8 * (2 + KEPT);
const GUARD = 256;
const GUARD_BYTE = 0xa5;

/** The memories after the calls; each call has one of its own. */
export function runArm64(
  calls: readonly Arm64Call[],
  machine: Arm64Machine = arm64Target,
): Uint8Array<ArrayBuffer>[] {
  const functions = new Map<Kernel, { readonly code: NativeFunction; at: number }>();
  for (const { kernel } of calls) {
    const code = codeOf(kernel, machine);
    if (code instanceof KernelRefused) throw code;
    if (!functions.has(kernel)) functions.set(kernel, { code, at: 0 });
  }
  const image = new Image(calls);
  let end = HEADERS + startCode(0, 0).length; // as long for other sizes
  for (const entry of functions.values()) {
    entry.at = CODE + align(end);
    end = align(end) + entry.code.bytes.length;
  }
  image.write((kernel) => functions.get(kernel)!.at);
  const file = new Uint8Array(end);
  file.set(elfHeaders(end, image.bytes.length));
  file.set(startCode(calls.length, image.bytes.length), HEADERS);
  for (const { code, at } of functions.values()) file.set(code.bytes, at - CODE);
  return image.read(execute(file, image.bytes, runnerFor(machine)));
}

function align(at: number): number {
  return Math.ceil(at / 64) * 64;
}

function execute(
  file: Uint8Array,
  image: Uint8Array,
  runner: readonly string[],
): Uint8Array<ArrayBuffer> {
  const folder = mkdtempSync(join(tmpdir(), "lantern-arm64-"));
  try {
    const path = join(folder, "kernels");
    writeFileSync(path, file, { mode: 0o700 });
    const [command = path, ...args] = [...runner, path];
    const options = { input: image, maxBuffer: image.length + 1024 };
    const { status, signal, stdout, stderr } = spawnSync(command, args, options);
    if (status !== 0 || stdout.length !== image.length) {
      throw new Error(`${command}: status ${status}, ${signal}, ${stdout.length} bytes, ${stderr}`);
    }
    return new Uint8Array(stdout);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

class Image {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly #calls: readonly Arm64Call[];
  readonly #blocks: number[] = [];
  readonly #memories: number[] = [];

  constructor(calls: readonly Arm64Call[]) {
    this.#calls = calls;
    let end = 8 * KEPT + calls.length * RECORD;
    for (const { kernel } of calls) {
      this.#blocks.push(end);
      end += 8 * blockSlots(kernel.params.length);
    }
    for (const { memory } of calls) {
      this.#memories.push(align(end) + GUARD);
      end = align(end) + GUARD + memory.length;
    }
    this.bytes = new Uint8Array(align(end) + GUARD);
  }

  write(addressOf: (kernel: Kernel) => number): void {
    this.bytes.fill(GUARD_BYTE, this.#memories[0]! - GUARD);
    const view = new DataView(this.bytes.buffer);
    const f64 = (at: number, value: number) => view.setFloat64(at, value, true);
    for (let i = 0; i < KEPT; i++) f64(8 * i, kept(i));
    this.#calls.forEach(({ kernel, memory, args }, index) => {
      const record = 8 * KEPT + index * RECORD;
      const block = this.#blocks[index]!;
      view.setBigUint64(record, BigInt(addressOf(kernel)), true);
      f64(record + 8, IMAGE + block);
      f64(block, IMAGE + this.#memories[index]!);
      args.slice(0, kernel.params.length).forEach((arg, i) => {
        f64(block + 8 * (1 + i), arg);
      });
      this.bytes.set(memory, this.#memories[index]!);
    });
  }

  /** Checks what must not have changed, and cuts the memories out. */
  read(after: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer>[] {
    const view = new DataView(after.buffer, after.byteOffset);
    return this.#calls.map(({ kernel, memory }, index) => {
      for (let i = 0; i < KEPT; i++) {
        const value = view.getFloat64(8 * KEPT + index * RECORD + 16 + 8 * i, true);
        if (value !== kept(i)) throw new Error(`${kernel.name} does not preserve ${keptName(i)}`);
      }
      const from = this.#memories[index]!;
      const to = from + memory.length;
      const guards = [...after.subarray(from - GUARD, from), ...after.subarray(to, to + GUARD)];
      if (guards.some((byte) => byte !== GUARD_BYTE)) {
        throw new Error(`${kernel.name} wrote outside its memory`);
      }
      return after.slice(from, to);
    });
  }
}

/** What preserved register number i has during the calls: x21 to x28, then d8 to d15. */
function kept(i: number): number {
  return 1000.5 + i;
}

function keptName(i: number): string {
  return i < 8 ? `x${21 + i}` : `d${i}`;
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
  for (let i = 8; i < KEPT; i++) code.op("ldr.d", i, 19, 8 * i);
  code.op("add.imm", 19, 19, 8 * KEPT);
  integer(20, calls);
  const next = code.label();
  code.place(next);
  code.op("ldr.x", 9, 19, 0);
  code.op("ldr.d", 0, 19, 8);
  code.op("blr", 9);
  for (let i = 0; i < 8; i++) code.op("str.x", 21 + i, 19, 16 + 8 * i);
  for (let i = 8; i < KEPT; i++) code.op("str.d", i, 19, 16 + 8 * i);
  code.op("add.imm", 19, 19, RECORD);
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

/** The ELF header and two segments: the file itself (read, execute) and the image's zeros (read, write). */
function elfHeaders(fileBytes: number, imageBytes: number): Uint8Array<ArrayBuffer> {
  const view = new DataView(new ArrayBuffer(64 + 2 * 56));
  [0x7f, 0x45, 0x4c, 0x46, 2, 1, 1].forEach((byte, i) => {
    view.setUint8(i, byte);
  });
  const u64 = (at: number, value: number) => view.setBigUint64(at, BigInt(value), true);
  view.setUint16(16, 2, true); // an executable
  view.setUint16(18, 183, true); // for AArch64
  view.setUint32(20, 1, true);
  u64(24, CODE + HEADERS); // the entry
  u64(32, 64); // where the segments are listed
  view.setUint16(52, 64, true);
  view.setUint16(54, 56, true);
  view.setUint16(56, 2, true);
  const segment = (at: number, flags: number, address: number, inFile: number, size: number) => {
    view.setUint32(at, 1, true);
    view.setUint32(at + 4, flags, true);
    u64(at + 16, address);
    u64(at + 24, address);
    u64(at + 32, inFile);
    u64(at + 40, size);
    u64(at + 48, 0x10000);
  };
  segment(64, 5, CODE, fileBytes, fileBytes);
  segment(64 + 56, 6, IMAGE, 0, imageBytes);
  return new Uint8Array(view.buffer);
}

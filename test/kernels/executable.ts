// Kernels in a process of their own, for machines that can only emulate their processor. All calls of a batch run in one
// process: a static executable that reads an image of memory from its standard input, makes the calls that the image lists,
// and writes the image back. What is special to a processor (arm64-runner.ts, x64-runner.ts) is its start code.
//
// The image: values for registers that a call must preserve; a record for each call; parameter blocks; memories, with guard
// bytes between them. A record has the address of the code, that of the parameter block (as f64), and room for the
// registers as they are after the call.

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { NativeFunction } from "../../src/kernels/asm/native-function.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import { blockSlots } from "../../src/kernels/lower/machine.ts";

export interface KernelCall {
  readonly kernel: Kernel;
  readonly memory: Uint8Array<ArrayBuffer>;
  readonly args: readonly number[];
}

export interface Processor {
  /** e_machine of an ELF file. */
  readonly elf: number;
  /** What stands in front of an executable: nothing, or an emulator. */
  readonly runner: readonly string[];
  /** Registers that are checked: at the image's beginning and in each record, 8 bytes each, in this order. */
  readonly kept: readonly string[];
  code(kernel: Kernel): NativeFunction;
  /** Reads the image to IMAGE, makes the calls, writes the image. As long for all sizes. */
  start(calls: number, imageBytes: number): Uint8Array<ArrayBuffer>;
}

/** Where the image is. */
export const IMAGE = 0x10000000;
const CODE = 0x400000;
const HEADERS = 4096;
const GUARD = 256;
const GUARD_BYTE = 0xa5;

/** Bytes of a record. */
export function recordBytes(kept: number): number {
  return 8 * (2 + kept);
}

/** The memories after the calls; each call has one of its own. */
export function runProcess(
  calls: readonly KernelCall[],
  processor: Processor,
): Uint8Array<ArrayBuffer>[] {
  const functions = new Map<Kernel, { readonly code: NativeFunction; at: number }>();
  for (const { kernel } of calls) {
    if (!functions.has(kernel)) functions.set(kernel, { code: processor.code(kernel), at: 0 });
  }
  const image = new Image(calls, processor.kept);
  let end = HEADERS + processor.start(0, 0).length;
  for (const entry of functions.values()) {
    entry.at = CODE + align(end);
    end = align(end) + entry.code.bytes.length;
  }
  image.write((kernel) => functions.get(kernel)!.at);
  const file = new Uint8Array(end);
  file.set(elfHeaders(processor.elf, end, image.bytes.length));
  file.set(processor.start(calls.length, image.bytes.length), HEADERS);
  for (const { code, at } of functions.values()) file.set(code.bytes, at - CODE);
  return image.read(execute(file, image.bytes, processor.runner));
}

function align(at: number): number {
  return Math.ceil(at / 64) * 64;
}

function execute(
  file: Uint8Array,
  image: Uint8Array,
  runner: readonly string[],
): Uint8Array<ArrayBuffer> {
  const folder = mkdtempSync(join(tmpdir(), "lantern-kernels-"));
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
  readonly #calls: readonly KernelCall[];
  readonly #kept: readonly string[];
  readonly #blocks: number[] = [];
  readonly #memories: number[] = [];

  constructor(calls: readonly KernelCall[], kept: readonly string[]) {
    this.#calls = calls;
    this.#kept = kept;
    let end = this.#recordAt(calls.length);
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

  #recordAt(index: number): number {
    return 8 * this.#kept.length + index * recordBytes(this.#kept.length);
  }

  write(addressOf: (kernel: Kernel) => number): void {
    this.bytes.fill(GUARD_BYTE, this.#memories[0]! - GUARD);
    const view = new DataView(this.bytes.buffer);
    const f64 = (at: number, value: number) => view.setFloat64(at, value, true);
    this.#kept.forEach((_, i) => {
      f64(8 * i, keptValue(i));
    });
    this.#calls.forEach(({ kernel, memory, args }, index) => {
      const record = this.#recordAt(index);
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
      this.#kept.forEach((name, i) => {
        const value = view.getFloat64(this.#recordAt(index) + 16 + 8 * i, true);
        if (value !== keptValue(i)) throw new Error(`${kernel.name} does not preserve ${name}`);
      });
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

/** What preserved register number i has during the calls. */
function keptValue(i: number): number {
  return 1000.5 + i;
}

/** The ELF header and two segments: the file itself (read, execute) and the image's zeros (read, write). */
function elfHeaders(
  machine: number,
  fileBytes: number,
  imageBytes: number,
): Uint8Array<ArrayBuffer> {
  const view = new DataView(new ArrayBuffer(64 + 2 * 56));
  [0x7f, 0x45, 0x4c, 0x46, 2, 1, 1].forEach((byte, i) => {
    view.setUint8(i, byte);
  });
  const u64 = (at: number, value: number) => view.setBigUint64(at, BigInt(value), true);
  view.setUint16(16, 2, true); // an executable
  view.setUint16(18, machine, true);
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

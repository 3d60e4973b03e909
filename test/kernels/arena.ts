// A small memory in which tests run kernels, lowered to WebAssembly or x86-64 or interpreted: arrays are laid out one after
// another with guard bytes between them, and a check at the end finds any write that left its array.

import { assembleModule } from "../../src/kernels/asm/wasm.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import { KernelRefused } from "../../src/kernels/lower/machine.ts";
import { lowerToWasm } from "../../src/kernels/lower/wasm.ts";
import { lowerToX64 } from "../../src/kernels/lower/x64.ts";
import { callX64, type X64Isa, x64Here } from "./x64-runner.ts";

const pages = 64;
const guardBytes = 256;
const guardByte = 0xa5;

/** What runs a kernel, and the bytes of its vectors. */
export interface Target {
  readonly name: string;
  readonly width: number;
  readonly run: "plain" | "relaxed" | "interpreted" | X64Isa;
}

export const targets: readonly Target[] = [
  { name: "plain SIMD", width: 16, run: "plain" },
  { name: "relaxed SIMD", width: 16, run: "relaxed" },
  { name: "interpreted, vectors of 32 bytes", width: 32, run: "interpreted" },
  ...x64Here.map((isa) => ({ name: `x64 ${isa.isa}`, width: isa.width, run: isa })),
];

export type KernelCall = (...args: number[]) => void;

export interface Arena {
  call: KernelCall;
  /** A new array; its address is its byteOffset. `padding` bytes behind it may be overwritten. */
  f32(values: number | ArrayLike<number>, padding?: number): Float32Array;
  i32(values: ArrayLike<number>): Int32Array;
  bytes(length: number): Uint8Array;
  /** Throws if a byte between the arrays has changed. */
  checkGuards(): void;
}

export function arenaFor(build: (width: number) => Kernel, { width, run }: Target): Arena {
  const kernel = build(width);
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages });
  const all = new Uint8Array(memory.buffer);
  const guards: number[] = [];
  let end = 0;

  function guard(): void {
    all.fill(guardByte, end, end + guardBytes);
    guards.push(end);
    end += guardBytes;
  }

  function take(length: number, padding = 0): number {
    const from = end;
    // Aligned to 4 bytes only: nothing may rely on more.
    end = Math.ceil((from + length + padding) / 4) * 4;
    if (end + guardBytes > all.length) throw new Error("the arena is full");
    guard();
    return from;
  }

  guard();
  return {
    call: callOf(kernel, memory, run),
    f32(values, padding = 0) {
      const length = typeof values === "number" ? values : values.length;
      const view = new Float32Array(memory.buffer, take(length * 4, padding), length);
      if (typeof values !== "number") view.set(values);
      return view;
    },
    i32(values) {
      const view = new Int32Array(memory.buffer, take(values.length * 4), values.length);
      view.set(values);
      return view;
    },
    bytes(length) {
      return new Uint8Array(memory.buffer, take(length), length);
    },
    checkGuards() {
      for (const from of guards) {
        const changed = all.subarray(from, from + guardBytes).findIndex((b) => b !== guardByte);
        if (changed >= 0) throw new Error(`${kernel.name} wrote outside, at ${from + changed}`);
      }
    },
  };
}

/** Why the kernel has no code on this target; undefined: it has. */
export function refusal(
  build: (width: number) => Kernel,
  { width, run }: Target,
): string | undefined {
  if (typeof run !== "object") return undefined;
  try {
    lowerToX64(build(width), run);
    return undefined;
  } catch (error) {
    if (error instanceof KernelRefused) return error.message;
    throw error;
  }
}

function callOf(kernel: Kernel, memory: WebAssembly.Memory, run: Target["run"]): KernelCall {
  if (typeof run === "object") return callX64(kernel, memory.buffer, run);
  if (run !== "interpreted") return lower(kernel, memory, run === "relaxed");
  return (...args) => interpret(kernel, memory.buffer, args.slice(0, kernel.params.length));
}

function lower(kernel: Kernel, memory: WebAssembly.Memory, relaxed: boolean): KernelCall {
  const limits = { initial: pages, maximum: pages, shared: false, memory64: false };
  const module = assembleModule([lowerToWasm(kernel, { relaxed, memory64: false })], limits);
  const instance = new WebAssembly.Instance(new WebAssembly.Module(module), { env: { memory } });
  return instance.exports[kernel.name] as KernelCall;
}

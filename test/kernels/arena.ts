// A small memory in which tests run kernels lowered to WebAssembly: arrays are laid out one after another with guard
// bytes between them, and a check at the end finds any write that left its array.

import { assembleModule } from "../../src/kernels/asm/wasm.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import { lowerToWasm, type WasmTarget } from "../../src/kernels/lower/wasm.ts";

const pages = 64;
const guardBytes = 256;
const guardByte = 0xa5;

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

export function arenaFor(kernel: Kernel, target: Omit<WasmTarget, "memory64">): Arena {
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages });
  const module = assembleModule([lowerToWasm(kernel, { ...target, memory64: false })], {
    initial: pages,
    maximum: pages,
    shared: false,
    memory64: false,
  });
  const instance = new WebAssembly.Instance(new WebAssembly.Module(module), { env: { memory } });
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
    call: instance.exports[kernel.name] as KernelCall,
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

// Machine code of a target that this machine may not have, for tests: kernels are lowered as ever, and refused as ever, but
// what is called is the interpreter. So everything around the kernels runs anywhere: choices, layouts, scratch memory,
// calls. That the code does what the interpreter does is for test/kernels to say.

import { BLOCK_SLOTS } from "../../src/backends/cpu/native/entry.ts";
import type { NativeKernels } from "../../src/backends/cpu/native/native.ts";
import type { NativeFunction } from "../../src/kernels/asm/native-function.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import { KernelRefused } from "../../src/kernels/lower/machine.ts";
import type { KernelTarget } from "../../src/kernels/target.ts";

/** Addresses of memories, far from each other. */
const APART = 2 ** 40;

/** One thread only. `onCall` sees each call before it is made; offsets in its arguments are into the memory. */
export function interpretedNative(
  target: KernelTarget,
  lower: (kernel: Kernel) => NativeFunction,
  onCall: (kernel: Kernel, memory: ArrayBufferLike, args: readonly number[]) => void,
): NativeKernels {
  const kernels = new Map<string, Kernel>();
  const names: string[] = [];
  const images = new Set<Uint8Array>();
  const memories: ArrayBufferLike[] = [];
  const call = (address: number) => {
    const memory = memories[Math.floor(address / APART) - 1]!;
    const block = new Float64Array(memory, address % APART, BLOCK_SLOTS);
    const kernel = kernels.get(names[block.at(-1)!]!)!;
    const args = [...block.subarray(1, 1 + kernel.params.length)];
    onCall(kernel, memory, args);
    interpret(kernel, memory, args, { dot4: target.dot4, fused: true });
  };
  const library = {
    path: "interpreted",
    address: (name: string) => names.push(name) - 1,
    function: () => call,
  };
  return {
    target,
    host: {
      arch: "arm64",
      features: new Set(),
      bind: () => "only kernels are interpreted",
      load: (bytes) => (images.has(bytes) ? library : "only kernels are interpreted"),
      address: (memory) => {
        if (!memories.includes(memory)) memories.push(memory);
        return APART * (1 + memories.indexOf(memory));
      },
    },
    lower: (kernel) => {
      try {
        const code = lower(kernel);
        kernels.set(kernel.name, kernel);
        return code;
      } catch (error) {
        if (error instanceof KernelRefused) return error.message;
        throw error;
      }
    },
    link: (functions) => {
      const bytes = new Uint8Array(functions.length);
      images.add(bytes);
      const symbols = functions.map(({ name }) => [name, name] as const);
      return { bytes, entry: "entry", kernels: Object.fromEntries(symbols) };
    },
  };
}

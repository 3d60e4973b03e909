// The conformance table on machine code that this machine does not run: layouts, choices and calls are the target's, and its
// kernels are interpreted. Where qemu has the processor, one call of each kernel is made there, too, and leaves the same bytes.

import { expect, test } from "vitest";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { lowerings } from "../../src/backends/cpu/native/native.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import { nativeTargets } from "../../src/kernels/target.ts";
import type { KernelCall } from "../kernels/executable.ts";
import { interpretedNative } from "../support/interpreted-native.ts";
import { nativeHere } from "../support/native.ts";
import { emulatorOf } from "./emulators.ts";
import { expectKernels, testTable } from "./test-table.ts";

type NativeName = keyof typeof nativeTargets;

const here = new Set<string>(nativeHere.map(({ name }) => name));
const elsewhere = (Object.keys(nativeTargets) as NativeName[]).filter((name) => !here.has(name));

for (const name of elsewhere) {
  const target = nativeTargets[name];
  const emulate = emulatorOf(name);
  // Kernels that were called already, and this case's calls of others.
  const known = new Set<string>();
  const calls: KernelCall[] = [];
  const native = interpretedNative(target, lowerings[name], (kernel, memory, args) => {
    const key = `${kernel.name} ${kernel.width}`;
    if (typeof emulate === "string" || known.has(key)) return;
    known.add(key);
    calls.push({ kernel, memory: new Uint8Array(memory).slice(), args });
  });
  if (typeof emulate === "string") test.skip(`${name} under qemu [skipped: ${emulate}]`, () => {});
  testTable({
    target: `${name}, interpreted`,
    create: () => new CpuBackend({ level: 3, threads: 1, startThread: undefined, native }),
    batches: 2,
    after: (each, backend) => {
      expectKernels(each, backend);
      expect((backend as CpuBackend).kernels).toBe(name);
      if (typeof emulate === "string" || calls.length === 0) return;
      const made = calls.splice(0);
      emulate(made).forEach((got, i) => {
        const { kernel, memory, args } = made[i]!;
        const meant = memory.slice();
        interpret(kernel, meant.buffer, args, { dot4: target.dot4, fused: true });
        const isSame = Buffer.compare(got, meant) === 0;
        expect(isSame, `${kernel.name}(${args}): other bytes under qemu`).toBe(true);
      });
    },
  });
}

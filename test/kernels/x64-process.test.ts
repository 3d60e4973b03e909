// x86-64 code in a process under qemu-user, as it is run where the machine is not x86-64: here on any machine that has
// qemu-x86_64, so that the way itself is tried. There the whole of lower-x64 and x64-kernels is run so.

import { describe, expect, test } from "vitest";
import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import { everyOp, opCase } from "./op-cases.ts";
import { firstDifference } from "./same-memory.ts";
import { emulateX64, emulatorLacks } from "./x64-process.ts";
import { x64Isas } from "./x64-runner.ts";

const isa = x64Isas.find((one) => one.isa === "avx2")!;
const why = emulatorLacks(isa);

describe.skipIf(why !== undefined)(`AVX2 under qemu${why === undefined ? "" : ` [${why}]`}`, () => {
  test("every op", () => {
    const cases = everyOp.map((op) => opCase(op, isa.width, isa.semantics.dot4));
    const after = emulateX64(cases, isa);
    const wrong = cases.flatMap(({ kernel, memory, args, floats }, i) => {
      const meant = memory.slice();
      interpret(kernel, meant.buffer, args, isa.semantics);
      const kind = floats ? "f32" : "bytes";
      const regions = [{ from: args[1]!, to: memory.length, kind } as const];
      const difference = firstDifference(after[i]!, meant, regions);
      return difference === undefined ? [] : [`${kernel.name}: ${difference}`];
    });
    expect(wrong).toEqual([]);
  });

  test("what is written outside a kernel's memory is found", () => {
    const k = new KernelBuilder("outside", isa.width);
    k.op("i32.store", [k.param("ptr", "p"), k.i32(7)], 64);
    const call = { kernel: k.finish(), memory: new Uint8Array(64), args: [0] };
    expect(() => emulateX64([call], isa)).toThrow("outside wrote outside its memory");
  });
});

test("isas that qemu does not have are not tried", () => {
  const others = x64Isas.filter((one) => one !== isa).map((one) => emulatorLacks(one));
  for (const reason of others) expect(reason).toMatch(/qemu has no|for Linux/);
});

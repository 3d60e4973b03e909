// Registers and operands as machine.ts gives them out, executed by a simulator: the same memory as the interpreter's, for
// machines with many registers and with few, with operands in memory and without.

import { describe, expect, test } from "vitest";
import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import type { Semantics } from "../../src/kernels/ir/meanings.ts";
import { print } from "../../src/kernels/ir/print.ts";
import { KernelRefused, type MachineTarget } from "../../src/kernels/lower/machine.ts";
import { toMachine } from "../../src/kernels/lower/to-machine.ts";
import { runMachine } from "./machine-runner.ts";
import { randomArgs, randomKernel, randomMemory, regions } from "./random-kernels.ts";
import { firstDifference } from "./same-memory.ts";
import { axpy } from "./small-kernels.ts";

const semantics: Semantics = { dot4: "i7", fused: false };
const up = (count: number) => [...new Array(count).keys()];

function machine(vectors: number, generals: number, folds: boolean): MachineTarget {
  return {
    name: `${vectors} + ${generals}${folds ? ", folding" : ""}`,
    width: 16,
    vectors: up(vectors),
    generals: up(generals),
    passing: [29, 30, 31],
    tied: (op) => (op === "f32v.fma" || op === "i32v.dot4" ? 2 : undefined),
    readsFirst: (op) => !op.endsWith("_ss") && op !== "i8v.pack_i32",
    foldsLoad: () => folds,
    foldsConstant: () => folds,
    copiesConstants: true,
  };
}

describe.each([
  machine(32, 20, false),
  machine(32, 20, true),
  machine(16, 8, true),
  machine(12, 8, false),
])("$name", (target) => {
  test("300 random kernels", () => {
    let refused = 0;
    for (const seed of up(300)) {
      const kernel = randomKernel(seed);
      const memory = randomMemory(seed);
      const meant = memory.slice();
      interpret(kernel, meant.buffer, randomArgs, semantics);
      try {
        runMachine(toMachine(kernel, target), memory.buffer, randomArgs, semantics);
      } catch (error) {
        if (!(error instanceof KernelRefused)) throw error;
        refused++;
        continue;
      }
      const difference = firstDifference(memory, meant, regions);
      if (difference) expect.fail(`${difference}\n${print(kernel)}`);
    }
    expect(refused).toBeLessThan(target.vectors.length === 32 ? 1 : 280);
  });
});

describe("what is written", () => {
  test("an update is one instruction, a constant pointer step has its number", () => {
    const { instructions } = toMachine(axpy(), machine(16, 8, true));
    const text = instructions.map((each) => (each.kind === "op" ? each.op : each.kind));
    expect(text.filter((each) => each === "copy")).toEqual([]);
    expect(text).not.toContain("i32.const");
  });

  test("a kernel that does not fit says so", () => {
    const k = new KernelBuilder("wide", 16);
    const p = k.param("ptr", "p");
    const all = up(6).map((i) => k.op("f32v.load", [p], 16 * i));
    for (const each of all.reverse()) k.op("f32v.store", [p, each]);
    expect(() => toMachine(k.finish(), machine(5, 8, false))).toThrow(
      "wide keeps 6 vectors alive, 5 + 8 has 5 registers for them",
    );
  });

  test("scalars that do not fit pass through the block", () => {
    const k = new KernelBuilder("scalars", 16);
    const p = k.param("ptr", "p");
    const all = up(6).map((i) => k.op("i32.load", [p], 4 * i));
    for (const [i, each] of all.entries()) k.op("i32.store", [p, each], 64 + 4 * i);
    const prepared = toMachine(k.finish(), machine(8, 3, false));
    expect(prepared.instructions.filter(({ kind }) => kind === "spill")).toHaveLength(4);
    const memory = Uint8Array.from({ length: 128 }, (_, i) => i);
    runMachine(prepared, memory.buffer, [0], semantics);
    expect(memory.slice(64, 88)).toEqual(memory.slice(0, 24));
  });
});

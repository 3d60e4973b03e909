// The x86-64 lowering: every op and a few hundred random kernels do on the processor what the interpreter says they mean,
// at each isa that this machine has, or that can be emulated where it is another processor (x64-runner.ts).

import { describe, expect, test } from "vitest";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import { print } from "../../src/kernels/ir/print.ts";
import { everyOp as names, opCase } from "./op-cases.ts";
import { randomArgs, randomKernel, randomMemory, regions } from "./random-kernels.ts";
import { firstDifference } from "./same-memory.ts";
import { describeX64, isRefused, runX64Calls, type X64Isa } from "./x64-runner.ts";

const seeds = [...new Array(200).keys()];

describeX64((isa) => {
  // AVX-512 has half as wide vectors, too.
  const widths = isa.width === 64 ? [64, 32] : [isa.width];
  describe.each(widths)("vectors of %i bytes", (width) => checkAll(isa, width));
});

function checkAll(isa: X64Isa, width: number): void {
  const { semantics } = isa;
  const cases = names.map((op) => opCase(op, width, semantics.dot4));
  const results = runX64Calls(cases, isa);

  test.each(names.map((op, i) => [op, i] as const))("%s", (_, i) => {
    const { kernel, memory, args, floats } = cases[i]!;
    const meant = memory.slice();
    interpret(kernel, meant.buffer, args, semantics);
    expect(meant, "the kernel writes something").not.toEqual(memory);
    const got = results[i]!;
    const kinds = [{ from: args[1]!, to: memory.length, kind: floats ? "f32" : "bytes" } as const];
    expect(firstDifference(got, meant, kinds)).toBeUndefined();
  });

  test("random kernels", () => {
    const kernels = seeds
      .map((seed) => randomKernel(seed, width))
      .filter((kernel) => !isRefused(kernel, isa));
    expect(kernels.length).toBeGreaterThan(seeds.length / 3);
    const calls = kernels.map((kernel) => {
      const memory = randomMemory(Number(kernel.name.slice("random.".length)));
      return { kernel, memory, args: randomArgs };
    });
    const after = runX64Calls(calls, isa);
    calls.forEach(({ kernel, memory, args }, i) => {
      const meant = memory.slice();
      interpret(kernel, meant.buffer, args, semantics);
      const difference = firstDifference(after[i]!, meant, regions);
      if (difference) expect.fail(`${difference}\n${print(kernel)}`);
    });
  });
}

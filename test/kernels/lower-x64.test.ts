// The x86-64 lowering: every op and a few hundred random kernels do on the processor what the interpreter says they mean,
// at each level that this machine has.

import { describe, expect, test } from "vitest";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import { print } from "../../src/kernels/ir/print.ts";
import { everyOp as names, opCase } from "./op-cases.ts";
import { randomArgs, randomKernel, randomMemory, regions } from "./random-kernels.ts";
import { firstDifference } from "./same-memory.ts";
import { describeX64, isRefused, openX64, runX64, type X64Level } from "./x64-runner.ts";

const seeds = [...new Array(200).keys()];

describeX64((level) => {
  // AVX-512 has half as wide vectors, too.
  const widths = level.width === 64 ? [64, 32] : [level.width];
  describe.each(widths)("vectors of %i bytes", (width) => checkAll(level, width));
});

function checkAll({ level, semantics }: X64Level, width: number): void {
  const cases = new Map(names.map((op) => [op, opCase(op, width, semantics.dot4)]));
  const code = openX64(
    [...cases.values()].map(({ kernel }) => kernel),
    { level },
  );

  test.each(names)("%s", (op) => {
    const { kernel, memory, args, floats } = cases.get(op)!;
    const meant = memory.slice();
    interpret(kernel, meant.buffer, args, semantics);
    expect(meant, "the kernel writes something").not.toEqual(memory);
    const got = runX64(code.get(kernel)!, kernel, memory, args);
    const kinds = [{ from: args[1]!, to: memory.length, kind: floats ? "f32" : "bytes" } as const];
    expect(firstDifference(got, meant, kinds)).toBeUndefined();
  });

  test("random kernels", () => {
    const kernels = seeds
      .map((seed) => randomKernel(seed, width))
      .filter((kernel) => !isRefused(kernel, { level }));
    expect(kernels.length).toBeGreaterThan(seeds.length / 3);
    const run = openX64(kernels, { level });
    for (const kernel of kernels) {
      const memory = randomMemory(Number(kernel.name.slice("random.".length)));
      const meant = memory.slice();
      interpret(kernel, meant.buffer, randomArgs, semantics);
      const got = runX64(run.get(kernel)!, kernel, memory, randomArgs);
      const difference = firstDifference(got, meant, regions);
      if (difference) expect.fail(`${difference}\n${print(kernel)}`);
    }
  });
}

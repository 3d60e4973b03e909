// A few hundred random kernels: the interpreter and the WebAssembly lowering leave the same memory.

import { describe, expect, test } from "vitest";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import type { Statement } from "../../src/kernels/ir/kernel.ts";
import type { OpName } from "../../src/kernels/ir/ops.ts";
import { print } from "../../src/kernels/ir/print.ts";
import { verify } from "../../src/kernels/ir/verify.ts";
import { everyOp } from "./op-cases.ts";
import { randomArgs, randomKernel, randomMemory, regions } from "./random-kernels.ts";
import { firstDifference } from "./same-memory.ts";
import { compile, describeTargets, semanticsOf } from "./wasm-runner.ts";

const batches = 6;
const kernelsPerBatch = 50;
const seeds = (batch: number) =>
  [...new Array(kernelsPerBatch).keys()].map((i) => batch * kernelsPerBatch + i);

describeTargets((target) => {
  test.each([...new Array(batches).keys()])(`${kernelsPerBatch} kernels, batch %i`, (batch) => {
    for (const seed of seeds(batch)) {
      const kernel = randomKernel(seed);
      const memory = randomMemory(seed);
      const meant = memory.slice();
      interpret(kernel, meant.buffer, randomArgs, semanticsOf(target));
      const got = compile(kernel, target)(memory, randomArgs);
      const difference = firstDifference(got, meant, regions);
      if (difference) expect.fail(`${difference}\n${print(kernel)}`);
    }
  });
});

describe("the kernels", () => {
  const all = [...new Array(batches).keys()].flatMap((batch) =>
    seeds(batch).map((seed) => randomKernel(seed)),
  );
  const opsOf = (statements: readonly Statement[]): OpName[] =>
    statements.flatMap((statement) => {
      if (statement.kind === "loop") return opsOf(statement.body);
      return statement.kind === "op" ? [statement.op] : [];
    });

  test("are well-formed, different, and the same every time", () => {
    for (const kernel of all) verify(kernel);
    expect(new Set(all.map((kernel) => print(kernel))).size).toBe(all.length);
    expect(print(randomKernel(5))).toBe(print(all[5]!));
  });

  test("use every op, and loops in loops", () => {
    const used = new Set(all.flatMap(({ body }) => opsOf(body)));
    expect(everyOp.filter((op) => !used.has(op))).toEqual([]);
    const nested = all.filter(({ body }) =>
      body.some((outer) => outer.kind === "loop" && outer.body.some(({ kind }) => kind === "loop")),
    );
    expect(nested.length).toBeGreaterThan(20);
  });

  test("compute something: most of their floats are numbers", () => {
    let [numbers, nans] = [0, 0];
    for (const seed of seeds(0)) {
      const memory = randomMemory(seed);
      interpret(randomKernel(seed), memory.buffer, randomArgs);
      const { from } = regions[1]!;
      for (const value of new Float32Array(memory.buffer, from + 4096 + 2048, 64)) {
        if (Number.isNaN(value)) nans++;
        else numbers++;
      }
    }
    expect(numbers).toBeGreaterThan(4 * nans);
  });
});

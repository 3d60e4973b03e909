// The lowering to arm64 machine code, executed (arm64-runner.ts says where): every op of the IR, random kernels and the
// kernels of the engine leave the memory that the interpreter leaves.

import { describe, expect, test } from "vitest";
import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import type { Reg } from "../../src/kernels/ir/kernel.ts";
import { type OpName, ops } from "../../src/kernels/ir/ops.ts";
import { lowerToArm64 } from "../../src/kernels/lower/arm64.ts";
import {
  arm64Differences,
  arm64Lacks,
  arm64Target,
  type CheckedCall,
  isRefused,
} from "./arm64-runner.ts";
import { opCase } from "./op-cases.ts";
import { randomArgs, randomKernel, randomMemory, regions } from "./random-kernels.ts";

const names = Object.keys(ops) as OpName[];

describe.skipIf(arm64Lacks !== undefined)(
  `executed${arm64Lacks === undefined ? "" : ` [${arm64Lacks}]`}`,
  () => {
    test("every op", () => {
      const calls = names.map((op): CheckedCall => {
        const { kernel, memory, args, floats } = opCase(op, 16, "signed");
        const kind = floats ? "f32" : "bytes";
        return { kernel, memory, args, regions: [{ from: args[1]!, to: memory.length, kind }] };
      });
      expect(arm64Differences(calls)).toEqual([]);
    });

    test("random kernels", () => {
      const calls = [...new Array(150).keys()].flatMap((seed): CheckedCall[] => {
        const kernel = randomKernel(seed);
        if (isRefused(kernel)) return [];
        return [{ kernel, memory: randomMemory(seed), args: randomArgs, regions }];
      });
      expect(calls.length).toBeGreaterThan(100);
      expect(arm64Differences(calls)).toEqual([]);
    });
  },
);

test("a kernel with more vectors than registers is refused", () => {
  const k = new KernelBuilder("many", 16);
  const p = k.param("ptr", "p");
  const loaded = [...new Array(33).keys()].map((i) => k.op("f32v.load", [p], 16 * i));
  loaded.forEach((x: Reg<"f32v">, i) => {
    k.op("f32v.store", [p, x], 1024 - 16 * i);
  });
  const refused = /many keeps 33 vectors alive, arm64-dotprod has 32 registers for them/;
  expect(() => lowerToArm64(k.finish(), arm64Target)).toThrow(refused);
});

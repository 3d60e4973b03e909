// A defect for tests of guard mode: the kernel whose outermost loops run once more than they should.

import type { Kernel, Reg, Statement } from "../../src/kernels/ir/kernel.ts";

export function offByOne(kernel: Kernel): Kernel {
  let next = kernel.registers;
  const register = (): Reg<"i32"> => ({ id: next++, type: "i32" });
  const body = kernel.body.flatMap((statement): Statement[] => {
    if (statement.kind !== "loop") return [statement];
    const [one, count] = [register(), register()];
    return [
      { kind: "op", op: "i32.const", args: [], imm: 1, out: one },
      { kind: "op", op: "i32.add", args: [statement.count, one], imm: 0, out: count },
      { ...statement, count },
    ];
  });
  return { ...kernel, body, registers: next };
}

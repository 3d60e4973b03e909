// The conformance table on machine code, on every target that this machine runs. (Matmuls by every variant are in
// test/backends/native-matmuls.test.ts; targets that this machine lacks are in interpreted.test.ts.)

import { expect, test } from "vitest";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { nativeTargetsElsewhere, nativeTargetsHere } from "./targets.ts";
import { expectKernels, testTable } from "./test-table.ts";

for (const { name, options } of nativeTargetsHere) {
  testTable({
    target: name,
    create: () => new CpuBackend(options()),
    after: (each, backend) => {
      expectKernels(each, backend);
      expect((backend as CpuBackend).kernels).toBe(name); // nothing took its place
    },
  });
}

test.skip.each(nativeTargetsElsewhere)("%s", () => {});

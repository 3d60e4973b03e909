// The conformance table on WebAssembly: row by row (opt level 2), in row panels, without relaxed SIMD, and behind 4 GiB.

import { cpuBackend, wasmTargets } from "./targets.ts";
import { expectKernels, testTable } from "./test-table.ts";

for (const target of wasmTargets) {
  const { name, lacks } = target;
  testTable({ target: name, create: () => cpuBackend(target), after: expectKernels }, lacks);
}

// The conformance table on WebAssembly as other engines and larger models have it: without relaxed SIMD, and behind 4 GiB.
// Held against: the reference.

import { cpuBackend, wasmTargets } from "./targets.ts";
import { expectKernels, testTable } from "./test-table.ts";

for (const target of wasmTargets.slice(2)) {
  const { name, lacks } = target;
  testTable({ target: name, create: () => cpuBackend(target), after: expectKernels }, lacks);
}

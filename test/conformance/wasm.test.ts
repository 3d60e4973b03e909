// The conformance table on WebAssembly as this engine has it: row by row (opt level 2), and in row panels. (Without relaxed SIMD,
// and with 64-bit addresses: wasm-variants.test.ts.)
// Held against: the reference.

import { cpuBackend, wasmTargets } from "./targets.ts";
import { expectKernels, testTable } from "./test-table.ts";

for (const target of wasmTargets.slice(0, 2)) {
  const { name, lacks } = target;
  testTable({ target: name, create: () => cpuBackend(target), after: expectKernels }, lacks);
}

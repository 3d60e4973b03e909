// The conformance suite on machine code: what backends.test.ts asks of WebAssembly, on every target that this machine can
// run, within the same tolerances. Products of types that no tiny model has are in test/backends/native-products.test.ts.

import { describe, expect, test } from "vitest";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { nativeElsewhere, nativeHere } from "../support/native.ts";
import { conformanceCases } from "./cases.ts";
import { expectSameValues } from "./same-values.ts";

describe.each(nativeHere)("$name", ({ name, native }) => {
  test.each(conformanceCases)("$name", async ({ options, tolerance }) => {
    const backend = new CpuBackend({ level: 3, threads: 1, startThread: undefined, native });
    await expectSameValues(backend, options, tolerance);
    expect(backend.kernels).toBe(name); // nothing took its place
  });
});

test.skip.each(nativeElsewhere)("%s", () => {});

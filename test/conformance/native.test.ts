// The conformance suite on machine code: what backends.test.ts asks of WebAssembly, on every target that this machine can
// run, within the same tolerances. Products of types that no tiny model has are in test/backends/native-products.test.ts.

import { describe, expect, test } from "vitest";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { allArchs } from "../../src/models/table.ts";
import { nativeElsewhere, nativeHere } from "../support/native.ts";
import type { TinyOptions } from "../support/tiny-engine.ts";
import { expectSameValues } from "./same-values.ts";

const architectures = allArchs().flatMap((arch) => arch.names);

describe.each(nativeHere)("$name", ({ name, native }) => {
  const expectSame = async (options: TinyOptions, tolerance: number): Promise<void> => {
    const backend = new CpuBackend({ level: 3, threads: 1, startThread: undefined, native });
    await expectSameValues(backend, options, tolerance);
    expect(backend.kernels).toBe(name); // nothing took its place
  };

  test.each(architectures)("%s, every value", async (architecture) => {
    await expectSame({ architecture }, 1e-5);
  });
  test("rows and columns that fill no tile", async () => {
    await expectSame({ feedForward: 36, vocab: 51 }, 1e-5);
    await expectSame({ feedForward: 45 }, 1e-5);
  });
  test.each(["f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"])(
    "%s weights",
    async (weightType) => {
      await expectSame({ weightType }, 3e-2);
    },
  );
});

test.skip.each(nativeElsewhere)("%s", () => {});

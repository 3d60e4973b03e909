// The conformance suite: a backend computes what the reference computes, value by value, for every architecture, weight
// type and cache type, with steps of any size and several sequences in one step. (test/models/tiny-golden.test.ts holds
// the same backends against llama.cpp.)

import { describe, test } from "vitest";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { allArchs } from "../../src/models/table.ts";
import type { TinyOptions } from "../support/tiny-engine.ts";
import { expectSameValues } from "./same-values.ts";

const architectures = allArchs().flatMap((arch) => arch.names);

describe.each([2, 3] as const)("cpu, level %i", (level) => {
  const expectSame = (options: TinyOptions, tolerance: number) =>
    expectSameValues(
      new CpuBackend({ level, threads: 1, startThread: undefined }),
      options,
      tolerance,
    );

  // Floats: every value agrees to rounding.
  test.each(architectures)("%s, every value", async (architecture) => {
    await expectSame({ architecture }, 1e-5);
  });
  test.each(["f16", "q8_0"])("%s cache", async (kvType) => {
    // A key that lies between two steps of its type may fall either way.
    await expectSame({ kvType }, kvType === "f16" ? 2e-3 : 2e-2);
  });
  test("rows and columns that fill no tile", async () => {
    await expectSame({ feedForward: 36, vocab: 51 }, 1e-5);
    await expectSame({ feedForward: 45 }, 1e-5);
  });
  // Quantized: the first steps agree to rounding; an activation that falls to its other neighbour moves later ones.
  test.each(["f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"])(
    "%s weights",
    async (weightType) => {
      await expectSame({ weightType }, 3e-2);
    },
  );
});

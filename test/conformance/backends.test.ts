// The conformance suite: a backend computes what the reference computes, value by value, for every architecture, weight
// type and cache type, with steps of any size and several sequences in one step. (test/models/tiny-golden.test.ts holds
// the same backends against llama.cpp; guarded.test.ts runs the same cases in guard mode.)

import { describe, test } from "vitest";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { conformanceCases } from "./cases.ts";
import { expectSameValues } from "./same-values.ts";

describe.each([2, 3] as const)("cpu, level %i", (level) => {
  test.each(conformanceCases)("$name", async ({ options, tolerance }) => {
    const backend = new CpuBackend({ level, threads: 1, startThread: undefined });
    await expectSameValues(backend, options, tolerance);
  });
});

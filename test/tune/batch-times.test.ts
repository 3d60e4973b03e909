// What a batch takes, from times of its matmuls that are made up here.

import { expect, test } from "vitest";
import type { MatmulGroup } from "../../src/limits/model-matmuls.ts";
import { batchTimes } from "../../src/tune/batch-times.ts";
import type { TuneFile } from "../../src/tune/tune-file.ts";

/** Two profiles: the first is faster up to four tokens. */
const file: TuneFile = {
  engine: "e",
  cpu: "c",
  cores: 2,
  features: "f",
  date: "2026-11-17T00:00:00.000Z",
  profiles: ["a", "b"].map((variant) => ({ backend: "cpu", level: 4, variant, idle: "spin" })),
  groups: [
    {
      dtype: "q4_0",
      n: 1024,
      k: 1024,
      threads: 2,
      lines: [1, 4, 8].map((m) => ({
        m,
        times: [
          { init: m, compute: 100 * m },
          { init: m, compute: 300 + 25 * m },
        ],
      })),
    },
  ],
};

function group(count: number, dtype = "q4_0"): MatmulGroup {
  const matmuls = Array.from({ length: count }, () => ({ dtype, n: 1024, k: 1024 }));
  return { name: "blk.0", rows: "tokens", inCols: 1024, outCols: 1024 * count, matmuls };
}

test("matmuls add up, activations are prepared once for a group, and the fastest profile counts", () => {
  const shape = batchTimes(file, [group(3), group(1)], 2)!;
  expect(shape(1)).toBeCloseTo((2 * 1 + 4 * 100) / 1000, 9);
  expect(shape(4)).toBeCloseTo((2 * 4 + 4 * 400) / 1000, 9);
  expect(shape(8)).toBeCloseTo((2 * 8 + 4 * 500) / 1000, 9);
  // Between two measured numbers of tokens; for one thread from the times of two.
  expect(shape(2)).toBeCloseTo((2 * 2 + 4 * 200) / 1000, 9);
  expect(batchTimes(file, [group(1)], 1)!(1)).toBeCloseTo((1 + 200) / 1000, 9);
});

test("nothing is known of a model with a type that was not measured, or without matmuls", () => {
  expect(batchTimes(file, [group(1), group(1, "q6_k")], 2)).toBeUndefined();
  expect(batchTimes(file, [], 2)).toBeUndefined();
});

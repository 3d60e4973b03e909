// The conformance table on the reference itself, with which everything else is compared: how tokens are split into
// batches does not change a bit. (test/models/tiny-golden.test.ts compares it with llama.cpp.)

import { describe, expect, test } from "vitest";
import { firstBatchDifference } from "./run-case.ts";
import { cases } from "./table.ts";

describe("reference", () => {
  test.each(cases)("$name", async ({ make, batches }) => {
    expect(await firstBatchDifference(make(), batches)).toBeUndefined();
  });
});

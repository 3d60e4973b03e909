// The conformance table on the reference itself, which everything else is held against: how tokens are cut into batches
// does not change a bit. (test/models/tiny-golden.test.ts holds it against llama.cpp.)

import { describe, expect, test } from "vitest";
import { firstBatchDifference } from "./run-case.ts";
import { cases } from "./table.ts";

describe("reference", () => {
  test.each(cases)("$name", async ({ make, batches }) => {
    expect(await firstBatchDifference(make(), batches)).toBeUndefined();
  });
});

// compare-values.ts for the test runner: a difference fails the test.

import { expect } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import type { TinyOptions } from "../support/tiny-engine.ts";
import { firstDifference, type Steps } from "./compare-values.ts";

export type { Steps } from "./compare-values.ts";

/** The backend computes what the reference computes, value by value. */
export async function expectSameValues(
  backend: Backend,
  options: TinyOptions,
  tolerance: number,
  steps?: Steps,
): Promise<void> {
  expect(await firstDifference(backend, options, tolerance, steps)).toBeUndefined();
}

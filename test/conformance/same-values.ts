// A tiny model on a backend for tests outside the table: a value that is not the reference's fails the test.

import { expect } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import type { TinyOptions } from "../support/tiny-engine.ts";
import { type Batches, firstDifference } from "./run-case.ts";
import { modelBatches, modelOf } from "./table.ts";

/** The backend computes what the reference computes, value by value; then it is disposed of. */
export async function expectSameValues(
  backend: Backend,
  options: TinyOptions,
  tolerance: number,
  batches: Batches = modelBatches,
): Promise<void> {
  const wrong = await firstDifference(backend, modelOf(options), { tolerance }, batches);
  backend.dispose();
  expect(wrong).toBeUndefined();
}

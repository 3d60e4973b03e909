// What one more token of a batch costs, from batches of several sizes.
// Held against: costs written here.

import { expect, test } from "vitest";
import { BatchLine } from "../../src/engine/batch-line.ts";
import { Random } from "../support/random.ts";

/** Batches of these sizes, in turn, each taking first + each * tokens, with noise. */
function noted(line: BatchLine, sizes: readonly number[], first: number, each: number): BatchLine {
  const random = new Random(1);
  for (let i = 0; i < 100; i++) {
    const tokens = sizes[i % sizes.length]!;
    const noise = 1 + 0.02 * random.normal();
    // One in ten is interrupted.
    line.note(tokens, (first + each * tokens) * noise * (i % 10 === 9 ? 4 : 1));
  }
  return line;
}

test("the cost of a token is found where sizes differ", () => {
  const line = noted(new BatchLine(), [15, 16, 26, 15], 1, 0.6);
  expect((line.msOf(26) - line.msOf(15)) / 11).toBeGreaterThan(0.5);
  expect((line.msOf(26) - line.msOf(15)) / 11).toBeLessThan(0.75);
  expect(line.msOf(15)).toBeGreaterThan(9.5);
  expect(line.msOf(15)).toBeLessThan(11.5);
  // Another machine, or another model: memory is the limit.
  noted(noted(line, [1, 2, 4], 20, 0), [1, 2, 4], 20, 0);
  expect(line.msOf(4) - line.msOf(1)).toBeLessThan(2);
});

test("before sizes differ it is guessed, and more tokens never take less", () => {
  const line = new BatchLine();
  expect(line.msOf(2)).toBeGreaterThan(line.msOf(1));
  for (let i = 0; i < 20; i++) line.note(1, 8);
  expect(line.msOf(1)).toBeCloseTo(8, 0);
  expect(line.msOf(9) - line.msOf(1)).toBeGreaterThan(2);
  for (let i = 0; i < 60; i++) line.note(1 + (i % 4), 10 - (i % 4));
  expect(line.msOf(4)).toBeGreaterThanOrEqual(line.msOf(1));
  line.note(0, 5);
  line.note(3, Number.NaN);
  expect(Number.isFinite(line.msOf(3))).toBe(true);
});

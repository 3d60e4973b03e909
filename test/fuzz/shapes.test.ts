// What the fuzz target "shapes" found, repaired, as cases; and one of each op on each level, so that the target itself works.
// A finding prints a line for `found`.
// Held against: the reference, which the fuzz target compares with.

import { describe, expect, test } from "vitest";
import { runShapeCase, type ShapeCase, ways } from "./shape-case.ts";
import { shapeOps } from "./shape-graph.ts";
import { randomCase, wholeCase } from "./shape-inputs.ts";

const found: readonly [why: string, given: Partial<ShapeCase>][] = [
  [
    "columns that fill no vector beside half floats: the reference on the CPU backend did not round activations",
    { op: "matmul", way: "wasm", type: "f16", rows: 31, cols: 2, tokens: 29, seed: 511 },
  ],
  [
    "the same with bf16, row by row",
    { op: "matmul", way: "rows", type: "bf16", rows: 7, cols: 5, tokens: 32, threads: 3, seed: 8 },
  ],
];

describe("found by fuzzing", () => {
  test.each(found)("%s", async (_, given) => {
    await runShapeCase(wholeCase(given));
  });
});

// Machine code is watched in the conformance suite's child process: here a fault would end the test runner.
const inProcess = ["rows", "wasm", "wasm interpreted"];

describe.each(inProcess)("%s", (way) => {
  test.each(shapeOps)("%s", async (op) => {
    await runShapeCase(
      wholeCase({ op, way, type: "q8_0", cols: 36, rows: 33, tokens: 5, seed: 3 }),
    );
  });
});

test("every level is among the ways, and a seed is always the same case", () => {
  expect(ways).toEqual(expect.arrayContaining(inProcess));
  expect(ways.length).toBe(3 + 6); // and six targets of machine code, run or interpreted
  expect(randomCase(17)).toEqual(randomCase(17));
  expect(wholeCase({})).toMatchObject({ tokens: 1, threads: 1 });
  expect(wholeCase({ type: "q4_k", op: "matmul", cols: 3 }).cols).toBe(256);
});

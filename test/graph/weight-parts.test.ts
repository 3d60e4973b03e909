// Where a weight lies in local files: all of its tensor, some rows of it, or nowhere.
// Held against: offsets written here.

import { expect, test } from "vitest";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { Weight } from "../../src/graph/graph.ts";
import { rowsOf, weightParts } from "../../src/graph/weight-source.ts";

const whole: Weight = { name: "w", shape: [64, 256], dtype: dtypeByName("q4_0")! };
const rowBytes = (256 / 32) * 18;
const inOne = () => [{ descriptor: 5, offset: 1000 }];
const inTwo = () => [...inOne(), { descriptor: 6, offset: 0 }];

test("a weight lies where its tensor does", () => {
  expect(weightParts(whole, inTwo)).toEqual(inTwo());
  expect(weightParts(whole, () => undefined)).toBeUndefined();
});

test("rows of a fused tensor begin further on", () => {
  const rows = rowsOf(whole, 16, 32);
  const asked: string[] = [];
  const parts = weightParts(rows, (tensor) => {
    asked.push(tensor);
    return inOne();
  });
  expect(asked).toEqual(["w"]);
  expect(parts).toEqual([{ descriptor: 5, offset: 1000 + 16 * rowBytes }]);
});

test("rows of a tensor in several parts, and computed values, are not read by the threads", () => {
  expect(weightParts(rowsOf(whole, 16, 32), inTwo)).toBeUndefined();
  const values = Float32Array.of(1, 2);
  expect(weightParts({ ...whole, source: { values } }, inOne)).toBeUndefined();
});

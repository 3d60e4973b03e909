// The depth of speculation from costs: exact numbers.

import { expect, test } from "vitest";
import { bestDepth } from "../../../src/engine/speculate/depth.ts";

const free = () => 0;

test("where more tokens cost nothing, it drafts as much as it may", () => {
  // 1 + 0.5 + 0.25 + 0.125 tokens in the time of one.
  expect(bestDepth(() => 10, free, 0.5, 3)).toEqual({ depth: 3, gain: 1.875 });
});

test("nothing is drafted where every token costs as much as a batch of its own, or none is ever right", () => {
  expect(bestDepth((n) => 10 * n, free, 0.9, 16)).toEqual({ depth: 0, gain: 1 });
  expect(bestDepth(() => 10, free, 0, 16)).toEqual({ depth: 0, gain: 1 });
  expect(bestDepth(() => 10, free, 1, 0)).toEqual({ depth: 0, gain: 1 });
});

test("the depth ends where the next token costs more than it is expected to give", () => {
  // Batches of 1 to 4 take 30 ms, then 7.5 ms more for each token; drafts take 1 ms each.
  const batch = (n: number) => Math.max(30, 7.5 * n);
  const gains = [1.8 / 31, 2.44 / 32, 2.952 / 33, 3.3616 / 41.5, 3.68928 / 50].map((x) => 30 * x);
  const { depth, gain } = bestDepth(batch, (n) => n, 0.8, 8);
  expect(depth).toBe(3);
  expect(gain).toBeCloseTo(Math.max(...gains), 12);
  expect(gain).toBeCloseTo(2.6836, 4);
});

test("a dear draft is not worth it, however often it is right", () => {
  expect(
    bestDepth(
      () => 10,
      (n) => 10 * n,
      0.99,
      16,
    ),
  ).toEqual({ depth: 0, gain: 1 });
  expect(
    bestDepth(
      () => 10,
      (n) => 2 * n,
      1,
      16,
    ).depth,
  ).toBe(16);
});

test("fewer than the least are not drafted", () => {
  expect(bestDepth((n) => Math.max(30, 7.5 * n), free, 0.8, 8, 5).depth).toBe(5);
  expect(bestDepth((n) => 10 * n, free, 0.8, 8, 5).depth).toBe(0);
});

test("every token can have a chance of its own; one without ends the draft", () => {
  const chances = [0.5, 1, 0, 1];
  expect(
    bestDepth(
      () => 10,
      free,
      (index) => chances[index]!,
      4,
    ),
  ).toEqual({ depth: 2, gain: 2 });
});

test("beside others, the tokens of all count: they wait for the drafts", () => {
  // Two tokens fit in the time of one, then each takes half of that.
  const batch = (n: number) => Math.max(30, 15 * n);
  expect(bestDepth((n) => batch(n), free, 0.8, 8).depth).toBe(1);
  expect(bestDepth((n) => batch(1 + n), free, 0.8, 8, 1, 1).depth).toBe(0);
  // With time for four tokens: 1 + 2.44 instead of 2.
  const { depth, gain } = bestDepth((n) => Math.max(30, 7.5 * (1 + n)), free, 0.8, 8, 1, 1);
  expect({ depth, gain: gain.toFixed(3) }).toEqual({ depth: 2, gain: "1.720" });
});

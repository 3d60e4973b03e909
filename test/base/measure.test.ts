// The order of contestants, warm-ups and repeated rounds of measure(), against scripted rounds; its arithmetic, against sums by hand.

import { expect, test } from "vitest";
import { measure, median, medianRatio, quantile, takeRounds } from "../../src/base/measure.ts";

test("contestants take turns, backwards in every other round; warm-ups do not count", async () => {
  const seen: string[] = [];
  const { samples, disturbed } = await measure({
    contestants: ["a", "b", "c"],
    rounds: 2,
    warmUps: 1,
    run: (name, round) => {
      seen.push(`${name}${round}`);
      return `${name}${round}`;
    },
  });
  expect(seen).toEqual(["c-1", "b-1", "a-1", "a0", "b0", "c0", "c1", "b1", "a1"]);
  expect(samples).toEqual([
    ["a0", "a1"],
    ["b0", "b1"],
    ["c0", "c1"],
  ]);
  expect(disturbed).toBeUndefined();
});

test("disturbed rounds are measured again, so many at most; further ones count and are named", async () => {
  const says = [undefined, "first", "second", undefined, "third"];
  const kept: number[] = [];
  let measured = 0;
  const disturbed = await takeRounds({
    rounds: 3,
    mostRepeats: 2,
    watch: { begin: () => {}, disturbance: () => says.shift() },
    measure: () => measured++,
    keep: (result) => void kept.push(result),
  });
  expect(kept).toEqual([0, 3, 4]);
  expect(disturbed).toBe("third");
});

test("the number of rounds may follow from what was measured", async () => {
  let sum = 0;
  await takeRounds({
    rounds: () => sum >= 10,
    measure: (round) => round,
    keep: (round) => {
      sum += round;
    },
  });
  expect(sum).toBe(10);
});

test("median, quantiles and ratios of rounds", () => {
  expect(median([3, 1, 2])).toBe(2);
  expect(median([4, 1, 2, 3])).toBe(2.5);
  expect(median([])).toBeNaN();
  expect(quantile([5, 1, 4, 2, 3], 0.25)).toBe(2);
  expect(quantile([1, 2, 3, 4], 0.99)).toBe(4);
  expect(quantile([1, 2], 0)).toBe(1);
  expect(quantile([], 0.5)).toBeNaN();
  expect(medianRatio([2, 6, 20], [1, 2, 4])).toBe(3);
});

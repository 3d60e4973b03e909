// What batches cost: from a shape, and from what was measured.
// Held against: costs written here.

import { describe, expect, test } from "vitest";
import { BatchCosts } from "../../../src/engine/speculate/costs.ts";
import { bestDepth } from "../../../src/engine/speculate/depth.ts";

const noteTimes = (costs: BatchCosts, tokens: number, ms: number, times: number) => {
  for (let i = 0; i < times; i++) costs.note(tokens, ms);
};

describe("before anything is measured", () => {
  test("a tune file's times are used, and never fall with more tokens", () => {
    const times = [0, 10, 12, 11, 20];
    const costs = new BatchCosts((tokens) => times[tokens]);
    expect(costs.isKnown(1)).toBe(true);
    expect([1, 2, 3, 4].map((n) => costs.msOf(n))).toEqual([10, 12, 12, 20]);
  });

  test("without one, eight tokens are as good as one", () => {
    const costs = new BatchCosts();
    expect(costs.isKnown(1)).toBe(false);
    expect([1, 2, 8, 16, 32, 64].map((n) => costs.msOf(n))).toEqual([1, 1, 1, 2, 4, 8]);
  });
});

describe("measured batches", () => {
  test("one size scales all of them", () => {
    const costs = new BatchCosts();
    costs.note(1, 30);
    costs.note(1, 30);
    expect([1, 2].map((n) => costs.isKnown(n))).toEqual([true, false]);
    expect([1, 8, 16, 64].map((n) => costs.msOf(n))).toEqual([30, 30, 60, 240]);
  });

  test("sizes between two that were measured lie between them", () => {
    const costs = new BatchCosts(() => 10);
    noteTimes(costs, 1, 10, 7);
    noteTimes(costs, 5, 50, 7);
    const [one, two, three, five, nine] = [1, 2, 3, 5, 9].map((n) => costs.msOf(n));
    expect(one).toBeCloseTo(10, 9);
    expect(five).toBeCloseTo((10 * (1 + 42.25 * 5)) / 43.25, 9); // seven batches: 6.5 ** 2 times the weight of the shape
    expect(two).toBeCloseTo(one! + (five! - one!) / 4, 9);
    expect(three).toBeCloseTo((one! + five!) / 2, 9);
    expect(nine).toBe(five);
  });

  test("three slow batches of seven change nothing", () => {
    const costs = new BatchCosts(() => 10);
    for (const ms of [10, 90, 10, 90, 10, 90, 10]) costs.note(1, ms);
    expect(costs.msOf(1)).toBe(10);
  });

  test("what a size took counts as a multiple of one token at that time", () => {
    const costs = new BatchCosts(() => 10);
    noteTimes(costs, 1, 10, 7);
    noteTimes(costs, 5, 20, 7);
    expect(costs.msOf(5)).toBeCloseTo((10 + 42.25 * 20) / 43.25, 9);
    // Now the machine is busy: everything takes three times as long.
    noteTimes(costs, 1, 30, 7);
    expect(costs.msOf(1)).toBeCloseTo(30, 9);
    expect(costs.msOf(5) / costs.msOf(1)).toBeCloseTo(2, 1);
    // The older its batches, the more it is as the shape says.
    noteTimes(costs, 1, 30, 256);
    expect(costs.msOf(5)).toBeLessThan(58);
    noteTimes(costs, 1, 30, 8192);
    expect(costs.msOf(5)).toBeLessThan(33);
  });

  test("the size that others are compared with is measured again now and then", () => {
    const costs = new BatchCosts();
    noteTimes(costs, 1, 10, 2);
    noteTimes(costs, 5, 10, 255);
    expect(costs.isKnown(1)).toBe(true);
    costs.note(5, 10);
    expect(costs.isKnown(1)).toBe(false);
    noteTimes(costs, 1, 40, 2);
    expect(costs.isKnown(1)).toBe(true);
    expect(costs.msOf(1)).toBe(40); // what was stale is gone
  });

  test("a size that was slow once is tried again", () => {
    const costs = new BatchCosts();
    noteTimes(costs, 1, 10, 7);
    costs.note(4, 100);
    const depth = () =>
      bestDepth({ batchMs: (n) => costs.msOf(n), acceptance: 0.9, most: 3 }).depth;
    expect(depth()).toBe(0);
    noteTimes(costs, 1, 10, 4096);
    expect(depth()).toBe(3);
  });

  test("without a tune file, two sizes are enough for a line through all of them", () => {
    const costs = new BatchCosts();
    noteTimes(costs, 1, 10, 7);
    noteTimes(costs, 4, 22, 7); // 4 ms for each further token
    for (const n of [1, 2, 3, 4, 8, 16]) expect(costs.msOf(n)).toBeCloseTo(6 + 4 * n, 0);
    // A size that is on no line is what it was measured at; others lie between.
    noteTimes(costs, 8, 24, 7);
    expect(costs.msOf(8)).toBeCloseTo(24, 0);
    expect(costs.msOf(6)).toBeGreaterThan(costs.msOf(4));
    expect(costs.msOf(6)).toBeLessThan(26);
  });

  test("a line that rests on one batch is believed by half, and one on old batches becomes flat again", () => {
    const costs = new BatchCosts();
    noteTimes(costs, 1, 10, 7);
    costs.note(4, 40);
    expect(costs.msOf(8)).toBeLessThan(60);
    noteTimes(costs, 4, 40, 2);
    expect(costs.msOf(8)).toBeGreaterThan(65);
    noteTimes(costs, 1, 10, 256);
    expect(costs.msOf(8)).toBeGreaterThan(50);
    noteTimes(costs, 1, 10, 8192);
    expect(costs.msOf(8)).toBeLessThan(20);
  });

  test("beside others the line begins at the size of their batch", () => {
    const costs = new BatchCosts();
    noteTimes(costs, 8, 20, 7);
    noteTimes(costs, 12, 30, 7);
    expect(costs.msOf(8)).toBeCloseTo(20, 9);
    expect(costs.msOf(10)).toBeGreaterThan(20);
    expect(costs.msOf(10)).toBeLessThan(30);
    expect(costs.msOf(12)).toBeCloseTo(30, 0);
    expect(costs.msOf(1)).toBeGreaterThan(2);
    expect(costs.msOf(1)).toBeLessThan(20);
  });

  test("what is no time, or too many tokens, is not noted", () => {
    const costs = new BatchCosts();
    costs.note(1, 0);
    costs.note(1, Number.NaN);
    costs.note(0, 10);
    costs.note(33, 10);
    expect([1, 8, 16].map((n) => costs.msOf(n))).toEqual([1, 1, 2]);
  });
});

describe("a prompt", () => {
  const depthAt = (costs: BatchCosts, acceptance: number) =>
    bestDepth({ batchMs: (n) => costs.msOf(n), acceptance, most: 7 }).depth;

  test("says what a token more takes before any drafts were computed", () => {
    const costs = new BatchCosts();
    costs.notePrompt(14, 18); // 13 tokens more in 14.4 ms
    noteTimes(costs, 1, 3.6, 2);
    const slope = (14.4 / 13) * (2 / 2.5); // believed as two batches are, beside the guess that they are free
    for (const n of [1, 2, 4, 8]) expect(costs.msOf(n)).toBeCloseTo(3.6 + slope * (n - 1), 1);
    expect(depthAt(costs, 0.2)).toBe(0);
    expect(depthAt(costs, 0.9)).toBeGreaterThan(0);
  });

  test("is compared with the batch behind it, not with later ones", () => {
    const costs = new BatchCosts();
    costs.notePrompt(14, 18);
    noteTimes(costs, 1, 3.6, 2);
    const before = costs.msOf(8) / costs.msOf(1);
    noteTimes(costs, 1, 1.2, 7); // by now everything is compiled
    expect(costs.msOf(8) / costs.msOf(1)).toBeCloseTo(before, 1);
  });

  test("counts little beside measured drafts, and less the older it is", () => {
    const costs = new BatchCosts();
    costs.notePrompt(14, 140);
    noteTimes(costs, 1, 10, 7);
    expect(costs.msOf(8)).toBeGreaterThan(50);
    noteTimes(costs, 8, 10, 7);
    expect(costs.msOf(8)).toBeLessThan(11);
    const old = new BatchCosts();
    old.notePrompt(14, 140);
    noteTimes(old, 1, 10, 4096);
    expect(old.msOf(8)).toBeLessThan(15);
  });

  test("of a few tokens, or with a tune file, is not noted", () => {
    const [short, tuned] = [new BatchCosts(), new BatchCosts(() => 10)];
    short.notePrompt(7, 700);
    tuned.notePrompt(14, 1400);
    for (const costs of [short, tuned]) {
      noteTimes(costs, 1, 10, 7);
      expect(costs.msOf(8)).toBeCloseTo(10, 9);
    }
  });
});

test("optimism is corrected: a machine whose batches are arithmetic-bound stops drafting after a few batches", () => {
  const costs = new BatchCosts();
  let drafted = 0;
  for (let batch = 0; batch < 200; batch++) {
    const most = costs.isKnown(1) ? 16 : 0;
    const { depth } = bestDepth({ batchMs: (n) => costs.msOf(n), acceptance: 0.6, most });
    if (depth > 0) drafted++;
    costs.note(depth + 1, 10 * (depth + 1));
  }
  expect(drafted).toBeGreaterThan(0);
  expect(drafted).toBeLessThan(12);
});

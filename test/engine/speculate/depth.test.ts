// The depth of speculation from costs: exact numbers.
// Held against: depths worked out by hand.

import { expect, test } from "vitest";
import { bestDepth } from "../../../src/engine/speculate/depth.ts";

const same = () => 10;

test("where more tokens cost nothing, it drafts as much as it may", () => {
  // 1 + 0.5 + 0.25 + 0.125 tokens in the time of one.
  const found = bestDepth({ batchMs: same, acceptance: 0.5, most: 3 });
  expect(found).toEqual({ depth: 3, gain: 1.875 });
});

test("nothing is drafted where every token costs as much as a batch of its own, or none is ever right", () => {
  const none = { depth: 0, gain: 1 };
  expect(bestDepth({ batchMs: (n) => 10 * n, acceptance: 0.9, most: 16 })).toEqual(none);
  expect(bestDepth({ batchMs: same, acceptance: 0, most: 16 })).toEqual(none);
  expect(bestDepth({ batchMs: same, acceptance: 1, most: 0 })).toEqual(none);
});

test("the depth ends where the next token costs more than it is expected to give", () => {
  // Batches of 1 to 4 take 30 ms, then 7.5 ms more for each token; drafts take 1 ms each.
  const batchMs = (n: number) => Math.max(30, 7.5 * n);
  const gains = [1.8 / 31, 2.44 / 32, 2.952 / 33, 3.3616 / 41.5, 3.68928 / 50].map((x) => 30 * x);
  const { depth, gain } = bestDepth({ batchMs, draftMs: (n) => n, acceptance: 0.8, most: 8 });
  expect(depth).toBe(3);
  expect(gain).toBeCloseTo(Math.max(...gains), 12);
  expect(gain).toBeCloseTo(2.6836, 4);
});

test("a dear draft is not worth it, however often it is right", () => {
  const dear = { batchMs: same, draftMs: (n: number) => 10 * n, acceptance: 0.99, most: 16 };
  expect(bestDepth(dear)).toEqual({ depth: 0, gain: 1 });
  expect(bestDepth({ ...dear, draftMs: (n) => 2 * n, acceptance: 1 }).depth).toBe(16);
});

test("fewer than the least are not drafted", () => {
  const facts = { acceptance: 0.8, most: 8, least: 5 };
  expect(bestDepth({ ...facts, batchMs: (n) => Math.max(30, 7.5 * n) }).depth).toBe(5);
  expect(bestDepth({ ...facts, batchMs: (n) => 10 * n }).depth).toBe(0);
});

test("every token can have a chance of its own; one without ends the draft", () => {
  const chances = [0.5, 1, 0, 1];
  const acceptance = (index: number) => chances[index]!;
  expect(bestDepth({ batchMs: same, acceptance, most: 4 })).toEqual({ depth: 2, gain: 2 });
});

test("beside others, the tokens of all count: they wait for the drafts", () => {
  // Two tokens fit in the time of one, then each takes half of that.
  const batch = (n: number) => Math.max(30, 15 * n);
  const facts = { acceptance: 0.8, most: 8 };
  expect(bestDepth({ ...facts, batchMs: batch }).depth).toBe(1);
  expect(bestDepth({ ...facts, batchMs: (n) => batch(1 + n), others: 1 }).depth).toBe(0);
  // With time for four tokens: 1 + 2.44 instead of 2.
  const batchMs = (n: number) => Math.max(30, 7.5 * (1 + n));
  const { depth, gain } = bestDepth({ ...facts, batchMs, others: 1 });
  expect({ depth, gain: gain.toFixed(3) }).toEqual({ depth: 2, gain: "1.720" });
});

test("where state goes back to before the batch, what stood of it is computed again, in a batch without drafts", () => {
  // With tokens that cost nothing: 1.5 in the first batch and, half of the time, another in a second one: 2 tokens in 1.5 batches.
  const facts = { batchMs: same, acceptance: 0.5, goesBack: true };
  const { depth, gain } = bestDepth({ ...facts, most: 1 });
  expect({ depth, gain }).toEqual({ depth: 1, gain: 2 / 1.5 });
  // Depth 2: right twice 3 tokens in 1 batch, once 2 + 1 in 2, never 1 + 1 in 2.
  const deeper = bestDepth({ ...facts, most: 2 });
  expect(deeper.gain).toBeCloseTo((0.25 * 3 + 0.25 * 3 + 0.5 * 2) / (0.25 * 1 + 0.75 * 2), 12);
  // Where more tokens cost, it does not pay at an acceptance at which it would otherwise.
  const batchMs = (n: number) => 10 + 5 * (n - 1);
  const often = { batchMs, acceptance: 0.55, most: 8 };
  expect(bestDepth(often).depth).toBe(1);
  expect(bestDepth({ ...often, goesBack: true }).depth).toBe(0);
});

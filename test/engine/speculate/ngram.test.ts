// What the n-gram drafter proposes, and how likely it says that is.
// Held against: drafts and shares written here.

import { expect, test } from "vitest";
import type { Drafter } from "../../../src/engine/speculate/drafter.ts";
import { NgramKind } from "../../../src/engine/speculate/ngram.ts";
import { Random } from "../../support/random.ts";

async function started(prompt: readonly number[], most = 4096): Promise<Drafter> {
  return new NgramKind().start(prompt, most);
}

async function draftOf(drafter: Drafter, limit: number): Promise<number[]> {
  const out = new Int32Array(limit);
  return [...out.subarray(0, await drafter.draft(limit, out))];
}

const numbers = (from: number, count: number) => Array.from({ length: count }, (_, i) => from + i);

test("what followed the last tokens before", async () => {
  const drafter = await started([...numbers(1, 20), 99, 5, 6, 7]);
  expect(await draftOf(drafter, 4)).toEqual([8, 9, 10, 11]);
  drafter.accept(8);
  expect(await draftOf(drafter, 3)).toEqual([9, 10, 11]);
  drafter.accept(50); // it goes on otherwise
  expect(drafter.chance(0)).toBe(0);
  expect(await draftOf(drafter, 3)).toEqual([]);
});

test("nothing where nothing is known", async () => {
  const drafter = await started([1, 2, 3]);
  expect(drafter.chance(0)).toBe(0);
  expect(await draftOf(drafter, 3)).toEqual([]);
  expect((await started([])).chance(0)).toBe(0);
});

test("the longest match counts, of equal ones the newest", async () => {
  const prompt = [1, 2, 3, 4, 70, 9, 9, 9, 3, 4, 71, 8, 8, 1, 2, 3, 4];
  expect(await draftOf(await started(prompt), 1)).toEqual([70]);
  const twice = [3, 4, 70, 9, 9, 9, 3, 4, 71, 8, 8, 3, 4];
  expect(await draftOf(await started(twice), 1)).toEqual([71]);
});

test("a text that repeats itself is repeated as often as asked for", async () => {
  expect(await draftOf(await started([7, 1, 2, 3, 1, 2, 3]), 8)).toEqual([1, 2, 3, 1, 2, 3, 1, 2]);
  expect(await draftOf(await started([5, 5, 5]), 4)).toEqual([5, 5, 5, 5]);
});

test("longer matches are likelier before anything is measured, and what is measured counts", async () => {
  const drafter = await started([...numbers(1, 40), ...numbers(1, 5)]);
  expect(drafter.chance(3)).toBeGreaterThan(drafter.chance(0));
  // Pairs that were seen before, and every time go on otherwise.
  const pairs = await started(Array.from({ length: 40 }, (_, i) => [i, i, 1000 + i]).flat());
  pairs.accept(3);
  pairs.accept(3);
  const before = pairs.chance(0);
  for (let i = 4; i < 30; i++) {
    pairs.accept(2000 + i);
    pairs.accept(i);
    pairs.accept(i);
  }
  expect(pairs.chance(0)).toBeLessThan(before / 4);
  // It is found out without a draft that they go on as before.
  for (let i = 4; i < 30; i++) {
    pairs.accept(1000 + i);
    pairs.accept(i + 1);
    pairs.accept(i + 1);
  }
  expect(pairs.chance(0)).toBeGreaterThan(before);
});

test("every draft is what a search through the whole text finds, with few slots and long texts", async () => {
  const random = new Random(3);
  const text = Array.from({ length: 30 }, () => random.below(4));
  const drafter = await started(text, 3000);
  for (let step = 0; step < 2000; step++) {
    const match = drafter.chance(0) > 0;
    const [next] = await draftOf(drafter, 1);
    if (match) {
      // The last two tokens stand somewhere before it, or the last one, if these two are new.
      const [a, b] = text.slice(-2);
      const pairs = text.filter((_, i) => i > 1 && text[i - 2] === a && text[i - 1] === b);
      const singles = text.filter((_, i) => i > 0 && text[i - 1] === b);
      expect(pairs.length > 0 ? pairs : singles, `${a} ${b}`).toContain(next);
    }
    const token = random.below(4);
    text.push(token);
    drafter.accept(token);
  }
});

test("a text longer than it was told ends the drafts, and nothing else", async () => {
  const drafter = await started([1, 2, 3, 1], 6);
  drafter.accept(2);
  drafter.accept(3);
  drafter.accept(1);
  drafter.accept(2);
  expect(drafter.chance(0)).toBe(0);
});

test("another text begins with what was measured in those before", async () => {
  const kind = new NgramKind();
  const repeated = [...numbers(1, 30), ...numbers(1, 3)];
  const before = kind.start(repeated, 100).chance(0);
  const text = kind.start(repeated, 100);
  for (let i = 4; i < 25; i++) text.accept(i);
  expect(kind.start(repeated, 100).chance(0)).toBeGreaterThan(before);
  const other = kind.start(
    Array.from({ length: 90 }, (_, i) => i % 3),
    1000,
  );
  for (let i = 0; i < 300; i++) other.accept(i % 2 === 0 ? 1000 + i : i % 3);
  expect(kind.start(repeated, 100).chance(20)).toBeGreaterThan(0.3); // long matches are others
});

// The heap-based merge loop against the obvious one, on random vocabularies and texts.

import { describe, expect, it } from "vitest";
import { type Merge, Merger, PairTable } from "../../src/tokenizers/merge.ts";
import { randomSource } from "./texts.ts";

/** Scan for the best pair, leftmost among equals, merge it, and start again. */
function mergeSlowly(
  symbols: number[],
  resolve: (a: number, b: number) => Merge | undefined,
): number[] {
  const list = [...symbols];
  for (;;) {
    let best = -1;
    let merge: Merge | undefined;
    for (let i = 0; i + 1 < list.length; i++) {
      const found = resolve(list[i]!, list[i + 1]!);
      if (found && (!merge || found.rank < merge.rank)) {
        merge = found;
        best = i;
      }
    }
    if (!merge) return list;
    list.splice(best, 2, merge.symbol);
  }
}

describe("Merger", () => {
  it.each([1, 2, 3, 4, 5])("equals the slow loop (seed %i)", (seed) => {
    const random = randomSource(seed);
    const rules = new Map<string, Merge>();
    for (let symbol = 4; symbol < 60; symbol++) {
      const pair = [random(), random()].map((part) => Math.floor(part * symbol)).join();
      // Few ranks, so that ties are common: the leftmost pair must win them.
      rules.set(pair, { rank: Math.floor(random() * 8), symbol });
    }
    const resolve = (a: number, b: number): Merge | undefined => rules.get(`${a},${b}`);
    const merger = new Merger(new PairTable(resolve));
    for (let round = 0; round < 300; round++) {
      const length = Math.floor(random() * 80);
      const symbols = Array.from({ length }, () => Math.floor(random() * 4));
      const work = Int32Array.from(symbols);
      const count = merger.merge(work, length);
      expect([...work.subarray(0, count)]).toEqual(mergeSlowly(symbols, resolve));
    }
  });
});

describe("PairTable", () => {
  it("keeps every pair through growth, and asks once for each", () => {
    let asked = 0;
    const table = new PairTable((a, b) => {
      asked++;
      return (a + b) % 3 === 0 ? { rank: a, symbol: a + b } : undefined;
    });
    for (let pass = 0; pass < 2; pass++) {
      for (let a = 0; a < 200; a++) {
        for (let b = 0; b < 200; b++) {
          const slot = table.find(a, b);
          const expected = (a + b) % 3 === 0 ? [a, a + b] : [-1, -1];
          expect([table.entries[slot + 2], table.entries[slot + 3]]).toEqual(expected);
        }
      }
    }
    expect(asked).toBe(40_000);
  });
});

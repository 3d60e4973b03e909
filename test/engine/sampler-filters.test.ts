// The filters one by one: llama.cpp's own test vectors, and large random vocabularies against the
// slow sampler. Partial selection against a full sort.

import { describe, expect, test } from "vitest";
import { bestOfAll, selectBest, selectBestOfAll, sortBest } from "../../src/base/select-best.ts";
import {
  type Candidates,
  createCandidates,
  drawCandidate,
  keepMinP,
  keepTopK,
  keepTopP,
  keepTypical,
  resetCandidates,
} from "../../src/engine/sampler-filters.ts";
import { exactDistribution, off, randomLogits, softmax } from "./sampler-support.ts";

function candidatesOf(logits: Float32Array): Candidates {
  const candidates = createCandidates(logits.length);
  resetCandidates(candidates);
  return candidates;
}

function keptIds({ ids, count }: Candidates): number[] {
  return [...ids.subarray(0, count)];
}

// From llama.cpp, tests/test-sampling.cpp: probabilities in, probabilities left.
describe("llama.cpp's vectors", () => {
  const four = [0.1, 0.2, 0.3, 0.4];
  type Filter = typeof keepTopK;
  const vectors: [name: string, filter: Filter, value: number, input: number[], left: number[]][] =
    [
      ["top-k", keepTopK, 1, four, [1]],
      ["top-k", keepTopK, 3, four, [0.44444, 0.33333, 0.22222]],
      ["top-k", keepTopK, 0, four, four],
      ["top-p", keepTopP, 0, four, [1]],
      ["top-p", keepTopP, 0.7, four, [0.571429, 0.428571]],
      ["top-p", keepTopP, 0.8, four, [0.44444, 0.33333, 0.22222]],
      ["top-p", keepTopP, 1, four, four],
      ["min-p", keepMinP, 0, four, four],
      ["min-p", keepMinP, 0.24, four, four],
      ["min-p", keepMinP, 0.26, four, [0.2 / 0.9, 0.3 / 0.9, 0.4 / 0.9]],
      ["min-p", keepMinP, 0.49, four, [0.2 / 0.9, 0.3 / 0.9, 0.4 / 0.9]],
      ["min-p", keepMinP, 0.51, four, [0.3 / 0.7, 0.4 / 0.7]],
      ["min-p", keepMinP, 0.74, four, [0.3 / 0.7, 0.4 / 0.7]],
      ["min-p", keepMinP, 0.76, four, [1]],
      ["min-p", keepMinP, 1, four, [1]],
      ["typical", keepTypical, 0.5, [0.97, 0.01, 0.01, 0.01], [1]],
      ["typical", keepTypical, 0.5, [0.4, 0.2, 0.2, 0.2], [1 / 3, 1 / 3, 1 / 3]],
    ];

  test.each(vectors)("%s %o %d of %j", (_name, filter, value, input, left) => {
    const logits = Float32Array.from(input, Math.log);
    const candidates = candidatesOf(logits);
    filter(candidates, logits, value);
    const result = softmax(keptIds(candidates).map((id) => logits[id]!));
    expect(result).toHaveLength(left.length);
    for (const [i, p] of left.entries()) expect(result[i]).toBeCloseTo(p, 5);
  });
});

describe("a large vocabulary, flat and steep", () => {
  const shapes = [
    { size: 5000, spread: 1, seed: 1 },
    { size: 5000, spread: 12, seed: 2 },
    { size: 20000, spread: 4, seed: 3 },
  ];
  const filters = [
    { name: "topK", filter: keepTopK, values: [1, 7, 300, 4999] },
    { name: "topP", filter: keepTopP, values: [0.1, 0.5, 0.93] },
    { name: "typicalP", filter: keepTypical, values: [0.1, 0.5, 0.93] },
    { name: "minP", filter: keepMinP, values: [0.01, 0.3, 0.77] },
  ] as const;

  for (const shape of shapes) {
    const logits = randomLogits(shape.size, shape.spread, shape.seed);
    for (const { name, filter, values } of filters) {
      test.each(values)(`${shape.size} tokens, spread ${shape.spread}, ${name} %d`, (value) => {
        const candidates = candidatesOf(logits);
        filter(candidates, logits, value);
        const exact = exactDistribution([...logits], { ...off, [name]: value });
        const expected = exact.flatMap((p, id) => (p > 0 ? [id] : []));
        expect(keptIds(candidates).sort((a, b) => a - b)).toEqual(expected);
      });
    }
  }
});

test("filters can follow each other, and their record can be used again", () => {
  const logits = randomLogits(3000, 10, 9);
  const candidates = candidatesOf(logits);
  const runs = [1, 2].map(() => {
    resetCandidates(candidates);
    keepTopK(candidates, logits, 900);
    keepTypical(candidates, logits, 0.9);
    keepTopP(candidates, logits, 0.8);
    keepMinP(candidates, logits, 0.1);
    return keptIds(candidates).sort((a, b) => a - b);
  });
  const options = { ...off, topK: 900, typicalP: 0.9, topP: 0.8, minP: 0.1 };
  const exact = exactDistribution([...logits], options);
  expect(runs[0]).toEqual(exact.flatMap((p, id) => (p > 0 ? [id] : [])));
  expect(runs[1]).toEqual(runs[0]);
});

describe("drawCandidate", () => {
  test("splits [0, 1) by probability, in the order of the candidates", () => {
    const logits = Float32Array.from([0.5, 0.25, 0.25], Math.log);
    const at = (uniform: number) => drawCandidate(candidatesOf(logits), logits, 1, uniform);
    expect([0, 0.49, 0.51, 0.74, 0.76, 1 - 2 ** -53].map(at)).toEqual([0, 0, 1, 1, 2, 2]);
  });

  test("never gives a token of probability zero, at either end", () => {
    const never = Number.NEGATIVE_INFINITY;
    const logits = Float32Array.of(never, 1, never, 2, never);
    const at = (uniform: number) => drawCandidate(candidatesOf(logits), logits, 1, uniform);
    expect([0, 1 - 2 ** -53].map(at)).toEqual([1, 3]);
  });

  test("a temperature near zero gives the best, without overflow", () => {
    const logits = Float32Array.of(1, 80, 79.99);
    expect(drawCandidate(candidatesOf(logits), logits, 1e-300, 0.999)).toBe(1);
  });
});

describe("selectBest", () => {
  test("is the beginning of a full sort, for any k, with many equal keys", () => {
    for (let seed = 1; seed <= 40; seed++) {
      const keys = randomLogits(1 + seed * 13, seed / 4, seed);
      // Candidates in a scrambled order, and not all of them.
      const ids = Int32Array.from(keys.keys())
        .filter((id) => id % 5 !== 0)
        .sort((a, b) => ((a * 7919) % 1009) - ((b * 7919) % 1009));
      const sorted = [...ids].sort((a, b) => keys[b]! - keys[a]! || a - b);
      for (const k of [0, 1, 2, 10, ids.length - 1, ids.length, ids.length + 5]) {
        if (k < 0) continue;
        const out = new Int32Array(ids.length + 5).fill(-1);
        const found = selectBest(keys, ids, ids.length, k, out);
        expect([...out.subarray(0, found)]).toEqual(sorted.slice(0, k));
        expect(out[found]).toBe(-1);
      }
    }
  });

  test("takes the lower ids of equal keys", () => {
    const keys = new Float32Array(100).fill(3);
    const ids = Int32Array.from(keys.keys()).reverse();
    const out = new Int32Array(4);
    selectBest(keys, ids, 100, 4, out);
    expect([...out]).toEqual([0, 1, 2, 3]);
  });
});

describe("over all keys", () => {
  const infinity = Number.POSITIVE_INFINITY;

  test("selectBestOfAll and bestOfAll are the beginning of a full sort", () => {
    for (let seed = 1; seed <= 40; seed++) {
      const keys = randomLogits(seed * 7, seed / 4, seed).map((key) => key - seed / 8);
      keys[seed % keys.length] = -infinity;
      const sorted = [...keys.keys()].sort((a, b) => compareKeys(keys, a, b));
      expect(bestOfAll(keys)).toBe(sorted[0]);
      for (const k of [0, 1, 2, 10, keys.length - 1, keys.length, keys.length + 5]) {
        const out = new Int32Array(keys.length + 5).fill(-1);
        const found = selectBestOfAll(keys, k, out);
        expect([...out.subarray(0, found)]).toEqual(sorted.slice(0, k));
        expect(out[found]).toBe(-1);
      }
    }
  });

  test("sortBest is a full sort, signs and zeros included", () => {
    const keys = Float32Array.from({ length: 500 }, (_, id) => Math.sin(id * id) * 10 ** (id % 9));
    keys.set([0, -0, 0, -0, infinity, -infinity, 3, 3, -3, -3]);
    const ids = Int32Array.from(keys.keys()).sort(
      (a, b) => ((a * 7919) % 1009) - ((b * 7919) % 1009),
    );
    const sorted = [...ids].sort((a, b) => compareKeys(keys, a, b));
    sortBest(keys, ids, ids.length, new Float64Array(600));
    expect([...ids]).toEqual(sorted);
  });

  test.each([0, 1, 7, 8, 30, 99])("a NaN at %i is found alone", (at) => {
    for (const others of [-5, 5]) {
      const keys = new Float32Array(100).map((_, id) => others * id);
      keys[at] = Number.NaN;
      const out = new Int32Array(20);
      expect(bestOfAll(keys)).toBe(at);
      expect(selectBestOfAll(keys, 20, out)).toBe(1);
      expect(out[0]).toBe(at);
    }
  });

  function compareKeys(keys: Float32Array, a: number, b: number): number {
    if (keys[a] === keys[b]) return a - b;
    return keys[a]! > keys[b]! ? -1 : 1;
  }
});

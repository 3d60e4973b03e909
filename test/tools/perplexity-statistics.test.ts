// Means, error bars and percentiles of a perplexity run, against the same worked out the long way.

import { expect, test } from "vitest";
import {
  addScores,
  compareWithBase,
  newSums,
  percentile,
  runningPerplexity,
} from "../../src/tools/perplexity/statistics.ts";
import { Random } from "../support/random.ts";

const count = 400;
const random = new Random(6);
const logprobs = Float64Array.from({ length: count }, () => -3 * random.unit());
const baseLogprobs = logprobs.map((value) => Math.min(0, value + 0.2 * random.normal() + 0.05));
const divergences = Float64Array.from({ length: count }, () => random.unit() ** 4);
const top = Int32Array.from({ length: count }, (_, i) => i);
const baseTop = top.map((id) => (id % 8 === 0 ? -1 : id));

function average(values: Iterable<number>): number {
  const list = [...values];
  return list.reduce((sum, value) => sum + value, 0) / list.length;
}

/** Of the mean: the square root of (mean square deviation / (n - 1)). */
function standardError(values: Iterable<number>): number {
  const list = [...values];
  const middle = average(list);
  return Math.sqrt(average(list.map((value) => (value - middle) ** 2)) / (list.length - 1));
}

function sumsOfHalves(withBase: boolean) {
  const sums = newSums(withBase);
  for (const [from, to] of [
    [0, 150],
    [150, count],
  ] as const) {
    addScores(sums, {
      logprobs: logprobs.slice(from, to),
      top: top.slice(from, to),
      base: {
        logprobs: baseLogprobs.slice(from, to),
        top: baseTop.slice(from, to),
        divergences: divergences.slice(from, to),
      },
    });
  }
  return sums;
}

test("perplexity and its error", () => {
  const { perplexity, scored, base } = runningPerplexity(sumsOfHalves(false));
  const expected = Math.exp(-average(logprobs));
  expect(scored).toBe(count);
  expect(perplexity.value).toBeCloseTo(expected, 10);
  expect(perplexity.error).toBeCloseTo(expected * standardError(logprobs), 10);
  expect(base).toBeUndefined();
});

test("against a base: the ratio's error is that of the differences", () => {
  const compared = compareWithBase(sumsOfHalves(true))!;
  const differences = logprobs.map((value, i) => baseLogprobs[i]! - value);
  const ratio = Math.exp(average(differences));
  expect(compared.ratio.value).toBeCloseTo(ratio, 10);
  expect(compared.ratio.error).toBeCloseTo(ratio * standardError(differences), 8);
  expect(compared.perplexity.value).toBeCloseTo(Math.exp(-average(baseLogprobs)), 10);
  expect(compared.sameTop.value).toBe(350 / 400);
  expect(compared.sameTop.error).toBeCloseTo(
    standardError([...top].map((id, i) => Number(id === baseTop[i]))),
    10,
  );
});

test("divergence and change of probability", () => {
  const compared = compareWithBase(sumsOfHalves(true))!;
  const sorted = [...divergences].sort((a, b) => a - b);
  expect(compared.divergence.value).toBeCloseTo(average(divergences), 10);
  expect(compared.divergence.error).toBeCloseTo(standardError(divergences), 10);
  expect(compared.divergence.median).toBeCloseTo((sorted[199]! + sorted[200]!) / 2, 10);
  expect(compared.divergence.max).toBe(sorted[399]);
  const changes = [...logprobs].map((value, i) => Math.exp(value) - Math.exp(baseLogprobs[i]!));
  const squares = changes.map((change) => change ** 2);
  const rms = Math.sqrt(average(squares));
  expect(compared.change.mean.value).toBeCloseTo(average(changes), 10);
  expect(compared.change.rms.value).toBeCloseTo(rms, 10);
  expect(compared.change.rms.error).toBeCloseTo(standardError(squares) / (2 * rms), 10);
});

test("percentiles lie between neighbours, in proportion", () => {
  const values = Float64Array.of(1, 2, 4);
  expect(percentile(values, 0)).toBe(1);
  expect(percentile(values, 0.75)).toBe(3);
  expect(percentile(values, 1)).toBe(4);
});

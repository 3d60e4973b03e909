// Statistics: what the sampler draws has the distribution that its definition says, filter by filter.
//
// Seeds are fixed, so a pass is a pass. 20,000 draws a case; the right distribution is within four
// standard deviations, and the last test shows that wrong ones are far outside.
// Held against: the definition of each filter.

import { expect, test } from "vitest";
import type { SamplingOptions } from "../../src/api/api.ts";
import { createSampler, resolveSampling } from "../../src/engine/sampler.ts";
import { exactDistribution, misfit, off } from "./sampler-support.ts";

const logits = [2.1, -0.5, 1.4, 0.3, 3.0, 1.4, -2.2, 0.9, 2.6, -1.0, 0.0, 1.9];
const draws = 20_000;
const limit = 4;

function drawCounts(options: SamplingOptions): number[] {
  const sampler = createSampler(resolveSampling(options), logits.length);
  const scratch = new Float32Array(logits.length);
  const counts = new Array<number>(logits.length).fill(0);
  for (let i = 0; i < draws; i++) {
    scratch.set(logits);
    counts[sampler.sample(scratch).id]!++;
  }
  return counts;
}

const cases: { title: string; options: SamplingOptions; survivors: number }[] = [
  { title: "plain softmax", options: { seed: 11 }, survivors: 12 },
  { title: "hot", options: { temperature: 1.7, seed: 12 }, survivors: 12 },
  { title: "cold", options: { temperature: 0.35, seed: 13 }, survivors: 12 },
  { title: "top-k", options: { topK: 3, seed: 14 }, survivors: 3 },
  { title: "top-k that cuts between equal logits", options: { topK: 5, seed: 15 }, survivors: 5 },
  { title: "typical", options: { typicalP: 0.6, seed: 16 }, survivors: 4 },
  { title: "top-p", options: { topP: 0.7, seed: 17 }, survivors: 4 },
  { title: "min-p", options: { minP: 0.3, seed: 18 }, survivors: 4 },
  { title: "bias", options: { logitBias: { 6: 5, 4: -3 }, seed: 19 }, survivors: 12 },
  {
    title: "a forbidden token",
    options: { logitBias: { 4: Number.NEGATIVE_INFINITY }, seed: 20 },
    survivors: 11,
  },
  {
    title: "everything at once",
    options: {
      topK: 9,
      typicalP: 0.95,
      topP: 0.9,
      minP: 0.1,
      temperature: 1.5,
      logitBias: { 0: 0.4 },
      seed: 21,
    },
    survivors: 6,
  },
  {
    title: "temperature after the filters",
    options: { topP: 0.8, minP: 0.2, temperature: 3, seed: 22 },
    survivors: 5,
  },
];

test.each(cases)("$title", ({ options, survivors }) => {
  const all = { ...off, ...options };
  const exact = exactDistribution(logits, all);
  expect(exact.filter((p) => p > 0)).toHaveLength(survivors);
  expect(misfit(drawCounts(all), exact)).toBeLessThan(limit);
});

test("the measure tells a wrong chain from the right one", () => {
  const counts = drawCounts({ ...off, topP: 0.8, temperature: 3, seed: 22 });
  const noTemperature = exactDistribution(logits, { ...off, topP: 0.8 });
  const otherTopP = exactDistribution(logits, { ...off, topP: 0.9, temperature: 3 });
  const temperatureFirst = exactDistribution(
    logits.map((logit) => logit / 3),
    { ...off, topP: 0.8 },
  );
  expect(misfit(counts, noTemperature)).toBeGreaterThan(20);
  expect(misfit(counts, otherTopP)).toBeGreaterThan(20);
  expect(misfit(counts, temperatureFirst)).toBeGreaterThan(20);
});

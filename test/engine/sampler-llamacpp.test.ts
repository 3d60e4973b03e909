// The steps of the sampler against llama.cpp: the vectors of its tests/test-sampling.cpp, and numbers that its own
// functions gave for the logits of `reference` (August 2026; src/llama-sampler.cpp compiled by itself).

import { describe, expect, test } from "vitest";
import type { SamplingOptions } from "../../src/api/api.ts";
import { createDry, type DryBreaker } from "../../src/engine/dry.ts";
import { findBreakers } from "../../src/engine/dry-breakers.ts";
import { Mirostat } from "../../src/engine/mirostat.ts";
import { createPenalties } from "../../src/engine/penalties.ts";
import { createSampler, resolveSampling } from "../../src/engine/sampler.ts";
import {
  type Candidates,
  createCandidates,
  dropTopChoices,
  keepMinP,
  keepTopK,
  keepTopP,
  keepTypical,
} from "../../src/engine/sampler-filters.ts";
import {
  dynamicTemperature,
  forbidFarBelow,
  scaleLogits,
} from "../../src/engine/sampler-logits.ts";
import { openTokenizer } from "../../src/index.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { randomLogits, softmax } from "./sampler-support.ts";

function logitsOf(probabilities: readonly number[]): Float32Array {
  return Float32Array.from(probabilities, Math.log);
}

/** What is left, by id, as probabilities. */
function left({ ids, count }: Candidates, logits: Float32Array): number[] {
  return softmax([...ids.subarray(0, count)].map((id) => logits[id]!));
}

function expectClose(got: readonly number[], expected: readonly number[]): void {
  expect(got).toHaveLength(expected.length);
  expected.forEach((p, i) => {
    expect(got[i]).toBeCloseTo(p, 5);
  });
}

const four = [0.1, 0.2, 0.3, 0.4];
const fifth = [0.2, 0.2, 0.2, 0.2, 0.2];

describe("llama.cpp's vectors", () => {
  test.each([
    [1, four],
    [0, [1]],
  ])("temperature %d", (temperature, expected) => {
    const logits = logitsOf(four);
    const candidates = createCandidates(4);
    scaleLogits(candidates, logits, temperature);
    expectClose(left(candidates, logits), expected);
  });

  test.each([
    [0.09, [0.1]],
    [0.19, [0.2, 0.1]],
    [0.29, [0.3, 0.2, 0.1]],
    [0.39, [0.4, 0.3, 0.2, 0.1]],
  ])("xtc, threshold %d", (threshold, expected) => {
    const logits = logitsOf([0.4, 0.3, 0.2, 0.1]);
    const candidates = createCandidates(4);
    dropTopChoices(candidates, logits, threshold);
    const kept = [...candidates.ids.subarray(0, candidates.count)];
    expectClose(
      kept.map((id) => Math.exp(logits[id]!)),
      expected,
    );
  });

  test.each([
    [1, [0, 0, 0.428571, 0.571429]],
    [0, four],
    [3, four],
  ])("top-n-sigma %d", (n, expected) => {
    const logits = logitsOf(four);
    const candidates = createCandidates(4);
    forbidFarBelow(candidates, logits, n);
    expectClose(left(candidates, logits), expected);
  });

  test.each([
    [[0], 50, 0, [0, 0.25, 0.25, 0.25, 0.25]],
    [[0, 1, 2], 50, 0, [0, 0, 0, 0.5, 0.5]],
    [[0, 1, 2, 0, 0], 50, 0, [0, 0, 0, 0.5, 0.5]],
    [[0], 1, 5, [0.000011, 0.249997, 0.249997, 0.249997, 0.249997]],
    [[0, 1, 2], 1, 5, [0.000023, 0.000023, 0.000023, 0.499966, 0.499966]],
    [[0, 1, 2, 0, 0], 1, 5, [0, 0.000023, 0.000023, 0.499977, 0.499977]],
  ])("penalties after %j", (text, repeatPenalty, other, expected) => {
    const settings = {
      repeatPenalty,
      repeatLastN: text.length,
      frequencyPenalty: other,
      presencePenalty: other,
    };
    const penalties = createPenalties(settings, 5)!;
    for (const id of text) penalties.accept(id);
    const logits = logitsOf(fifth);
    penalties.apply(logits);
    expectClose(softmax(logits), expected);
  });

  const quarter = [0.25, 0.25, 0.25, 0.25];
  const dryVectors: [number[], number[], number[], number, number, DryBreaker[]][] = [
    [quarter, [0, 1], quarter, 1, 2, []],
    [quarter, [0, 1, 2, 0, 1], [0.296923, 0.296923, 0.109232, 0.296923], 1, 2, []],
    [fifth, [0, 1, 3, 4, 0, 1], fifth, 1, 2, [{ head: 3, tail: [] }]],
    [fifth, [0, 1, 2, 0, 1], [0.241818, 0.241818, 0.032727, 0.241818, 0.241818], 2, 2, []],
    [fifth, [0, 1, 2, 3, 4, 0, 1], fifth, 1, 4, []],
  ];
  test.each(dryVectors)(
    "dry: %j after %j",
    (input, text, expected, multiplier, allowed, breakers) => {
      const settings = {
        dryMultiplier: multiplier,
        dryBase: 1.1,
        dryAllowedLength: allowed,
        dryPenaltyLastN: text.length,
      };
      const dry = createDry(settings, input.length, breakers)!;
      for (const id of text) dry.accept(id);
      const logits = logitsOf(input);
      dry.apply(logits);
      expectClose(softmax(logits), expected);
    },
  );

  // test_sampler_queue: the logit of token n is ln(n).
  test.each([
    ["k", 100, 1, 1, 100],
    ["p", 10_000, 0.8, 1, 5528],
    ["m", 10_000, 1, 0.1, 9000],
    ["kp", 100, 0.8, 0.1, 80],
    ["km", 100, 0.8, 0.1, 100],
    ["pk", 100, 0.8, 0.1, 100],
    ["mk", 100, 0.8, 0.1, 100],
    ["pm", 100, 0.8, 0.1, 5528],
  ])("%s one after the other", (steps, k, p, m, expected) => {
    const logits = Float32Array.from({ length: 10_000 }, (_, id) => Math.log(id));
    const candidates = createCandidates(10_000);
    for (const step of steps) {
      if (step === "k") keepTopK(candidates, logits, k);
      else if (step === "p") keepTopP(candidates, logits, p);
      else keepMinP(candidates, logits, m);
    }
    expect(candidates.count).toBe(expected);
  });
});

describe("what llama.cpp's functions gave", () => {
  const size = 1000;
  const reference = (): Float32Array =>
    Float32Array.from({ length: size }, (_, i) => {
      const hash = Math.imul(i, 2654435761) >>> 0;
      return ((hash >>> 8) % 4001) / 250 - 8;
    });

  type Batch = [count: number, id: number, bound: number];
  const mirostats: [version: number, tau: number, steps: Batch[]][] = [
    [
      1,
      2,
      [
        [1, 7, 4.2],
        [1, 7, 4.4],
        [1, 7, 4.599999],
        [1, 7, 4.799999],
      ],
    ],
    [
      1,
      5,
      [
        [574, 7, 9.895908],
        [147, 278, 9.801193],
        [43, 468, 9.767694],
        [27, 739, 9.779468],
        [32, 929, 9.748345],
        [21, 482, 9.79007],
      ],
    ],
    [
      2,
      2,
      [
        [1, 7, 4.2],
        [1, 7, 4.4],
      ],
    ],
    [
      2,
      5,
      [
        [173, 7, 9.904819],
        [171, 278, 9.805339],
        [164, 468, 9.682775],
        [164, 739, 9.555017],
        [152, 929, 9.406011],
        [152, 91, 9.233344],
      ],
    ],
  ];
  test.each(mirostats)("mirostat %d, tau %d", (mirostat, mirostatTau, steps) => {
    const state = new Mirostat(resolveSampling({ mirostat, mirostatTau }), size);
    for (const [count, id, bound] of steps) {
      const logits = reference();
      const candidates = createCandidates(size);
      state.cut(candidates, logits);
      expect(candidates.count).toBe(count);
      const ids = [...candidates.ids.subarray(0, candidates.count)];
      expect(ids).toContain(id);
      state.observe(left(candidates, logits)[ids.indexOf(id)]!);
      expect(state.bound).toBeCloseTo(bound, 4);
    }
  });

  test.each([
    [0.3, 1, 0.944752],
    [0.3, 2, 0.829674],
    [0.8, 1, 1.186006],
    [0.8, 2, 0.879132],
  ])("a temperature of 0.8 that varies by %d, exponent %d", (range, exponent, expected) => {
    const temperature = dynamicTemperature(
      createCandidates(size),
      reference(),
      0.8,
      range,
      exponent,
    );
    expect(temperature).toBeCloseTo(expected, 5);
  });

  test.each([
    [0.5, 151],
    [1, 289],
    [1.5, 428],
  ])("top-n-sigma %d", (n, allowed) => {
    const logits = reference();
    forbidFarBelow(createCandidates(size), logits, n);
    expect(logits.filter(Number.isFinite)).toHaveLength(allowed);
  });

  test.each([
    [0.2, 34],
    [0.5, 81],
    [0.9, 143],
  ])("typical %d", (p, count) => {
    const candidates = createCandidates(size);
    keepTypical(candidates, reference(), p);
    expect(candidates.count).toBe(count);
  });
});

describe("in the chain", () => {
  const draw = (options: SamplingOptions, count: number): number[] => {
    const sampler = createSampler(resolveSampling({ seed: 5, ...options }), 200);
    return Array.from({ length: count }, () => {
      const { id } = sampler.sample(randomLogits(200, 8, 3));
      sampler.accept(id);
      return id;
    });
  };

  test.each([
    { xtcProbability: 0.5, xtcThreshold: 0.02 },
    { topNSigma: 1 },
    { mirostat: 1 },
    { mirostat: 2, mirostatTau: 3 },
    { dynatempRange: 0.5 },
    { dryMultiplier: 5, dryAllowedLength: 0 },
    { typicalP: 0.6, samplers: ["temperature", "typ_p"] },
  ])("%j: the same seed gives the same tokens, and others than without it", (options) => {
    const open = { topK: 0, topP: 1, minP: 0, temperature: 1.2 };
    expect(draw({ ...open, ...options }, 60)).toEqual(draw({ ...open, ...options }, 60));
    expect(draw({ ...open, ...options }, 60)).not.toEqual(draw(open, 60));
  });

  test("at their defaults they change nothing", () => {
    const off = {
      topNSigma: 0,
      xtcProbability: 0,
      mirostat: 0,
      dynatempRange: 0,
      dryMultiplier: 0,
      samplers: "edskypmxt",
    };
    expect(draw(off, 60)).toEqual(draw({}, 60));
  });

  test("the order is the one that is asked for, and what is left out is not done", () => {
    // A temperature before top-p flattens what top-p looks at.
    const options = { topK: 0, minP: 0, topP: 0.3, temperature: 3 };
    const first = new Set(draw({ ...options, samplers: ["temperature", "top-p"] }, 300));
    const last = new Set(draw({ ...options, samplers: "pt" }, 300));
    expect(first.size).toBeGreaterThan(last.size * 2);
    expect(new Set(draw({ topK: 1, samplers: [] }, 50)).size).toBeGreaterThan(5);
    expect(draw({ topK: 1, samplers: ["Top_K"] }, 5)).toEqual(draw({ topK: 1 }, 5));
  });

  test("greedy: XTC takes the best away before the temperature comes", () => {
    const logits = () => logitsOf([0.4, 0.3, 0.2, 0.1]);
    const best = (options: SamplingOptions) =>
      createSampler(resolveSampling({ temperature: 0, ...options }), 4).sample(logits()).id;
    expect(best({})).toBe(0);
    expect(best({ xtcProbability: 1, xtcThreshold: 0.15 })).toBe(2);
    expect(best({ mirostat: 2 })).toBe(0);
  });

  test("DRY ends a loop", () => {
    const sampler = createSampler(
      resolveSampling({ temperature: 0, dryMultiplier: 2, dryPenaltyLastN: -1 }),
      4,
    );
    const text: number[] = [];
    for (let i = 0; i < 3000; i++) {
      const logits = Float32Array.of(0, 0, 0, 0);
      logits[i % 3] = 1; // 0 1 2 0 1 2 ...
      const { id } = sampler.sample(logits);
      sampler.accept(id);
      text.push(id);
    }
    expect(text.slice(0, 5)).toEqual([0, 1, 2, 0, 1]);
    expect(text.slice(5, 20)).not.toEqual(Array.from({ length: 15 }, (_, i) => (i + 5) % 3));
  });
});

test("breakers: tokens that contain the text, or end with its beginning", async () => {
  const file = await tinyFile();
  const tokenizer = await openTokenizer(file.path);
  const found = await findBreakers(tokenizer as never, ["at", "\n"], {
    yieldThread: async () => {},
  });
  const shown = found.map(({ head, tail }) => [
    tokenizer.decode([head], { special: true }),
    tokenizer.decode(tail),
  ]);
  expect(shown).toEqual(
    expect.arrayContaining([
      ["cat", ""],
      ["sat", ""],
      ["a", "t"],
      ["\n", ""],
    ]),
  );
  expect(shown).not.toContainEqual(["the", ""]);
  file.remove();
});

// The sampler as the engine sees it: greedy, seeds, penalties, log-probabilities, and what it refuses.

import { describe, expect, test } from "vitest";
import type { SamplingOptions } from "../../src/api/api.ts";
import { LanternError } from "../../src/base/errors.ts";
import { createRng, MersenneTwister } from "../../src/engine/rng.ts";
import { createSampler, resolveSampling } from "../../src/engine/sampler.ts";
import { samplingOptionNames } from "../../src/engine/sampling-options.ts";
import { off, randomLogits, softmax } from "./sampler-support.ts";

function sampleMany(options: SamplingOptions, logits: readonly number[], count: number): number[] {
  const sampler = createSampler(resolveSampling(options), logits.length);
  return Array.from({ length: count }, () => {
    const { id } = sampler.sample(Float32Array.from(logits));
    sampler.accept(id);
    return id;
  });
}

/** The logits as the chain leaves them: penalties and bias are applied in place. */
function penalized(options: SamplingOptions, logits: number[], history: number[]): number[] {
  const sampler = createSampler(resolveSampling({ ...options, temperature: 0 }), logits.length);
  for (const id of history) sampler.accept(id);
  const changed = Float32Array.from(logits);
  sampler.sample(changed);
  return [...changed];
}

describe("greedy", () => {
  test("is the largest logit, the lowest id of equal ones", () => {
    expect(sampleMany({ temperature: 0 }, [1, 5, 3, 5, -1], 3)).toEqual([1, 1, 1]);
  });

  test("comes after penalties and bias", () => {
    expect(sampleMany({ temperature: 0, logitBias: { 2: 10 } }, [1, 5, 3], 1)).toEqual([2]);
    expect(sampleMany({ temperature: 0, repeatPenalty: 4 }, [1, 5, 3], 3)).toEqual([1, 2, 1]);
  });

  test("ignores the filters", () => {
    const options = { temperature: 0, typicalP: 0.01, topK: 1, minP: 1 };
    expect(sampleMany(options, [0, 0.1, 0.2, 3], 1)).toEqual([3]);
  });
});

describe("seed", () => {
  const logits = Array.from({ length: 500 }, (_, id) => Math.sin(id));

  test("the same seed gives the same tokens, another seed others", () => {
    const options = { seed: 42, repeatPenalty: 1.1 };
    const first = sampleMany(options, logits, 100);
    expect(sampleMany(options, logits, 100)).toEqual(first);
    expect(sampleMany({ ...options, seed: 43 }, logits, 100)).not.toEqual(first);
    expect(new Set(first).size).toBeGreaterThan(10);
  });

  // Drawn once, with every list sorted in full: however the sampler finds its candidates, a seed keeps its text.
  // biome-ignore format: a table
  const drawn: [SamplingOptions, number[]][] = [
    [{ temperature: 0 }, [497, 133, 3, 20, 278, 362, 139, 106, 13, 623]],
    [{}, [6227, 7896, 877, 8026, 2223, 3119, 3983, 4079, 6143, 8784]],
    [off, [19929, 18511, 2569, 19991, 4648, 7986, 7668, 13352, 18575, 17127]],
    [{ ...off, topP: 0.95 }, [16802, 18222, 11208, 4649, 10589, 5233, 4283, 8058, 17874, 11305]],
    [{ ...off, topK: 40, topP: 0.95, temperature: 0.8, repeatPenalty: 1.1, presencePenalty: 0.1, frequencyPenalty: 0.1 }, [6227, 7896, 877, 8026, 2223, 3119, 3983, 4079, 6143, 8784]],
    [{ ...off, topK: 700, typicalP: 0.9 }, [6818, 16265, 7099, 7731, 14662, 6050, 998, 350, 2924, 12268]],
    [{ ...off, minP: 0.3 }, [19929, 18442, 2662, 19994, 4671, 7973, 7613, 13387, 18492, 17182]],
    [{ ...off, topP: 0.5, typicalP: 0.8 }, [6988, 18267, 8940, 5549, 15533, 7290, 6687, 11957, 18243, 10692]],
    [{ ...off, topK: 19999, topP: 0.2, minP: 0.5 }, [5593, 2132, 9422, 2628, 14579, 3158, 2112, 13950, 2004, 3318]],
  ];
  test.each(drawn)("%j draws what it always drew", (options, ids) => {
    const sampler = createSampler(resolveSampling({ seed: 1, ...options }), 20_000);
    const got = ids.map((_, i) => {
      const { id } = sampler.sample(randomLogits(20_000, 12, i + 1));
      sampler.accept(id);
      return id;
    });
    expect(got).toEqual(ids);
  });

  test("without one, two samplers differ, and say which they took", () => {
    const settings = [1, 2].map(() => resolveSampling({}));
    expect(settings[0]!.seed).not.toBe(settings[1]!.seed);
    expect(createSampler(settings[0]!, 10).seed).toBe(settings[0]!.seed);
  });

  test("a seed of 53 bits counts in full", () => {
    expect(createRng(2 ** 52).uniform()).not.toBe(createRng(0).uniform());
    expect(createRng(2 ** 52).uniform()).not.toBe(createRng(2 ** 51).uniform());
  });
});

/** The second number of a seed. */
function createSecond(seed: number): number {
  const rng = createRng(seed);
  rng.uniform();
  return rng.uniform();
}

describe("generator", () => {
  test("is std::mt19937: the standard names its 10000th number, for the seed 5489", () => {
    const rng = new MersenneTwister(5489);
    for (let i = 1; i < 10_000; i++) rng.next();
    expect(rng.next()).toBe(4123659995);
  });

  test("a seed of two words is Python's, which seeds so, too", () => {
    const rng = new MersenneTwister(2 ** 32 * 5 + 7);
    expect([rng.next(), rng.next(), rng.next()]).toEqual([334492092, 130243341, 731690660]);
  });

  test("a double is two words, the first one the lower", () => {
    const words = new MersenneTwister(42);
    const [low, high] = [words.next(), words.next()];
    expect(createRng(42).uniform()).toBe((low + high * 2 ** 32) / 2 ** 64);
  });

  test("a number that was foreseen is the one that is drawn", () => {
    const [rng, plain] = [createRng(7), createRng(7)];
    const numbers = Array.from({ length: 60 }, () => plain.uniform());
    let drawn = 0;
    for (const after of [0, 3, 1, 5, 0, 0, 7, 2, 7, 7]) {
      expect(rng.foresee(after)).toBe(numbers[drawn + after]);
      expect(rng.foresee(0)).toBe(numbers[drawn]);
      for (let i = 0; i < after; i++) expect(rng.uniform()).toBe(numbers[drawn++]);
    }
    expect(drawn).toBe(32);
    expect(() => rng.foresee(8)).toThrow("up to 8");
  });

  test("a sampler says how it will draw where a device can do the same", () => {
    const drawOf = (options: SamplingOptions) => {
      const sampler = createSampler(resolveSampling({ seed: 7, ...options }), 100);
      return { draw: sampler.draw, sampler };
    };
    const usual = { temperature: 0.8, topK: 40, topP: 0.9, minP: 0.05 };
    const { draw, sampler } = drawOf(usual);
    expect(draw).toMatchObject(usual);
    const plain = createRng(7);
    expect([draw!.uniform(0), draw!.uniform(1)]).toEqual([plain.uniform(), plain.uniform()]);
    sampler.sample(Float32Array.from({ length: 100 }, (_, id) => id / 9));
    expect(draw!.uniform(0)).toBe(createSecond(7));
    expect(drawOf({ temperature: 0 }).draw).toMatchObject({ temperature: 0 });
    const adjusted = { ...usual, repeatPenalty: 1.2, presencePenalty: -1, logitBias: { 3: 1 } };
    expect(drawOf(adjusted).draw).toMatchObject({
      ...usual,
      adjustment: { repeat: 1.2, frequency: 0, presence: -1, window: 64 },
    });
    expect(drawOf({ temperature: 0, logitBias: { 3: 1 } }).draw).toMatchObject({
      adjustment: { repeat: 1, frequency: 0, presence: 0, window: 0 },
    });
    expect(drawOf(usual).draw!.adjustment).toBe(undefined);
    const others: SamplingOptions[] = [
      { ...usual, topK: 0 },
      { ...usual, typicalP: 0.5 },
      { ...usual, xtcProbability: 0.5, xtcThreshold: 0.1 },
      { ...usual, dynatempRange: 0.3 },
      { ...usual, mirostat: 2 },
      { ...usual, dryMultiplier: 1 },
      { temperature: 0, dryMultiplier: 1 },
    ];
    for (const options of others)
      expect(drawOf(options).draw, JSON.stringify(options)).toBe(undefined);
  });

  test("uniform numbers fill [0, 1) evenly", () => {
    const rng = createRng(5);
    const bins = new Array<number>(16).fill(0);
    for (let i = 0; i < 16_000; i++) bins[Math.floor(rng.uniform() * 16)]!++;
    for (const count of bins) expect(Math.abs(count - 1000)).toBeLessThan(150);
  });
});

describe("penalties", () => {
  test("repetition divides positive logits and multiplies negative ones, once per token", () => {
    const result = penalized({ repeatPenalty: 2 }, [4, -4, 0, 8, 4], [0, 1, 2, 0]);
    expect(result).toEqual([2, -8, 0, 8, 4]);
  });

  test("frequency counts every time, presence once", () => {
    const options = { frequencyPenalty: 0.5, presencePenalty: 0.25 };
    // 0 three times: 4 - 1.5 - 0.25. 2 once: 1 - 0.5 - 0.25.
    expect(penalized(options, [4, 4, 1], [0, 0, 2, 0])).toEqual([2.25, 4, 0.25]);
  });

  test("bias first, then repetition, then frequency and presence", () => {
    const options = {
      repeatPenalty: 2,
      frequencyPenalty: 1,
      presencePenalty: 0.5,
      logitBias: { 1: 100 },
    };
    // (6 + 100) / 2 - 2 * 1 - 0.5
    expect(penalized(options, [0, 6, 0], [1, 1])).toEqual([0, 50.5, 0]);
  });

  test("negative penalties encourage", () => {
    expect(penalized({ presencePenalty: -1 }, [1, 1], [1])).toEqual([1, 2]);
  });

  test.each([
    [0, [4, 4, 4]],
    [1, [4, 4, 2]],
    [2, [4, 2, 2]],
    [3, [2, 2, 2]],
    [-1, [2, 2, 2]],
  ])("a window of %d tokens", (repeatLastN, expected) => {
    const options = { repeatPenalty: 2, repeatLastN };
    expect(penalized(options, [4, 4, 4], [0, 1, 2])).toEqual(expected);
  });

  test("tokens leave the window as others come, over thousands of tokens", () => {
    const vocab = 50;
    const history = Array.from({ length: 5000 }, (_, i) => (i * i * 7 + i) % vocab);
    for (const repeatLastN of [1, 64, 1024, 1500, 4999, 100_000, -1]) {
      const window = repeatLastN === -1 ? history : history.slice(-repeatLastN);
      const expected = Array.from({ length: vocab }, (_, id) => {
        const count = window.filter((seen) => seen === id).length;
        return count > 0 ? 1 - count : 1;
      });
      const options = { frequencyPenalty: 1, repeatLastN };
      expect(penalized(options, new Array<number>(vocab).fill(1), history)).toEqual(expected);
    }
  });

  // From llama.cpp, tests/test-sampling.cpp: five tokens of probability 0.2, the tokens seen, what is left.
  test.each([
    [50, 0, [0], [0, 0.25, 0.25, 0.25, 0.25]],
    [50, 0, [0, 1, 2], [0, 0, 0, 0.5, 0.5]],
    [50, 0, [0, 1, 2, 0, 0], [0, 0, 0, 0.5, 0.5]],
    [1, 5, [0], [0.000011, 0.249997, 0.249997, 0.249997, 0.249997]],
    [1, 5, [0, 1, 2], [0.000023, 0.000023, 0.000023, 0.499966, 0.499966]],
    [1, 5, [0, 1, 2, 0, 0], [0, 0.000023, 0.000023, 0.499977, 0.499977]],
  ])("llama.cpp's vector: repeat %d, others %d, seen %j", (repeat, other, seen, expected) => {
    const options = {
      repeatPenalty: repeat,
      frequencyPenalty: other,
      presencePenalty: other,
      repeatLastN: seen.length,
    };
    const logits = new Array<number>(5).fill(Math.log(0.2));
    const result = softmax(penalized(options, logits, seen));
    for (const [id, p] of expected.entries()) expect(result[id]).toBeCloseTo(p, 5);
  });
});

describe("log-probabilities", () => {
  const logits = [1, 4, 2, 4, -3, 0];
  const exact = softmax(logits).map(Math.log);

  test("are the model's own, whatever penalties, bias and temperature do", () => {
    const options = { temperature: 0, logitBias: { 2: 50, 1: -50 } };
    const sampler = createSampler(resolveSampling(options), 6, { logprobs: 3 });
    const { id, logprob, top } = sampler.sample(Float32Array.from(logits));
    expect(id).toBe(2);
    expect(logprob).toBeCloseTo(exact[2]!, 6);
    expect(top.map((entry) => entry.id)).toEqual([1, 3, 2]);
    for (const entry of top) expect(entry.logprob).toBeCloseTo(exact[entry.id]!, 6);
  });

  test("0 alternatives: only the chosen token's", () => {
    const sampler = createSampler(resolveSampling({ temperature: 0 }), 6, { logprobs: 0 });
    const { logprob, top } = sampler.sample(Float32Array.from(logits));
    expect(logprob).toBeCloseTo(exact[1]!, 6);
    expect(top).toEqual([]);
  });

  test("more than the vocabulary: all of it", () => {
    const sampler = createSampler(resolveSampling({ temperature: 0 }), 6, { logprobs: 100 });
    const { top } = sampler.sample(Float32Array.from(logits));
    expect(top.map((entry) => entry.id)).toEqual([1, 3, 2, 0, 5, 4]);
  });

  test("are not computed unless asked for", () => {
    const sampler = createSampler(resolveSampling({ temperature: 0 }), 6);
    expect(sampler.sample(Float32Array.from(logits))).toEqual({
      id: 1,
      logprob: Number.NaN,
      top: [],
    });
  });

  test("large logits do not overflow", () => {
    const sampler = createSampler(resolveSampling({ temperature: 0 }), 2, { logprobs: 1 });
    expect(sampler.sample(Float32Array.of(1e30, 1e30)).logprob).toBeCloseTo(-Math.LN2, 6);
  });
});

describe("refuses", () => {
  const sampling = (logits: number[], options: SamplingOptions = {}) => {
    const sampler = createSampler(resolveSampling({ ...off, ...options }), logits.length);
    return () => sampler.sample(Float32Array.from(logits));
  };

  test.each([0, 0.8])("NaN and infinite logits, at temperature %d", (temperature) => {
    const options = { temperature };
    expect(sampling([1, Number.NaN, 2], options)).toThrow(/token 1 is NaN/);
    expect(sampling([Number.NaN, Number.NaN], options)).toThrow(LanternError);
    expect(sampling([1, 2, Number.POSITIVE_INFINITY], options)).toThrow(/token 2 is Infinity/);
  });

  test("to choose when no token is allowed", () => {
    const never = Number.NEGATIVE_INFINITY;
    const options = { logitBias: { 0: never, 1: never } };
    expect(sampling([1, 2], options)).toThrow(
      /no token is allowed.*expected one that is finite.*damaged/,
    );
  });

  test("logits of another vocabulary, and token ids outside it", () => {
    const sampler = createSampler(resolveSampling(off), 3);
    expect(() => sampler.sample(new Float32Array(4))).toThrow(/got 4 logits, expected 3/);
    for (const id of [-1, 3, 0.5]) expect(() => sampler.accept(id)).toThrow(/token id/);
    const biased = resolveSampling({ logitBias: { 3: 1 } });
    expect(() => createSampler(biased, 3)).toThrow(/"logitBias": got token id 3/);
    expect(() => createSampler(resolveSampling(off), 3, { logprobs: -1 })).toThrow(/"logprobs"/);
  });
});

describe("resolveSampling", () => {
  test("fills in the documented defaults; undefined counts as not given", () => {
    const { seed, ...settings } = resolveSampling({ topK: undefined } as object);
    expect(settings).toEqual({
      temperature: 0.8,
      topK: 40,
      topP: 0.95,
      minP: 0.05,
      typicalP: 1,
      topNSigma: -1,
      xtcProbability: 0,
      xtcThreshold: 0.1,
      dynatempRange: 0,
      dynatempExponent: 1,
      mirostat: 0,
      mirostatTau: 5,
      mirostatEta: 0.1,
      repeatPenalty: 1,
      repeatLastN: 64,
      frequencyPenalty: 0,
      presencePenalty: 0,
      dryMultiplier: 0,
      dryBase: 1.75,
      dryAllowedLength: 2,
      dryPenaltyLastN: 64,
      drySequenceBreakers: ["\n", ":", '"', "*"],
      samplers: [
        ...["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc"],
        "temperature",
      ],
      logitBias: new Map(),
    });
    expect(Number.isSafeInteger(seed)).toBe(true);
  });

  test("keeps every value that is given", () => {
    const given = {
      temperature: 0,
      topK: 0,
      topP: 0,
      minP: 1,
      typicalP: 0.5,
      topNSigma: 2,
      xtcProbability: 1,
      xtcThreshold: 0.2,
      dynatempRange: 0.5,
      dynatempExponent: 2,
      mirostat: 2,
      mirostatTau: 3,
      mirostatEta: 0.2,
      repeatPenalty: 1.5,
      repeatLastN: -1,
      frequencyPenalty: -1,
      presencePenalty: 2,
      dryMultiplier: 0.8,
      dryBase: 2,
      dryAllowedLength: 3,
      dryPenaltyLastN: -1,
      drySequenceBreakers: ["\n"],
      seed: 2 ** 53 - 1,
      samplers: ["top_k", "temperature"] as const,
      logitBias: new Map([[7, Number.NEGATIVE_INFINITY]]),
    };
    expect(resolveSampling(given)).toEqual(given);
    expect(Object.keys(given)).toEqual(samplingOptionNames);
  });

  test("takes a bias as an object or a map", () => {
    expect(resolveSampling({ logitBias: { 3: 1.5 } }).logitBias).toEqual(new Map([[3, 1.5]]));
  });

  const bad: [option: string, value: unknown][] = [
    ["temperature", -0.1],
    ["temperature", Number.NaN],
    ["temperature", Number.POSITIVE_INFINITY],
    ["temperature", "0.8"],
    ["temperature", null],
    ["topK", -1],
    ["topK", 2.5],
    ["topP", 1.01],
    ["topP", -0.5],
    ["topP", Number.NaN],
    ["minP", 2],
    ["typicalP", -1],
    ["repeatPenalty", 0],
    ["repeatPenalty", -1],
    ["repeatLastN", -2],
    ["repeatLastN", Number.POSITIVE_INFINITY],
    ["frequencyPenalty", Number.NaN],
    ["presencePenalty", Number.NEGATIVE_INFINITY],
    ["topNSigma", Number.NaN],
    ["xtcProbability", 2],
    ["xtcThreshold", -1],
    ["dynatempRange", -1],
    ["dynatempExponent", Number.POSITIVE_INFINITY],
    ["mirostat", 3],
    ["mirostatTau", -1],
    ["mirostatEta", Number.NaN],
    ["dryMultiplier", -1],
    ["dryBase", Number.NaN],
    ["dryAllowedLength", 1.5],
    ["dryPenaltyLastN", -2],
    ["drySequenceBreakers", "x"],
    ["drySequenceBreakers", [""]],
    ["drySequenceBreakers", Array(17).fill("x")],
    ["samplers", ["top_q"]],
    ["samplers", "kz"],
    ["samplers", 7],
    ["samplers", [7]],
    ["seed", -1],
    ["seed", 1.5],
    ["seed", 2 ** 53],
    ["logitBias", 5],
    ["logitBias", null],
    ["logitBias", { hello: 1 }],
    ["logitBias", { "": 1 }],
    ["logitBias", new Map([[-1, 1]])],
    ["logitBias", { 1: Number.NaN }],
    ["logitBias", { 1: Number.POSITIVE_INFINITY }],
    ["logitBias", { 1: "2" }],
  ];
  test.each(bad)("refuses %s = %o", (option, value) => {
    const resolving = () => resolveSampling({ [option]: value } as SamplingOptions);
    expect(resolving).toThrow(expect.objectContaining({ code: "usage" }));
    expect(resolving).toThrow(new RegExp(`^${option}.*: got .+, expected .+`));
  });

  test("refuses an unknown option and names the known ones", () => {
    const resolving = () => resolveSampling({ top_k: 3 } as SamplingOptions);
    expect(resolving).toThrow(/unknown option "top_k".*temperature.*seed/);
  });
});

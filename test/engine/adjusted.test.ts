// Adjusted tokens (penalties, DRY, biases): a sampler that gets only their logits and the best of all others chooses what it would
// choose from whole rows; and the tokens that it says it will adjust are all that it adjusts.

import { expect, test } from "vitest";
import type { BestLogits } from "../../src/backends/backend.ts";
import { selectBest } from "../../src/base/select-best.ts";
import { Penalties } from "../../src/engine/penalties.ts";
import { createSampler, resolveSampling } from "../../src/engine/sampler.ts";
import { ADJUSTED_ROOM, AdjustedList, MOST_ADJUSTED } from "../../src/graph/adjusted-list.ts";
import type { GenerateOptions } from "../../src/index.ts";
import { Random } from "../support/random.ts";

const size = 300;

/** What a backend gives: the best of all but those, and those. */
function bestBeside(logits: Float32Array, count: number, list: AdjustedList): BestLogits {
  const others = Int32Array.from(logits.keys()).filter((id) => !list.has(id));
  const ids = new Int32Array(count).fill(-1);
  selectBest(logits, others, others.length, count, ids);
  const adjusted = {
    ids: new Int32Array(ADJUSTED_ROOM),
    logits: new Float32Array(ADJUSTED_ROOM),
    count: list.count,
  };
  for (let i = 0; i < list.count; i++) {
    // In another order than they were listed.
    adjusted.ids[i] = list.ids[list.count - 1 - i]!;
    adjusted.logits[i] = logits[adjusted.ids[i]!]!;
  }
  return { ids, logits: Float32Array.from(ids, (id) => logits[id] ?? Number.NaN), adjusted };
}

const greedy = { temperature: 0 };
const drawn = { temperature: 0.9, topK: 20, topP: 0.9, minP: 0.02 };
const penalties = { repeatPenalty: 1.3, repeatLastN: 40, frequencyPenalty: 0.4 };

const chains: Readonly<Record<string, GenerateOptions>> = {
  "repeat, greedy": { ...greedy, repeatPenalty: 1.1 },
  "repeat, drawn": { ...drawn, repeatPenalty: 1.1 },
  "presence and frequency, greedy": { ...greedy, presencePenalty: 0.5, frequencyPenalty: 0.7 },
  "presence and frequency, drawn": { ...drawn, presencePenalty: 1.5, frequencyPenalty: 0.2 },
  "penalties that raise logits": {
    ...drawn,
    ...{ repeatPenalty: 0.5, presencePenalty: -2, frequencyPenalty: -0.5 },
  },
  "penalties that raise logits, greedy": { ...greedy, repeatPenalty: 0.5, presencePenalty: -2 },
  "a window of one token": { ...drawn, repeatPenalty: 4, repeatLastN: 1 },
  "a window of the whole text": { ...drawn, repeatPenalty: 1.4, repeatLastN: -1 },
  "biases, greedy": { ...greedy, logitBias: { 0: 3, 7: -4, 299: 5 } },
  "biases, drawn": { ...drawn, logitBias: { 0: 3, 7: Number.NEGATIVE_INFINITY, 299: 5 } },
  "biases and penalties": { ...drawn, ...penalties, logitBias: { 3: 4, 8: -2, 200: -1 } },
  "most tokens biased": {
    ...drawn,
    logitBias: Object.fromEntries(Array.from({ length: 235 }, (_, i) => [i, (i % 7) - 3])),
  },
  dry: { ...drawn, dryMultiplier: 2, dryAllowedLength: 1, drySequenceBreakers: [] },
  "dry, greedy": { ...greedy, dryMultiplier: 2, dryAllowedLength: 1, dryPenaltyLastN: -1 },
  "dry and penalties": { ...drawn, ...penalties, dryMultiplier: 1, dryAllowedLength: 1 },
  "penalties after top-k": {
    ...drawn,
    ...penalties,
    samplers: ["top_k", "penalties", "min_p", "temperature"],
  },
  "penalties after top-k, greedy": {
    ...penalties,
    ...{ ...greedy, topK: 3, samplers: ["top_k", "penalties", "temperature"] },
  },
  "steps after top-k": {
    ...penalties,
    ...{ temperature: 1.2, topK: 30, typicalP: 0.8, xtcProbability: 0.5, xtcThreshold: 0.1 },
  },
  "a changing temperature": { ...penalties, temperature: 0.7, topK: 25, dynatempRange: 0.5 },
  "top-k of one": { ...penalties, temperature: 1, topK: 1 },
  "top-k of nearly all": { ...penalties, temperature: 3, topK: size - 1, minP: 0 },
};

const samplerOf = (options: GenerateOptions, seed = 9) =>
  createSampler(resolveSampling({ ...options, seed }), size);

test.each(Object.entries(chains))("%s: the same token as from whole rows", (_, options) => {
  for (const seed of [1, 2, 3]) {
    const random = new Random(seed);
    const [all, few] = [samplerOf(options, seed), samplerOf(options, seed)];
    const list = new AdjustedList();
    expect(few.adjusts).toBe(true);
    expect(few.best).toBe(options.temperature === 0 ? 1 : options.topK);
    let changed = 0;
    for (let turn = 0; turn < 150; turn++) {
      // Many equal ones, so that their order matters, and few tokens are likely, so that they repeat.
      const logits = Float32Array.from(
        { length: size },
        (_, id) => Math.round(random.normal() * 6) / 2 + (id % 11 === 0 ? 4 : 0),
      );
      const isListed = few.listAdjusted(list, new Int32Array(0), 0);
      expect(isListed).toBe(true);
      const best = bestBeside(logits, few.best, list);
      const likeliest = logits.indexOf(Math.max(...logits));
      const garbage = new Float32Array(size).fill(1e9); // nothing else of it is read
      const { id } = few.sampleBest(best, garbage);
      expect(id).toBe(all.sample(logits).id);
      if (id !== likeliest) changed++;
      for (const sampler of [all, few]) sampler.accept(id);
    }
    if (options.temperature === 0) expect(changed).toBeGreaterThan(1); // so it had an effect
  }
});

test("a list that names more tokens than are adjusted gives the same", () => {
  const random = new Random(3);
  const [all, few] = [samplerOf({ ...drawn, ...penalties }), samplerOf({ ...drawn, ...penalties })];
  const list = new AdjustedList();
  for (let turn = 0; turn < 60; turn++) {
    const logits = Float32Array.from({ length: size }, () => random.normal() * 3);
    // As with drafts: tokens behind the last, which may become part of the text or not.
    expect(few.listAdjusted(list, Int32Array.of(turn, 5, 290, turn), 4)).toBe(true);
    expect([turn, 5, 290].every((id) => list.has(id))).toBe(true);
    const best = bestBeside(logits, few.best, list);
    const { id } = few.sampleBest(best, new Float32Array(size));
    expect(id).toBe(all.sample(logits).id);
    for (const sampler of [all, few]) sampler.accept(id);
  }
});

test("tokens that are too many, or that depend on drafts, are not listed", () => {
  const list = new AdjustedList();
  const none = new Int32Array(0);
  const whole = samplerOf({ ...greedy, repeatPenalty: 1.1, repeatLastN: -1 });
  for (let id = 0; id < MOST_ADJUSTED; id++) whole.accept(id);
  expect(whole.listAdjusted(list, none, 0)).toBe(true);
  expect(list.count).toBe(MOST_ADJUSTED);
  expect(whole.listAdjusted(list, Int32Array.of(0, 5), 2)).toBe(true); // there already
  expect(whole.listAdjusted(list, Int32Array.of(size - 1), 1)).toBe(false);
  whole.accept(size - 1);
  expect(whole.listAdjusted(list, none, 0)).toBe(false);
  // The window forgets: 64 tokens fit again.
  const window = samplerOf({ ...greedy, repeatPenalty: 1.1, repeatLastN: 64 });
  for (let id = 0; id < size; id++) window.accept(id);
  expect(window.listAdjusted(list, none, 0)).toBe(true);
  expect(list.count).toBe(64);
  const dry = samplerOf({ ...greedy, dryMultiplier: 1 });
  expect(dry.listAdjusted(list, none, 0)).toBe(true);
  expect(dry.listAdjusted(list, Int32Array.of(3), 1)).toBe(false);
});

test.each([
  ["NaN of an adjusted token", 5, Number.NaN],
  ["NaN of another", 77, Number.NaN],
  ["Infinity of an adjusted token", 5, Number.POSITIVE_INFINITY],
  ["Infinity of another", 77, Number.POSITIVE_INFINITY],
])("%s is reported as from whole rows", (_, id, logit) => {
  for (const options of [
    { ...greedy, repeatPenalty: 1.2 },
    { ...drawn, repeatPenalty: 1.2 },
  ]) {
    const messages = [true, false].map((isWhole) => {
      const sampler = samplerOf(options);
      sampler.accept(5);
      const logits = Float32Array.from({ length: size }, (_, i) => (i * 7) % 13);
      logits[id] = logit;
      const list = new AdjustedList();
      sampler.listAdjusted(list, new Int32Array(0), 0);
      const best = bestBeside(logits, sampler.best, list);
      if (Number.isNaN(logit) && id !== 5) [best.ids[0], best.logits[0]] = [id, logit]; // it comes first
      try {
        if (isWhole) sampler.sample(logits);
        else sampler.sampleBest(best, new Float32Array(size));
      } catch (error) {
        return (error as Error).message;
      }
      return "none";
    });
    expect(messages[1]).toBe(messages[0]);
    expect(messages[0]).toContain(`the logit of token ${id} is ${logit}`);
  }
});

test.each([
  ["whole rows", true],
  ["the best", false],
])("where all tokens are forbidden, an error says so, with %s", (_, isWhole) => {
  const logitBias = { 3: Number.NEGATIVE_INFINITY };
  const sampler = samplerOf({ ...drawn, logitBias });
  const logits = new Float32Array(size).fill(Number.NEGATIVE_INFINITY);
  logits[3] = 1;
  const list = new AdjustedList();
  sampler.listAdjusted(list, new Int32Array(0), 0);
  const best = bestBeside(logits, sampler.best, list);
  const choose = () =>
    isWhole ? sampler.sample(logits) : sampler.sampleBest(best, new Float32Array(size));
  expect(choose).toThrow("no token is allowed");
});

test.each([1, 2, 3, 7, 64, -1])("a window of %i after tokens that nobody knows yet", (lastN) => {
  const settings = {
    ...{ repeatPenalty: 1.1, repeatLastN: lastN },
    ...{ frequencyPenalty: 0, presencePenalty: 0 },
  };
  const random = new Random(lastN + 5);
  for (const length of [1, 2, 5, 30, 100]) {
    const text = Array.from({ length }, () => random.below(9));
    for (let after = 0; after <= 4; after++) {
      const [now, later] = [new Penalties(settings, size), new Penalties(settings, size)];
      for (const penalties of [now, later]) for (const id of text) penalties.accept(id);
      for (let i = 0; i < after; i++) later.accept(size - 1 - i); // of no known token
      const [list, expected] = [new AdjustedList(), new AdjustedList()];
      expect(now.list(list, after, new Map())).toBe(true);
      later.list(expected, 0, new Map());
      const counts = (of: AdjustedList) =>
        Array.from({ length: of.count }, (_, i) => [of.ids[i]!, of.occurrences[i]!])
          .filter(([id]) => id! < size - 4)
          .sort(([a], [b]) => a! - b!);
      expect(counts(list), `${length} tokens, ${after} later`).toEqual(counts(expected));
    }
  }
});

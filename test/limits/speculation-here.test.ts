// Speculation by measured times of batches, and measured gains beside what these times predict.
// Held against: times made up here.

import { describe, expect, test } from "vitest";
import {
  gainsFromBench,
  isGains,
  predictedRun,
  speculationHere,
} from "../../src/limits/speculation-here.ts";

/** 10 ms, and 4 more for each token more. */
const times = (tokens: number) => 6 + 4 * tokens;

describe("by depth", () => {
  test("(1 - a^(k+1)) / (1 - a) tokens in the time of a batch of k + 1 and k drafts", () => {
    const { curve, best, batchMs } = speculationHere(0.8, 2, times, 1, [])!;
    expect(batchMs).toHaveLength(16);
    expect(curve[0]).toEqual({ draftTokens: 0, tokensPerRound: 1, speedup: 1 });
    expect(curve[3]!.speedup).toBeCloseTo(((1 - 0.8 ** 4) / 0.2) * (10 / (22 + 3)), 12);
    const highest = Math.max(...curve.map(({ speedup }) => speedup));
    expect(best.speedup).toBe(highest);
    expect(best.draftTokens).toBeGreaterThan(0);
  });

  test("nothing is drafted where each token takes as long as one alone", () => {
    const { best } = speculationHere(0.8, 1, (tokens) => 10 * tokens, 0, [])!;
    expect(best).toEqual({ draftTokens: 0, tokensPerRound: 1, speedup: 1 });
  });

  test("sizes that were not measured: none", () => {
    const few = (tokens: number) => (tokens > 8 ? undefined : 10);
    expect(speculationHere(0.8, 1, few, 0, [])).toBeUndefined();
  });
});

describe("measured gains", () => {
  const line = {
    ...{ model: "large.gguf", draft: "small.gguf, forced 0.8", case: "depth 3", threads: 2 },
    ...{ ratio: 1.2, batchTokens: 2.8, batchSize: 3.5 },
    costs: { plain: 40, batch: 100, draft: 4 },
  };

  test("are compared with what the times predict for batches of that size", () => {
    const [run] = gainsFromBench([line], "gains.json");
    expect(run).toMatchObject({ threads: 2, speedup: 1.2, keptTokens: 2.8, draftShare: 0.1 });
    // 3.5 tokens: between 18 and 22 ms, and 2.5 drafts of 1 ms.
    expect(predictedRun(run!, times).predicted).toBeCloseTo(2.8 / (2 + 0.25), 12);
    expect(predictedRun(run!, undefined).predicted).toBeUndefined();
  });

  test("n-gram drafts cost nothing", () => {
    const { costs: _, ...lookup } = line;
    expect(gainsFromBench([lookup], "gains.json")[0]!.draftShare).toBe(0);
  });

  test.each([
    [[null], '\\[0\\] without a number above 0 as "threads"'],
    [[line, { ...line, batchSize: undefined }], '\\[1\\] .* as "batchSize"'],
    [[{ ...line, ratio: "fast" }], '\\[0\\] .* as "ratio"'],
  ])("a list that is not theirs is refused: %j", (json, message) => {
    expect(isGains(json)).toBe(true);
    expect(() => gainsFromBench(json, "gains.json")).toThrow(
      new RegExp(`gains.json: .*${message}`),
    );
  });
});

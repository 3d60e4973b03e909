// Many users at once and offline batches, held against the article's numbers (Qwen1.5 7B on an RTX 4090): its
// agreement for many users, its W and B, and its time of a prompt of 500 tokens. Then memory, experts and bad input.

import { describe, expect, test } from "vitest";
import { limits } from "../../src/index.ts";
import { shapeNamed } from "../../src/limits/configs.ts";
import { deviceNamed } from "../../src/limits/devices.ts";
import { shapeState } from "../../src/limits/memory.ts";
import { shapeCost } from "../../src/limits/model-cost.ts";
import {
  batchLimit,
  mostUsers,
  type ServingCase,
  userCounts,
  usersLimit,
  usualSla,
} from "../../src/limits/serving.ts";
import { meetsSla, servingReport } from "../../src/limits/serving-report.ts";

const { shape } = shapeNamed("qwen1.5-7b")!;
const serving: ServingCase = {
  model: {
    cost: shapeCost(shape, { weights: 16, kv: 16 }, "article"),
    state: shapeState(shape, 16),
  },
  device: deviceNamed("rtx4090-article")!,
  counting: "article",
  memoryBytes: undefined,
};

describe("the article's numbers", () => {
  // "First token latency below 2 to 3 seconds, latency below 50 milliseconds, that is, 20 tokens a second."
  test("its agreement is the usual one", () => {
    expect(usualSla).toEqual({ firstTokenMs: 2000, tokensPerSecond: 20 });
    expect(1000 / usualSla.tokensPerSecond).toBe(50);
  });

  // (Lp * n + 0.5 * n * (n + 1) * KVp + Hp) * 2 / computing_power, with table 3.1's Lp = 6.03B, Hp = 0.58B, table
  // 3.2's KVp = 0.25M and 82.58 TFLOPS, all in powers of 1024. Arithmetic is the limit, so prompts add up.
  test("2 s are 69 prompts of 200 tokens, each of 28.65 ms", () => {
    const n = 200;
    const [layers, head, kv] = [6.03 * 1024 ** 3, 0.58 * 1024 ** 3, 0.25 * 1024 ** 2];
    const ms = (((layers * n + 0.5 * n * (n + 1) * kv + head) * 2) / (82.58 * 1024 ** 4)) * 1000;
    expect(ms).toBeCloseTo(28.65, 2);
    const request = { promptTokens: n, answerTokens: 64 };
    expect(usersLimit(serving, 1, request).firstTokenMs / ms).toBeCloseTo(1, 3);
    expect(usersLimit(serving, 69, request).firstTokenMs / (69 * ms)).toBeCloseTo(1, 3);
    const quick = { firstTokenMs: 2000, tokensPerSecond: 1 };
    const most = mostUsers(serving, request, quick);
    expect(most).toEqual({ users: Math.floor(2000 / ms), failures: ["first token"] });
  });

  // Table 4.4: w16kv16 has W = 2064 tokens for a millisecond, B = 13.12 ms.
  test("a token of all users takes B, and the KV cache of each", () => {
    const request = { promptTokens: 1000, answerTokens: 201 };
    const { batchMs, tokensPerSecondEach, resource } = usersLimit(serving, 40, request);
    expect(batchMs).toBeCloseTo(13.12 + (40 * (1000 + 201 / 2)) / 2064, 1);
    expect(tokensPerSecondEach).toBeCloseTo(1000 / batchMs, 6);
    expect(resource).toBe("bandwidth");
    // 50 ms less B are the KV caches of so many users.
    const slow = { firstTokenMs: 1e9, tokensPerSecond: 20 };
    const { users, failures } = mostUsers(serving, request, slow);
    expect(users).toBe(Math.floor(((50 - 13.12) * 2064) / 1100.5));
    expect(failures).toEqual(["tokens/s"]);
  });

  // Table 3.3: beside the weights, 24 GiB hold the KV cache of 22072 tokens.
  test("memory holds so many users, and no more", () => {
    const cost = { ...serving.model.cost, storedBytes: serving.model.cost.weightBytes };
    const small = { ...serving, model: { ...serving.model, cost }, memoryBytes: 24 * 2 ** 30 };
    const request = { promptTokens: 900, answerTokens: 100 };
    const loose = { firstTokenMs: 1e9, tokensPerSecond: 0.001 };
    expect(mostUsers(small, request, loose)).toEqual({ users: 22, failures: ["memory"] });
    expect(batchLimit(small, 100, request).atOnce).toBe(22);
  });
});

test("one user has the time of one prompt and of one generation", async () => {
  const {
    prefill,
    decode,
    serving: many,
  } = await limits("qwen1.5-7b", {
    device: "rtx4090",
    context: 512,
    serving: { users: 1, promptTokens: 512, answerTokens: 2 },
  });
  const [one] = many!.rows;
  expect(one!.firstTokenMs).toBeCloseTo(prefill.rows.at(-1)!.firstTokenMs, 9);
  expect(one!.batchMs).toBeCloseTo(decode.rows.at(-1)!.ms + 1 / decode.tokensPerMs, 6);
});

test("a batch: as many at once as fit, and its price", () => {
  const request = { promptTokens: 64, answerTokens: 64 };
  const all = batchLimit(serving, 200, request, 3.6);
  expect(all.atOnce).toBe(200);
  expect(all.cost).toBeCloseTo(all.seconds / 1000, 12);
  expect(all.costPerMillionTokens! * 200 * 64).toBeCloseTo(all.cost! * 1e6, 9);
  expect(all.tokensPerHour).toBeCloseTo((200 * 64 * 3600) / all.seconds, 3);
  // Fewer at a time read the weights more often.
  const { cost, state } = serving.model;
  const tight = {
    ...serving,
    memoryBytes: cost.storedBytes + 10 * 128 * state.kv[0]!.bytesPerToken,
  };
  const tens = batchLimit(tight, 200, request);
  expect(tens.atOnce).toBe(10);
  expect(tens.seconds).toBeGreaterThan(all.seconds);
  expect(tens.resource).toBe("bandwidth");
  expect(tens.cost).toBeUndefined();
  expect(batchLimit({ ...serving, memoryBytes: 1 }, 2, request).atOnce).toBe(0);
});

test("more users read more experts, until all are read", () => {
  const { cost } = serving.model;
  const experts = { bytes: 8 * cost.weightBytes, share: 1 / 8 };
  const mixture = { ...serving, model: { ...serving.model, cost: { ...cost, experts } } };
  const request = { promptTokens: 16, answerTokens: 3 };
  const ms = (users: number) => usersLimit(mixture, users, request).batchMs;
  expect(ms(1) / usersLimit(serving, 1, request).batchMs).toBeCloseTo(1, 6);
  expect(ms(8)).toBeGreaterThan(4 * ms(1));
});

test("what was measured is compared with the limit of its own lengths", () => {
  const load = {
    users: 4,
    promptTokens: 32,
    answerTokens: 16,
    firstP50Ms: 100,
    firstP99Ms: 1900,
    slowest: 21,
    median: 25,
    tokensPerSecond: 80,
    othersCores: 0,
    at: "2026-01-02T03:04:05.000Z",
  };
  const [measured] = servingReport(serving, { promptTokens: 512 }, [load]).measured;
  const limit = usersLimit(serving, 4, load).tokensPerSecond;
  expect(measured).toMatchObject({ meetsSla: true, limitTokensPerSecond: limit });
  expect(measured!.fraction).toBeCloseTo(80 / limit, 12);
  expect(meetsSla({ ...load, firstP99Ms: 2001 })).toBe(false);
  expect(meetsSla({ ...load, slowest: 19.9 })).toBe(false);
});

test("the table's counts: powers of two, and those that were asked for", () => {
  expect(userCounts([])).toEqual([1]);
  expect(userCounts([6, 0])).toEqual([1, 2, 4, 6]);
  expect(userCounts([8, 9])).toEqual([1, 2, 4, 8, 9]);
  expect(userCounts([2 ** 24]).length).toBeLessThan(16);
});

test.each([
  [{ users: 0 }, "users: got 0, expected a whole number of at least 1"],
  [{ promptTokens: 1.5 }, "promptTokens: got 1.5"],
  [{ answerTokens: 1 }, "answerTokens: got 1, expected a whole number of at least 2"],
  [{ sla: { firstTokenMs: 0, tokensPerSecond: 20 } }, "sla: firstTokenMs: got 0"],
  [{ batch: -1 }, "batch: got -1"],
  [{ batch: 1, pricePerHour: Number.NaN }, "price: got NaN"],
])("%j", (options, message) => {
  expect(() => servingReport(serving, options)).toThrow(message);
});

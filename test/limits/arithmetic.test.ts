// The formulas where the published tables do not reach: devices that compute slowly, single turning points, sums across
// a crossing, speculative decoding, a graph with real types beside its shape.
// Held against: numbers worked out by hand.

import { describe, expect, test } from "vitest";
import type { Device } from "../../src/api/rates.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { weightBytes } from "../../src/graph/cost.ts";
import { shapeNamed } from "../../src/limits/configs.ts";
import { decodeLimit, decodeTotalMs } from "../../src/limits/decode.ts";
import { deviceAtRate, deviceNamed, devices, opsPerByte } from "../../src/limits/devices.ts";
import {
  kvBytesPerToken,
  type StateSize,
  stateBytes,
  tokensThatFit,
  withKvTimes,
} from "../../src/limits/memory.ts";
import { graphModelCost, type ModelCost, shapeCost } from "../../src/limits/model-cost.ts";
import { prefillLimit, turningPoints } from "../../src/limits/prefill.ts";
import { parameterCounts } from "../../src/limits/shape.ts";
import { bestDraftTokens, speculationLimit, tokensPerRound } from "../../src/limits/speculative.ts";
import type { ModelHeader } from "../../src/models/arch.ts";
import { buildModel } from "../../src/models/build.ts";
import { tinyModel, tinyShape } from "../support/tiny-engine.ts";

const rtx4090 = deviceNamed("rtx4090-article")!;
const llama = shapeNamed("llama-3-8b")!.shape;
const llamaCost = shapeCost(llama, { weights: 4, kv: 16 }, "article");

function slowed(device: Device, factor: number): Device {
  const { f32 } = device.opsPerSecond;
  return { ...device, opsPerSecond: { f32: f32 / factor } };
}

describe("turning points", () => {
  const counts = ["rough", "exact", "shared"] as const;
  const machines = [rtx4090, slowed(rtx4090, 30), slowed(rtx4090, 3000), deviceNamed("m1")!];
  const cases = machines.flatMap((device) => counts.map((count) => ({ device, count })));

  test.each(cases)("separate what binds: $device.name, $count", ({ device, count }) => {
    const { starts, points } = turningPoints(llamaCost, device, count);
    const binds = (tokens: number) => prefillLimit(llamaCost, device, tokens, count).resource;
    expect(binds(1)).toBe(starts);
    let before = starts;
    for (const { tokens, after } of points) {
      expect(binds(tokens * 0.999)).toBe(before);
      expect(binds(tokens * 1.001)).toBe(after);
      before = after;
    }
    expect(binds(1e9)).toBe(before);
  });

  test("a device that computes slowly has none: arithmetic binds from the first token on", () => {
    expect(turningPoints(llamaCost, slowed(rtx4090, 3000))).toEqual({
      starts: "arithmetic",
      points: [],
    });
  });

  test("with one reading of the cache for all tokens, arithmetic binds for good", () => {
    const { points } = turningPoints(llamaCost, rtx4090, "shared");
    expect(points.map(({ after }) => after)).toEqual(["arithmetic"]);
  });
});

test("the counts of a prompt's work: shared <= exact <= rough; a single token is a decoded one", () => {
  for (const tokens of [1, 100, 10_000]) {
    const [rough, exact, shared] = (["rough", "exact", "shared"] as const).map(
      (count) => prefillLimit(llamaCost, rtx4090, tokens, count).seconds,
    ) as [number, number, number];
    expect(exact).toBeLessThanOrEqual(rough);
    expect(shared).toBeLessThanOrEqual(exact);
  }
  expect(prefillLimit(llamaCost, rtx4090, 1)).toEqual(decodeLimit(llamaCost, rtx4090, 1));
});

test.each([1, 50, 82, 86, 100, 3000])(
  "a generation's time is the sum of its tokens', arithmetic %d times slower",
  (factor) => {
    // With 16-bit weights the two lines cross within the range for some of these.
    const cost = shapeCost(llama, { weights: 16, kv: 16 }, "article");
    const device = slowed(rtx4090, factor);
    for (const [from, to] of [
      [0, 1],
      [0, 3000],
      [100, 20_000],
    ] as const) {
      let sum = 0;
      for (let n = from + 1; n <= to; n++) sum += decodeLimit(cost, device, n).seconds * 1000;
      const total = decodeTotalMs(cost, device, from, to);
      expect(Math.abs(total / sum - 1), `${from}..${to}`).toBeLessThan(1e-9);
    }
  },
);

test("both lines bind somewhere in the test above", () => {
  const cost = shapeCost(llama, { weights: 16, kv: 16 }, "article");
  const device = slowed(rtx4090, 82);
  const bound = new Set([1, 3000, 20_000].map((n) => decodeLimit(cost, device, n).resource));
  expect(bound).toEqual(new Set(["bandwidth", "arithmetic"]));
});

describe("tokens that fit", () => {
  test("exactly the memory: none; a byte less: not even the weights", () => {
    const plain = { kv: [{ bytesPerToken: 8, blockTokens: 1 }], recurrentBytes: 0 };
    expect(tokensThatFit(1000, 1000, plain)).toBe(0);
    expect(tokensThatFit(1015, 1000, plain)).toBe(1);
    expect(tokensThatFit(999, 1000, plain)).toBeUndefined();
  });

  // A byte per token everywhere, two more per token up to 64 of them, ten of recurrent state.
  const window = { bytesPerToken: 2, blockTokens: 32, mostTokens: 64 };
  const all = { bytesPerToken: 1, blockTokens: 32 };
  const mixed: StateSize = { kv: [all, window], recurrentBytes: 10 };

  test("a window stops growing, recurrent state never grew, blocks are whole", () => {
    expect([0, 1, 32, 33, 64, 65, 960].map((tokens) => stateBytes(mixed, tokens))).toEqual([
      10, 106, 106, 202, 202, 234, 1098,
    ]);
    expect(kvBytesPerToken(mixed)).toBe(3);
  });

  test("what fits is the most whose bytes are there", () => {
    for (const [bytes, tokens] of [
      [9, 0],
      [105, 0],
      [106, 32],
      [201, 32],
      [202, 64],
      [1097, 928],
      [1098, 960],
    ]) {
      expect(tokensThatFit(bytes!, 0, mixed), String(bytes)).toBe(tokens);
    }
  });

  test("where nothing grows any more, every context fits", () => {
    const windowed = { ...mixed, kv: [window] };
    expect(tokensThatFit(137, 0, windowed)).toBe(32);
    expect(tokensThatFit(138, 0, windowed)).toBe(Infinity);
    expect(tokensThatFit(10, 0, { kv: [], recurrentBytes: 10 })).toBe(Infinity);
    expect(tokensThatFit(9, 0, { kv: [], recurrentBytes: 10 })).toBe(0);
  });

  test("another width changes keys and values, not recurrent state", () => {
    expect(stateBytes(withKvTimes(mixed, 0.5), 64)).toBe(10 + 96);
  });
});

test("bits that are none are refused", () => {
  expect(() => shapeCost(llama, { weights: 0, kv: 16 })).toThrow(/bits: weights: got 0/);
  expect(() => shapeCost(llama, { weights: 4, kv: Number.NaN })).toThrow(/bits: kv: got NaN/);
});

describe("speculative decoding", () => {
  // Leviathan, Kalman, Matias 2023, table 1: arithmetic and speed against plain decoding, with a draft that costs nothing.
  test.each([
    [0.6, 2, "1.53", "1.96"],
    [0.7, 3, "1.58", "2.53"],
    [0.8, 2, "1.23", "2.44"],
    [0.8, 5, "1.63", "3.69"],
    [0.9, 2, "1.11", "2.71"],
    [0.9, 10, "1.60", "6.86"],
  ])("acceptance %d, %d tokens: the paper's numbers", (acceptance, draftTokens, ops, speed) => {
    const perRound = tokensPerRound(acceptance, draftTokens);
    expect(perRound.toFixed(2)).toBe(speed);
    expect(((draftTokens + 1) / perRound).toFixed(2)).toBe(ops);
  });

  test("the speedup is tokens per round over (drafts + check), where the check is as cheap as one token", () => {
    // A short cache and a device with endless arithmetic: weights are all that counts.
    const device = { ...rtx4090, opsPerSecond: { f32: 1e30 } };
    const limit = speculationLimit(llamaCost, device, 0, {
      acceptance: 0.8,
      draftTokens: 5,
      draft: 0.1,
    });
    const formula = tokensPerRound(0.8, 5) / (5 * 0.1 + 1);
    expect(limit.speedup / formula).toBeCloseTo(1, 3);
    expect(limit.resource).toBe("bandwidth");
  });

  // The article has no table for speculation; it names the paper. Its B are the costs of both models: 13.12 ms for
  // 7B, 0.86 ms for 0.5B, at 16 bits on an RTX 4090.
  test("the article's B of two models, in the paper's formula", () => {
    const at16 = (name: string) =>
      shapeCost(shapeNamed(name)!.shape, { weights: 16, kv: 16 }, "article");
    const limit = speculationLimit(at16("qwen1.5-7b"), rtx4090, 0, {
      acceptance: 0.8,
      draftTokens: 5,
      draft: at16("qwen1.5-0.5b"),
    });
    expect(limit.plainMs.toFixed(2)).toBe("13.12");
    expect((limit.draftMs / 5).toFixed(2)).toBe("0.86");
    expect(limit.speedup).toBeCloseTo(3.69 / ((5 * 0.86) / 13.12 + 1), 2);
  });

  test("where arithmetic binds, nothing is gained", () => {
    const device = slowed(rtx4090, 3000);
    const options = { acceptance: 0.8, draft: 0 };
    expect(
      speculationLimit(llamaCost, device, 0, { ...options, draftTokens: 4 }).speedup,
    ).toBeLessThan(1);
    expect(bestDraftTokens(llamaCost, device, 0, options).draftTokens).toBe(0);
  });

  test("a model as a draft, and the best number of tokens", () => {
    const draft = shapeCost(shapeNamed("qwen2.5-0.5b")!.shape, { weights: 4, kv: 16 });
    const best = bestDraftTokens(llamaCost, rtx4090, 1000, { acceptance: 0.8, draft });
    const around = [-1, 1].map((more) =>
      speculationLimit(llamaCost, rtx4090, 1000, {
        acceptance: 0.8,
        draft,
        draftTokens: best.draftTokens + more,
      }),
    );
    for (const other of around) expect(other.msPerToken).toBeGreaterThanOrEqual(best.msPerToken);
    expect(best.speedup).toBeGreaterThan(1);
    expect(tokensPerRound(1, 4)).toBe(5);
  });

  test("chances and counts that are none", () => {
    const limit = (options: object) => () =>
      speculationLimit(llamaCost, rtx4090, 0, {
        acceptance: 0.5,
        draftTokens: 2,
        draft: 0,
        ...options,
      });
    expect(limit({ acceptance: 1.1 })).toThrow(/acceptance: got 1.1/);
    expect(limit({ draftTokens: 1.5 })).toThrow(/draftTokens: got 1.5/);
    expect(limit({ draft: -1 })).toThrow(/draft cost: got -1/);
  });
});

describe("devices", () => {
  test("every one has sensible numbers, and narrower types are not slower", () => {
    for (const device of devices) {
      expect(opsPerByte(device), device.id).toBeGreaterThan(5);
      expect(opsPerByte(device, "f16"), device.id).toBeGreaterThanOrEqual(opsPerByte(device));
      expect(opsPerByte(device, "int8"), device.id).toBeGreaterThanOrEqual(
        opsPerByte(device, "f16"),
      );
    }
    expect(new Set(devices.map(({ id }) => id)).size).toBe(devices.length);
  });

  test("names: id, or the end of the full name", () => {
    expect(deviceNamed("RTX 4090")?.id).toBe("rtx4090");
    expect(deviceNamed("h100")?.id).toBeUndefined();
    expect(deviceNamed("H100 SXM")?.id).toBe("h100-sxm");
    expect(deviceNamed("m4 max")?.id).toBe("m4-max");
    expect(deviceNamed("")).toBeUndefined();
  });

  test("a type without a peak runs at the next wider one's", () => {
    const m1 = deviceNamed("m1")!;
    expect(deviceAtRate(m1, "int8").opsPerSecond.f32).toBe(m1.opsPerSecond.f32);
  });
});

describe("a graph with real types", () => {
  const model = (weightType: string): ModelHeader => {
    const { metadata, tensors } = tinyModel({ architecture: "qwen3", weightType });
    // The tiny model has every optional weight; a real Qwen3 has no biases.
    return { metadata, tensors: new Map([...tensors].filter(([name]) => !name.endsWith(".bias"))) };
  };
  const kv = dtypeByName("f16")!;
  const costOf = (weightType: string): ModelCost => {
    const { graph } = buildModel(model(weightType));
    return graphModelCost(graph, kv, 0);
  };
  // [headDim 16 of tinyMetadata]
  const shape = {
    vocabSize: tinyShape.vocab,
    layers: tinyShape.layers,
    embed: tinyShape.embed,
    feedForward: tinyShape.feedForward,
    heads: tinyShape.heads,
    kvHeads: tinyShape.kvHeads,
    headDim: 16,
    qkvBias: false,
    headNorms: true,
    tied: true,
  };

  test("float32: the shape's bytes, plus norms and embedding row; its arithmetic, plus what is between matmuls", () => {
    const real = costOf("f32");
    const ideal = shapeCost(shape, { weights: 32, kv: 16 });
    const norms = parameterCounts(shape).norms * 4;
    expect(real.weightBytes).toBe(ideal.weightBytes + norms);
    expect(real.rowBytes).toBe(shape.embed * 4);
    expect(real.kvBytes).toBe(ideal.kvBytes);
    for (const part of ["token", "output", "pair"] as const) {
      expect(real[part].int8Ops).toBe(0);
      const [all, matmuls] = [real[part], ideal[part]].map((ops) => ops.floatOps + ops.halfOps);
      expect(all! / matmuls!, part).toBeGreaterThan(0.98);
      expect(all! / matmuls!, part).toBeLessThan(1.2);
      expect(real[part].halfOps, part).toBe(ideal[part].halfOps);
    }
  });

  test("q8_0: the bytes of the tensors, and matmuls of small integers", () => {
    const real = costOf("q8_0");
    const tensors = [...model("q8_0").tensors.values()];
    const all = tensors.reduce((sum, tensor) => sum + weightBytes(tensor), 0);
    expect(real.weightBytes).toBe(all); // tied: the table is the head, and read as such
    const matmuls = tensors.filter(
      ({ shape: dims, name }) => dims.length === 2 && name !== "token_embd.weight",
    );
    const elements = matmuls.reduce((sum, { shape: dims }) => sum + dims[0]! * dims[1]!, 0);
    expect(real.token.int8Ops).toBe(2 * elements);
    expect(real.output.int8Ops).toBe(2 * tinyShape.vocab * tinyShape.embed);
  });
});

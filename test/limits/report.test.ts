// From names to a report and its picture: limits() of the public API with built-in configurations, a real file and a
// machine of our own. The formulas are other tests' business; here it is that the right numbers go into them.
// Held against: published tables, and files of known sizes.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  inspect,
  type LimitsReport,
  limits,
  limitsNames,
  limitsPicture,
  type MachineMeasurement,
} from "../../src/index.ts";
import { lengthsUpTo } from "../../src/limits/report.ts";
import { tinyFile } from "../support/tiny-file.ts";

const rate = (perSecond: number) => [
  { threads: 1, perSecond },
  { threads: 2, perSecond: 2 * perSecond },
];
const machine: MachineMeasurement = {
  cpu: "Slow CPU",
  cores: 2,
  memoryBytes: 2 ** 30,
  lowering: "none",
  readBytes: rate(1e9),
  f32Ops: rate(1e10),
  int8Ops: rate(4e10),
  measuredAt: "2026-01-02T03:04:05.000Z",
};
const here = { machine: async () => machine };

describe("a built-in configuration", () => {
  let report: LimitsReport;
  beforeAll(async () => {
    report = await limits("Qwen1.5 32B", {
      device: "rtx4090-article",
      counting: "article",
      weights: 4,
      context: 16384,
      speculation: { acceptance: 0.8, draft: "qwen1.5-0.5b" },
    });
  });

  test("the numbers are those of the published tables", () => {
    const { memory, prefill, decode } = report;
    expect(report.model).toMatchObject({ name: "Qwen1.5 32B", weightsText: "4 bits" });
    expect(memory.tokensThatFit).toBe(37778);
    expect(memory.tokensThatFitWithEmbedding).toBeLessThan(37778);
    expect(prefill.exact.points.map(({ tokens }) => Math.floor(tokens))).toEqual([21, 5964]);
    expect(prefill.rough.points.map(({ tokens }) => Math.floor(tokens))).toEqual([21, 6115]);
    expect(Math.round(decode.tokensPerMs)).toBe(4129);
    expect(decode.firstMs.toFixed(2)).toBe("14.66");
    expect(decode.rows.at(-1)).toMatchObject({ token: 16384, resource: "bandwidth" });
  });

  test("the gain curve goes through what is reported, and falls after its best point", () => {
    const { curve, bestDraftTokens, bestSpeedup, speedup, draftTokens } = report.speculation!;
    expect(curve.map((point) => point.draftTokens)).toEqual(curve.map((_, i) => i));
    expect(curve[0]!.speedup).toBeCloseTo(1, 9);
    expect(curve[draftTokens]!.speedup).toBe(speedup);
    expect(Math.max(...curve.map((point) => point.speedup))).toBe(bestSpeedup);
    expect(curve.at(-1)!.speedup).toBeLessThan(curve[bestDraftTokens]!.speedup);
  });

  test("effects: each variant is the model with that width, or without GQA", () => {
    const of = (what: string) => report.effects.find((effect) => effect.what === what);
    expect(report.effects.map(({ what }) => what)).toEqual([
      "as it is",
      "weights 16 bits",
      "weights 8 bits",
      "weights 6 bits",
      "KV 8 bits",
      "KV 4 bits",
      "without GQA",
    ]);
    expect(of("weights 16 bits")!.tokensThatFit).toBeUndefined();
    expect(of("weights 6 bits")!.tokensThatFit).toBe(7515);
    expect(of("KV 8 bits")!.tokensThatFit).toBe(75556);
    expect(of("without GQA")!.tokensThatFit).toBe(6531);
    expect(of("without GQA")!.turningPoints.map(Math.floor)).toEqual([21, 1215]);
  });

  test("speculation: the best number of tokens is taken where none is asked for", async () => {
    expect(report.speculation!.draftTokens).toBe(report.speculation!.bestDraftTokens);
    const asked = await limits("qwen1.5-32b", {
      device: "rtx4090-article",
      counting: "article",
      weights: 4,
      context: 16384,
      speculation: { acceptance: 0.8, draft: "qwen1.5-0.5b", draftTokens: 2 },
    });
    expect(asked.speculation).toMatchObject({
      draftTokens: 2,
      bestSpeedup: report.speculation!.speedup,
    });
  });

  test("it survives JSON: nothing in it is more than data", () => {
    // A NaN, an Infinity or a function would not come back.
    expect(JSON.parse(JSON.stringify(report))).toEqual(report);
  });

  test("--rate: all arithmetic at another peak; types as widths", async () => {
    const asF16 = await limits("qwen1.5-32b", { device: "rtx4090", weights: "Q4_0", rate: "f16" });
    expect(asF16.model.weightsText).toBe("q4_0 (4.5 bits)");
    expect(asF16.model.bits.weights).toBe(4.5);
    const asF32 = await limits("qwen1.5-32b", { device: "rtx4090", weights: "q4_0", rate: "f32" });
    const compute = ({ prefill }: LimitsReport) => prefill.rows.at(-1)!.computeMs;
    expect(compute(asF32) / compute(asF16)).toBeCloseTo(330.3 / 82.58, 6);
  });
});

describe("this machine", () => {
  test("threads, memory, date; quantized weights are matmuls of integers", async () => {
    const four = await limits("qwen2.5-0.5b", { ...here, weights: 4 });
    expect(four.device).toMatchObject({ name: "Slow CPU", bytesPerSecond: 2e9 });
    expect(four.device.source).toBe("measured 2026-01-02, 2 threads");
    expect(four.memory.bytes).toBe(2 ** 30);
    expect(four.cost.token.floatOps).toBe(0);
    expect(four.cost.token.int8Ops).toBe(2 * four.parameters.layers);
    const one = await limits("qwen2.5-0.5b", { ...here, threads: 1, memoryBytes: 2 ** 31 });
    expect(one.device.bytesPerSecond).toBe(1e9);
    expect(one.memory.bytes).toBe(2 ** 31);
    expect(one.cost.token.int8Ops).toBe(0); // 16 bits
    expect(one.cost.token.halfOps).toBe(2 * one.parameters.layers);
  });
});

describe("a file", () => {
  let file: Awaited<ReturnType<typeof tinyFile>>;
  beforeAll(async () => {
    file = await tinyFile({ weightType: "q8_0" });
  });
  afterAll(() => file.remove());

  test("bytes are those of its tensors", async () => {
    const [report, facts] = await Promise.all([limits(file.path, here), inspect(file.path)]);
    expect(report.memory.storedBytes).toBe(facts.memory!.weightBytes);
    expect(report.memory.kvBytesPerToken).toBe(facts.memory!.kvBytesPerToken);
    expect(report.model.source).toBe("gguf");
    expect(report.model.weightsText).toMatch(/^as stored: q8_0, \d+\.\d+ bits on average$/);
    expect(report.cost.token.int8Ops).toBeGreaterThan(0);
    expect(report.cost.rowBytes).toBe(34); // a q8_0 block: 32 values
    // The file has biases besides those of q, k and v, which no shape counts; norms are apart.
    const { total, norms } = report.parameters;
    const biases = facts.tensors.filter(({ name }) => /(?<!_[qkv])\.bias$/.test(name));
    const ofBiases = biases.reduce((sum, { shape }) => sum + shape[0]!, 0);
    expect(facts.parameters - ofBiases).toBe(total + norms);
  });

  test("other widths: as if it were stored so", async () => {
    const report = await limits(file.path, { ...here, weights: 16, kv: "q8_0" });
    expect(report.memory.weightBytes).toBe(2 * report.parameters.active);
    expect(report.memory.kvBytesPerToken).toBe((report.memory.kvParametersPerToken * 34) / 32);
    expect(report.model.weightsText).toMatch(/^16 bits \(its file has \d/);
    const stored = await limits(file.path, { ...here, kv: 8 });
    expect(stored.memory.kvBytesPerToken).toBe(stored.memory.kvParametersPerToken);
  });
});

describe("what is wrong is said", () => {
  const onDevice = { device: "rtx4090" };
  test.each([
    ["qwen1.5-7", onDevice, /"qwen1.5-7" is neither a file.*Did you mean qwen1.5-7b/],
    ["tinylama-1.1b", onDevice, /Did you mean tinyllama-1.1b/],
    ["no/such.gguf", onDevice, /there is no file or folder "no\/such.gguf"/],
    ["llama-3-8b", { device: "rtx4900" }, /device: "rtx4900" .*Did you mean rtx4090/],
    ["llama-3-8b", { device: "abacus" }, /Known: rtx3090, .*this machine/],
    ["llama-3-8b", { ...onDevice, weights: "q9" }, /weights: got "q9", expected bits .*q4_0/],
    ["llama-3-8b", { ...onDevice, kv: 0 }, /kv: got 0, expected bits/],
    ["llama-3-8b", { ...onDevice, kv: -4 }, /kv: got -4/],
    [
      "llama-3-8b",
      { bandwidth: 5 } as object,
      /limits\(\): unknown option "bandwidth". Known: device/,
    ],
    ["llama-3-8b", { threads: 0 }, /threads: got 0, expected a whole number above 0/],
    ["llama-3-8b", { ...onDevice, threads: 2 }, /threads: got 2 for the device "rtx4090"/],
    ["llama-3-8b", { ...onDevice, memoryBytes: Number.NaN }, /memoryBytes: got NaN/],
    ["llama-3-8b", { ...onDevice, rate: "f64" as "f32" }, /rate: got "f64", expected one of f32/],
    ["llama-3-8b", { ...onDevice, context: 0 }, /context: got 0, expected a whole number above 0/],
    [
      "llama-3-8b",
      { ...onDevice, speculation: { acceptance: 2, draft: 0 } },
      /acceptance: got 2, expected a probability/,
    ],
    [
      "llama-3-8b",
      { ...onDevice, speculation: { acceptance: 0.5, draft: "lama-3-8b" } },
      /"lama-3-8b" is neither.*Did you mean llama-3-8b/,
    ],
    [
      "llama-3-8b",
      { ...onDevice, measured: [] },
      /measured: the measurement: got no list "results"/,
    ],
    [
      "llama-3-8b",
      { ...onDevice, measured: { results: [{ test: "xx5" }] }, measuredName: "b.json" },
      /b.json: got results\[0\] has no test .*lantern bench -m MODEL --json > b.json/,
    ],
  ])("%s %o", async (model, options, message) => {
    await expect(limits(model, options)).rejects.toThrow(message);
  });

  test("nothing is measured for a name that is wrong", async () => {
    let measured = false;
    const options = {
      machine: async () => {
        measured = true;
        return machine;
      },
    };
    await expect(limits("lama-4", options)).rejects.toThrow(/lama-4/);
    expect(measured).toBe(false);
  });
});

describe("measured speeds and the picture", () => {
  const measured = {
    results: [
      { level: 3, threads: 2, test: "pp128", tokens_per_second: { median: 3000 } },
      { level: 3, threads: 2, test: "tg32", tokens_per_second: { median: 50 } },
    ],
  };

  test("a share of the limit: prompts by their arithmetic, generation by its bytes", async () => {
    const report = await limits("qwen1.5-7b", {
      device: "rtx4090-article",
      counting: "article",
      measured,
    });
    const [prompt, generation] = report.measured;
    const computeMs = report.prefill.rows.find(({ tokens }) => tokens === 128)!.computeMs;
    expect(prompt).toMatchObject({ kind: "prompt", tokens: 128, resource: "arithmetic" });
    expect(prompt!.fraction).toBeCloseTo(computeMs / (128_000 / 3000), 9);
    // Tokens 2 to 33, by W and B.
    const { firstMs, tokensPerMs } = report.decode;
    const ms = 32 * firstMs + (32 * 33) / 2 / tokensPerMs;
    expect(generation!.fraction).toBeCloseTo(ms / (32_000 / 50), 9);
    expect(generation).toMatchObject({ kind: "generation", resource: "bandwidth" });
  });

  test("the picture marks the turning points and the measured speeds, and is well-formed", async () => {
    const report = await limits("qwen1.5-7b", {
      device: "rtx4090-article",
      counting: "article",
      measured,
    });
    const svg = await limitsPicture(report);
    expect(svg).toContain("113 → limited by arithmetic");
    expect(svg).toContain("481 → limited by the KV cache");
    expect(svg.match(/<circle /g)).toHaveLength(2);
    expect(svg.match(/<path class="line /g)).toHaveLength(4);
    expect(svg).toContain("prefers-color-scheme: dark");
    expect(svg).not.toMatch(/NaN|Infinity|undefined/);
    expect(unclosed(svg)).toEqual([]);
    // Longer prompts than the context that was asked for are drawn where a turning point lies there.
    const small = await limits("qwen1.5-110b", {
      device: "rtx4090-article",
      counting: "article",
      context: 100,
    });
    expect(await limitsPicture(small)).toContain("17400 → limited by the KV cache");
  });

  test("speculation adds a panel with the gain", async () => {
    const options = { device: "rtx4090", speculation: { acceptance: 0.8, draft: "qwen1.5-0.5b" } };
    const report = await limits("qwen1.5-7b", options);
    const svg = await limitsPicture(report);
    const { bestDraftTokens, bestSpeedup, curve } = report.speculation!;
    expect(svg).toContain(`best: ${bestDraftTokens} drafted, ${bestSpeedup.toFixed(2)} times`);
    const [, path] = /class="line compute gain" d="([^"]*)"/.exec(svg)!;
    expect(path!.match(/[ML]/g)).toHaveLength(curve.length);
    expect(svg).not.toMatch(/NaN|Infinity|undefined/);
    expect(unclosed(svg)).toEqual([]);
  });

  test("a name cannot break the picture", async () => {
    const report = await limits("qwen1.5-7b", { device: "rtx4090" });
    const svg = await limitsPicture({ ...report, model: { ...report.model, name: '<&"x' } });
    expect(svg).toContain("&lt;&amp;&quot;x");
    expect(unclosed(svg)).toEqual([]);
  });
});

/** Tags that are opened and not closed, or the other way round. */
function unclosed(svg: string): string[] {
  const open: string[] = [];
  for (const [, slash, name, end] of svg.matchAll(/<(\/?)(\w+)[^<>]*?(\/?)>/g)) {
    if (slash) {
      if (open.pop() !== name) return [`</${name}>`];
    } else if (!end) {
      open.push(name!);
    }
  }
  return open;
}

test("lengths worth a line end with the context", () => {
  expect(lengthsUpTo(1)).toEqual([1]);
  expect(lengthsUpTo(4096)).toEqual([1, 32, 128, 512, 2048, 4096]);
  expect(lengthsUpTo(16384)).toHaveLength(12);
  expect(lengthsUpTo(131072).slice(4)).toEqual([1, 2, 3, 4, 5, 6, 7, 8].map((n) => n * 16384));
});

test("names: both lists, each entry found by its own name", async () => {
  const { models, devices } = await limitsNames();
  expect(models.length).toBeGreaterThan(20);
  expect(devices.map(({ id }) => id)).toContain("h200");
});

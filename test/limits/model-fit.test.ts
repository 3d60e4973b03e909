// What could run here: memory, limits and probable speeds on a machine that is made up, with real shapes and a real file;
// what runs reached is remembered and read again; the order of the list.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { bestFirst, listWithFits, weightType } from "../../apps/cli/model-fits.ts";
import type { MachineMeasurement } from "../../src/api/rates.ts";
import { catalog } from "../../src/catalog/catalog.ts";
import {
  limits,
  type ModelFit,
  type ModelInfo,
  modelFits,
  rememberSpeed,
  type Timings,
} from "../../src/index.ts";
import { shapeNamed } from "../../src/limits/configs.ts";
import { rememberedSpeeds } from "../../src/machine/speeds.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { probableShare } from "../../src/tools/limits/fit.ts";
import { tinyFile } from "../support/tiny-file.ts";

/** Reads 20 GB/s and computes more than that can feed. */
const machine: MachineMeasurement = {
  cpu: "made up",
  cores: 4,
  memoryBytes: 16e9,
  lowering: "none",
  readBytes: [{ threads: 4, perSecond: 20e9 }],
  f32Ops: [{ threads: 4, perSecond: 1e12 }],
  int8Ops: [{ threads: 4, perSecond: 4e12 }],
  measuredAt: "2026-11-15T00:00:00.000Z",
};
const here = { machine, memoryBytes: 16e9, freeBytes: 8e9, speeds: [] };
const four = { shape: "qwen3-4b", bytes: 2.5e9, type: "q4_k" };

describe("a model that is not here", () => {
  test("fits in what is free, or in what could be, or not at all", async () => {
    const fitting = async (freeBytes: number, memoryBytes: number) =>
      (await modelFits([four], { ...here, freeBytes, memoryBytes }))[0]!.fits;
    expect(await fitting(8e9, 16e9)).toBe("now");
    expect(await fitting(2e9, 16e9)).toBe("tight");
    expect(await fitting(2e9, 3e9)).toBe("no");
    const [large] = await modelFits([{ shape: "llama-3-70b", bytes: 40e9 }], {
      ...here,
      freeBytes: 99e9,
      memoryBytes: 99e9,
    });
    expect(large!.fits).toBe("no"); // more than the processor's memories can hold
  });

  test("its limit is that of limits(), and its speed a share of it", async () => {
    const [fit] = await modelFits([four], here);
    const { shape } = shapeNamed("qwen3-4b")!;
    const weights = (2.5e9 * 8) / 4_022_468_096;
    const report = await limits("qwen3-4b", {
      weights,
      context: 512,
      machine: async () => machine,
    });
    expect(fit!.limit).toBe(report.decode.rows.at(-1)!.tokensPerSecond);
    expect(fit!.limit).toBeGreaterThan(7);
    expect(fit!.limit).toBeLessThan(8.1); // 20 GB/s over 2.5 GB
    expect(fit).toMatchObject({ share: 0.6, basis: "other machines", runs: 0, contextSize: 4096 });
    expect(fit!.expected).toBeCloseTo(fit!.limit! * 0.6);
    const kvBytes = 2 * shape.layers * shape.kvHeads * shape.headDim * 2 * 4096;
    expect(fit!.needBytes).toBe(2.5e9 + kvBytes + 100e6);
  });

  test("without a measurement there is no speed; without a shape nothing is known", async () => {
    const [fit, unknown] = await modelFits([four, { bytes: 1e9 }], { ...here, machine: undefined });
    expect(fit).toMatchObject({ fits: "now", limit: undefined, expected: undefined });
    expect(unknown).toMatchObject({ fits: "unknown", needBytes: undefined });
  });
});

test("a file is asked itself", async () => {
  const file = await tinyFile();
  const broken = join(tmpdir(), `lantern-broken-${process.pid}.gguf`);
  writeFileSync(broken, "GGUF and nothing else");
  const runs = [{ type: "f32", bytes: 1, share: 0.5, at: "x" }];
  const [fit, damaged] = await modelFits(
    [
      { path: file.path, bytes: 1 },
      { path: broken, bytes: 1 },
    ],
    { ...here, speeds: runs },
  );
  expect(fit).toMatchObject({ fits: "now", share: 0.5, basis: "this type", runs: 1 });
  expect(fit!.hasChatTemplate).toBe(true);
  expect(fit!.limit).toBeGreaterThan(1000);
  expect(damaged).toMatchObject({ fits: "unknown", limit: undefined });
  file.remove();
  rmSync(broken);
});

test("the share is what runs of such models reached here, else what other machines do", () => {
  const run = (type: string, share: number, bytes = 1e9) => ({ type, share, bytes, at: "x" });
  const runs = [run("q4_k", 0.5), run("q4_k", 0.9), run("q4_k", 0.7), run("q8_0", 0.4, 4e9)];
  const large = (type: string) => ({ type, bytes: 9e9 });
  expect(probableShare(runs, large("q4_k"))).toEqual({ share: 0.9, basis: "this type", runs: 3 });
  expect(probableShare(runs, large("f16"))).toEqual({ share: 0.9, basis: "this machine", runs: 4 });
  const usual = { share: 0.6, basis: "other machines", runs: 0 };
  expect(probableShare([], large("f16"))).toEqual(usual);
  // A small model says nothing of a large one, nor a large one of a small one.
  expect(probableShare([run("f32", 0.1, 60e6)], large("f32"))).toEqual(usual);
  expect(probableShare(runs, { type: "q4_k", bytes: 60e6 })).toEqual(usual);
  const small = probableShare([run("f32", 0.1, 60e6)], { type: "f32", bytes: 145e6 });
  expect(small).toEqual({ share: 0.1, basis: "this type", runs: 1 });
});

describe("what runs reached", () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "lantern-speeds-"));
    vi.stubEnv("LANTERN_CACHE", folder);
  });
  afterEach(() => {
    vi.unstubAllEnvs();
    rmSync(folder, { recursive: true });
  });
  const info = {
    weightType: "q4_k",
    weightBytes: 1e9,
    backend: { placement: [] },
  } as unknown as ModelInfo;
  const reaching = (fraction: number, generatedTokens = 50): Timings =>
    ({ generatedTokens, limits: { generation: { fraction } } }) as unknown as Timings;

  test("is remembered, unless it says nothing", async () => {
    expect(await rememberedSpeeds()).toEqual([]);
    await rememberSpeed(info, reaching(0.63));
    await rememberSpeed(info, reaching(0.5, 3)); // too short
    await rememberSpeed(info, reaching(1.4)); // the limit is wrong
    await rememberSpeed(info, { ...reaching(0.5), limits: undefined } as unknown as Timings);
    const onGpu = { ...info, backend: { placement: [{ isDevice: true }] } } as unknown as ModelInfo;
    await rememberSpeed(onGpu, reaching(0.5));
    expect(await rememberedSpeeds()).toEqual([
      { type: "q4_k", bytes: 1e9, share: 0.63, at: expect.stringMatching(/^20/) },
    ]);
    const others = { cores: 1.5, ofCores: 2 };
    await rememberSpeed(info, { ...reaching(0.5), others }); // others were at work
    const quick = { ...reaching(0.5).limits!, quick: true };
    await rememberSpeed(info, { ...reaching(0.5), limits: quick }); // the limit is not exact
    expect(await rememberedSpeeds()).toHaveLength(1);
    for (let i = 0; i < 120; i++) await rememberSpeed(info, reaching(0.5));
    expect(await rememberedSpeeds()).toHaveLength(100);
  });

  test("of another processor, or in a damaged file, is not used", async () => {
    await rememberSpeed(info, reaching(0.63));
    const file = join(folder, "speeds.json");
    const text = readFileSync(file, "utf8");
    writeFileSync(file, text.replace(/"cores":\d+/, '"cores":999'));
    expect(await rememberedSpeeds()).toEqual([]);
    writeFileSync(file, text.slice(0, 30));
    expect(await rememberedSpeeds()).toEqual([]);
    await rememberSpeed(info, reaching(0.4));
    expect(await rememberedSpeeds()).toHaveLength(1);
  });
});

test("the best chat model that fits comes first", async () => {
  const answer = (fits: ModelFit["fits"], expected?: number) =>
    ({ fits, expected }) as unknown as ModelFit;
  const models = [
    { name: "story", chat: false, bytes: 6e7, fit: answer("now", 500) },
    { name: "large", chat: true, bytes: 40e9, fit: answer("no", 1) },
    { name: "small", chat: true, bytes: 6e8, fit: answer("now", 40) },
    { name: "slow", chat: true, bytes: 9e9, fit: answer("now", 2) },
    { name: "good", chat: true, bytes: 2.5e9, fit: answer("now", 8) },
    { name: "tight", chat: true, bytes: 12e9, fit: answer("tight", 2) },
  ];
  const names = bestFirst(models).map(({ name }) => name);
  expect(names).toEqual(["good", "small", "slow", "tight", "story", "large"]);
});

test("every chat model of the catalog has a shape that is known, and a size that goes with it", async () => {
  for (const { name, shape, bytes, chat, file } of catalog) {
    if (!chat) continue;
    const named = shapeNamed(shape ?? "");
    expect(named, name).toBeDefined();
    const report = await limits(named!.id, { device: "rtx4090", weights: 16 });
    const bits = (bytes * 8) / report.parameters.total;
    const type = weightType(file);
    const [least, most] =
      type === "q8_0" ? [8.4, 11.5] : type?.startsWith("q4") ? [4.5, 6] : [2, 3];
    expect(bits, name).toBeGreaterThan(least!);
    expect(bits, name).toBeLessThan(most!);
  }
});

test("the list on a machine of 16 GB: a 4B to 14B model first, and TinyLlama at 2 bits says what it is", async () => {
  const platform = nodeDownloadPlatform({ LANTERN_CACHE: "/nonexistent/lantern-test-cache" });
  const quick = { ...machine, readBytes: [{ threads: 4, perSecond: 80e9 }] };
  const listed = await listWithFits(platform, { ...here, machine: quick, freeBytes: 12e9 });
  expect(listed[0]).toMatchObject({ chat: true, fit: { fits: "now" } });
  expect(listed[0]!.bytes).toBeGreaterThan(4e9);
  expect(listed[0]!.fit.expected).toBeGreaterThanOrEqual(6);
  const [slowest] = await listWithFits(platform, { ...here, machine, freeBytes: 1.5e9 });
  expect(slowest!.bytes).toBeLessThan(1.2e9);
  const tiny = listed.find(({ name }) => name === "tinyllama-chat")!;
  expect(tiny.description).toMatch(/2 bits.*mistakes.*Hugging Face is out of reach/);
});

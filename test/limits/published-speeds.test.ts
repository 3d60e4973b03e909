// Published speeds by others compared with our limits: none may be above. Each line is a fact with its source.
// Averages of 4-bit K-quants are the file's size divided by its number of weights.

import { describe, expect, test } from "vitest";
import { limits } from "../../src/index.ts";

interface Published {
  readonly device: string;
  readonly model: string;
  /** Bits, or a type. */
  readonly weights: string | number;
  /** pp512: a prompt of 512 tokens; tg128: 128 tokens generated from nothing. */
  readonly test: `${"pp" | "tg"}${number}`;
  readonly speed: number;
  readonly source: string;
}

const llamaCpp = "github.com/ggml-org/llama.cpp";
const dai = "github.com/XiongjieDai/GPU-Benchmarks-on-LLM-Inference, README";
const geerling = "github.com/geerlingguy/ai-benchmarks";

/** What Q4_K_M files of Llama 3 8B (4.58 GiB) and TinyLlama 1.1B (636 MiB) have on average. */
const [q4km8b, q4km1b] = [4.89, 4.85];

const published: readonly Published[] = [
  // The speed that F32 arithmetic and a KV cache read for every token made impossible.
  row("rtx4090", "llama-3-8b", "q4_0", "pp512", 10358.75, `${llamaCpp}/pull/7676`),
  row("rtx4090", "llama-3-8b", 16, "pp512", 9382, dai),
  row("rtx4090", "llama-3-8b", 16, "pp8192", 4744.18, dai),
  row("rtx4090", "llama-3-8b", 16, "tg512", 54.84, dai),
  row("rtx4090", "llama-3-8b", q4km8b, "tg512", 130.58, dai),
  row("rtx4090", "tinyllama-1.1b", q4km1b, "tg128", 762.37, `${geerling}/issues/43`),
  row("rtx4090", "tinyllama-1.1b", q4km1b, "pp4096", 18709.17, `${geerling}/issues/43`),
  row("rtx3090", "llama-3-8b", 16, "pp512", 4444.65, dai),
  row("rtx3090", "llama-3-8b", 16, "tg512", 47.4, dai),
  row("rtx3090", "llama-3-8b", q4km8b, "tg512", 115.42, dai),
  row("rtx5090", "llama-3-8b", 4.5, "pp512", 14933.62, `${llamaCpp}/pull/24127`),
  row("a100-80gb", "llama-2-7b", 16, "pp512", 5105.77, dai),
  row("a100-80gb", "llama-2-7b", 16, "tg512", 73.83, dai),
  row("rx7900xtx", "llama-2-7b", "q4_0", "pp512", 4400, `${llamaCpp}/issues/20934`),
  row("rx7900xtx", "llama-2-7b", "q4_0", "tg128", 177, `${llamaCpp}/issues/20934`),
  row("rx7900xtx", "llama-3-8b", q4km8b, "tg64", 105.81, `${llamaCpp}/pull/26284`),
  row("m1-max", "llama-3-8b", 16, "pp512", 517.34, dai),
  row("m1-max", "llama-3-8b", 16, "tg512", 18.75, dai),
  row("m1-ultra", "tinyllama-1.1b", q4km1b, "pp512", 5587.84, `${geerling}/issues/48`),
  row("m1-ultra", "tinyllama-1.1b", q4km1b, "tg128", 242.56, `${geerling}/issues/48`),
  row("m2-ultra", "llama-2-7b", 16, "pp512", 1379.54, dai),
  row("m2-ultra", "llama-2-7b", 16, "tg512", 40.68, dai),
  row("m2-ultra", "llama-2-7b", "q4_0", "tg512", 91.89, dai),
  row("m3-max", "llama-2-7b", 16, "pp512", 761.4, dai),
  row("m3-max", "llama-2-7b", "q4_0", "tg512", 63.11, dai),
  row("m4", "llama-3-8b", q4km8b, "pp512", 224.81, "github.com/brand-o/normiebench/issues/3"),
  row("m4", "llama-3-8b", q4km8b, "tg128", 20.87, "github.com/brand-o/normiebench/issues/3"),
  // More than its float32 peak: bytes are multiplied as such.
  row(
    "ryzen-7950x",
    "llama-3-8b",
    4.25,
    "pp512",
    254,
    "github.com/ikawrakow/ik_llama.cpp/pull/128",
  ),
  row("raspberry-pi-5", "tinyllama-1.1b", "q8_0", "pp512", 45, "justine.lol/matmul"),
  row("raspberry-pi-5", "tinyllama-1.1b", "q8_0", "tg128", 9, "justine.lol/matmul"),
];

function row(
  device: string,
  model: string,
  weights: string | number,
  test: Published["test"],
  speed: number,
  source: string,
): Published {
  return { device, model, weights, test, speed, source };
}

async function limitOf({ device, model, weights, test, speed }: Published) {
  const measured = { results: [{ test, tokens_per_second: { median: speed } }] };
  const report = await limits(model, { device, weights, measured });
  return report.measured[0]!;
}

describe("no published speed is above its limit", () => {
  test.each(published)("$device, $model, $weights: $test at $speed ($source)", async (row) => {
    const { fraction, limitTokensPerSecond } = await limitOf(row);
    expect(limitTokensPerSecond).toBeGreaterThan(row.speed);
    // Nor is a limit so high that it says nothing.
    expect(fraction).toBeGreaterThan(0.05);
  });
});

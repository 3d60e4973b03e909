// Tiny random-weight models of every architecture, rope and weight type, against the logits that llama.cpp computed for
// the very same bytes. The files are made anew in memory; a golden file that belongs to other bytes fails at once.

import { describe, expect, test } from "vitest";
import type { LogitsResult } from "../../src/api/api.ts";
import type { Backend } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { nativeElsewhere, nativeHere } from "../support/native.ts";
import { readTinyGolden, sha256, type TinyGolden, tinyLogits } from "./tiny-golden.ts";
import {
  floatModels,
  quantizedModels,
  type TinySpec,
  tinyGguf,
  tinyPrompt,
} from "./tiny-models.ts";

/**
 * How far a logit may be away, by weight type. Beside F16 and BF16 weights, activations are rounded to that type, too:
 * llama.cpp's builds for two kinds of x86-64 differ by 0.006 on the F16 model.
 */
const tolerances: Readonly<Record<string, number>> = { f32: 1e-3, f16: 1e-2, bf16: 5e-2 };

/**
 * Beside these, ggml takes the offset's part of a product from a sum that q8_1 stores, rounded otherwise than the values
 * are; the reference takes it from the values.
 */
const withOffset: ReadonlySet<string> = new Set(["q4_1", "q5_1"]);

const contestants: [name: string, make: () => Backend][] = [
  ["reference", () => new ReferenceBackend()],
  ["cpu, opt level 2", () => new CpuBackend({ level: 2, threads: 1, startThread: undefined })],
  ["cpu, opt level 3", () => new CpuBackend({ level: 3, threads: 1, startThread: undefined })],
  ...nativeHere.map(({ name, native }): (typeof contestants)[number] => [
    `cpu, ${name}`,
    () => new CpuBackend({ level: 3, threads: 1, startThread: undefined, native }),
  ]),
];
test.skip.each(nativeElsewhere)("%s", () => {});

describe.each(contestants)("%s: weights in floats: llama.cpp's logits", (_, makeBackend) => {
  test.each(floatModels)("$name", async (model) => {
    const { got, golden } = await compute(model, 8, makeBackend());
    expectNorms(got, golden, 1e-3);
    expectLogits(got, golden, tolerances[model.weightType]!);
    for (const { position, top } of golden.top) {
      expect(idsOf(got, position, top.length)).toEqual(top.map(([id]) => id));
    }
    expect(got.greedy).toEqual(golden.greedy);
  });
});

describe.each(contestants)(
  "%s: weights in blocks, up to the rounding of activations",
  (_, makeBackend) => {
    test.each(quantizedModels)("$name", async (model) => {
      const { got, golden } = await compute(model, 0, makeBackend());
      // A last bit may send one activation to the next step: then some positions are off by up to 0.3% and 0.2.
      const differences = expectNorms(got, golden, 0.01);
      expectLogits(got, golden, 0.5);
      // The others agree, unless activations are rounded to another type than in ggml.
      const median = differences.toSorted((a, b) => a - b)[differences.length >> 1]!;
      expect(median).toBeLessThan(withOffset.has(model.weightType) ? 2e-3 : 1e-5);
      const clear = golden.top.filter(({ top }) => top[0]![1] - top[1]![1] > 0.5);
      expect(clear.length).toBeGreaterThan(0);
      for (const { position, top } of clear) expect(idsOf(got, position, 1)).toEqual([top[0]![0]]);
    });
  },
);

const made = new Map<string, Uint8Array>();

async function compute(
  model: TinySpec,
  greedy: number,
  backend: Backend,
): Promise<{ got: LogitsResult; golden: TinyGolden }> {
  const golden = readTinyGolden(model.name);
  const gguf = made.get(model.name) ?? (await tinyGguf(model));
  made.set(model.name, gguf); // quantizing is most of the work
  expect(sha256(gguf), "the file that llama.cpp saw").toBe(golden.sha256);
  return { got: await tinyLogits(gguf, greedy, backend), golden };
}

/** The relative differences of all positions, all checked. */
function expectNorms(got: LogitsResult, golden: TinyGolden, tolerance: number): number[] {
  expect(golden.norms.length).toBe(tinyPrompt.length);
  const differences = golden.norms.map((norm, i) => Math.abs(got.positions[i]!.norm / norm - 1));
  expect(Math.max(...differences)).toBeLessThan(tolerance);
  return differences;
}

function expectLogits(got: LogitsResult, golden: TinyGolden, tolerance: number): void {
  for (const { position, top } of golden.top) {
    const logits = new Map(got.positions[position]!.top);
    const differences = top.map(([id, logit]) => Math.abs(logits.get(id)! - logit));
    expect(Math.max(...differences), `position ${position}`).toBeLessThan(tolerance);
  }
}

function idsOf(got: LogitsResult, position: number, count: number): number[] {
  return got.positions[position]!.top.slice(0, count).map(([id]) => id);
}

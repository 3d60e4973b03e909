// Scores of classifiers ("rank"): what the head makes of the first token's state, or of the mean over the text, computed here
// from the model's weights. Held against llama.cpp's scores by hand: no file of ../shared/archs has a classifier.

import { describe, expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { vectorsOf } from "../models/encoder-golden.ts";
import { tinyEngine, tinyModel, tinyShape } from "../support/tiny-engine.ts";

const { embed } = tinyShape;
const texts = [[5, 7, 9, 11], [3], [20, 4, 8, 15, 16, 23, 42]];

const backends: readonly [string, () => Backend][] = [
  ["reference", () => new ReferenceBackend()],
  [
    "wasm",
    () => new CpuBackend({ level: 3, threads: 1, startThread: undefined, native: "a test" }),
  ],
];

describe.each(backends)("%s", (_, backend) => {
  test.each(["bert", "neo-bert"])("%s: two layers over the first token", async (architecture) => {
    const { weight, engine } = await load(architecture, backend());
    const first = await vectorsOf(engine, texts, "cls");
    const expected = first.map((state) => {
      const inner = times(weight("cls.weight"), state).map((value, i) => {
        return Math.tanh(value + weight("cls.bias")[i]!);
      });
      return times(weight("cls.output.weight"), inner)[0]! + weight("cls.output.bias")[0]!;
    });
    await expectScores(engine, expected);
  });

  test("jina-bert-v2: one layer", async () => {
    const { weight, engine } = await load("jina-bert-v2", backend());
    const first = await vectorsOf(engine, texts, "cls");
    const expected = first.map((state) =>
      Math.tanh(times(weight("cls.weight"), state)[0]! + weight("cls.bias")[0]!),
    );
    await expectScores(engine, expected);
  });

  test("modern-bert: the mean over the text, GELU, a norm", async () => {
    const { weight, engine } = await load("modern-bert", backend());
    const means = await vectorsOf(engine, texts, "mean");
    const expected = means.map((mean) => {
      const inner = times(weight("cls.weight"), mean).map((value, i) => {
        return gelu(value + weight("cls.bias")[i]!);
      });
      const average = inner.reduce((sum, value) => sum + value, 0) / embed;
      const variance = inner.reduce((sum, value) => sum + (value - average) ** 2, 0) / embed;
      const normed = inner.map((value, i) => {
        return ((value - average) / Math.sqrt(variance + 1e-5)) * weight("cls.norm.weight")[i]!;
      });
      return times(weight("cls.output.weight"), normed)[0]! + weight("cls.output.bias")[0]!;
    });
    await expectScores(engine, expected);
  });
});

type Loaded = Awaited<ReturnType<typeof tinyEngine>>;

async function load(
  architecture: string,
  backend: Backend,
): Promise<{ engine: Loaded; weight: (name: string) => Float32Array }> {
  const { bytes } = tinyModel({ architecture });
  const engine = await tinyEngine({ architecture, backend });
  const weight = (name: string) => new Float32Array(bytes.get(name)!.slice().buffer);
  return { engine, weight };
}

async function expectScores(engine: Loaded, expected: readonly number[]): Promise<void> {
  expect(engine.info.embedding?.labels).toEqual([]);
  const scores = await vectorsOf(engine, texts, "rank");
  scores.forEach((score, i) => {
    expect(score.length).toBe(1);
    expect(score[0]).toBeCloseTo(expected[i]!, 4);
  });
  engine.dispose();
}

/** [outputs, embed] times a vector. */
function times(matrix: Float32Array, x: ArrayLike<number>): number[] {
  return Array.from({ length: matrix.length / x.length }, (_, row) => {
    let sum = 0;
    for (let i = 0; i < x.length; i++) sum += matrix[row * x.length + i]! * x[i]!;
    return sum;
  });
}

function gelu(x: number): number {
  return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
}

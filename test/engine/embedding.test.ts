// Texts as vectors: against llama.cpp's, and against themselves on a tiny model.

import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AbortedError, ContextError, type Model, open, UsageError } from "../../src/index.ts";
import { describeShared, sharedPath } from "../support/shared.ts";
import { tinyFile } from "../support/tiny-file.ts";

let file: Awaited<ReturnType<typeof tinyFile>>;
let model: Model;
beforeAll(async () => {
  file = await tinyFile();
  model = await open(file.path, { kvType: "f32", contextSize: 128 });
});
afterAll(async () => {
  await model.dispose();
  file.remove();
});

const text = "the cat sat a while and ate eels and a tea at the sea";

describe("embed()", () => {
  test("the mean is the mean of what the last token of every beginning has", async () => {
    const ids = await model.tokenize(text);
    expect(ids.length).toBeGreaterThan(32); // more than one batch
    const beginnings = ids.map((_, at) => ids.slice(0, at + 1));
    const last = await model.embed(beginnings, { pooling: "last", normalize: false });
    const [mean] = await model.embed([text], { pooling: "mean", normalize: false });
    expect(mean!.tokens).toBe(ids.length);
    mean!.vector.forEach((value, i) => {
      const expected = last.reduce((sum, { vector }) => sum + vector[i]!, 0) / ids.length;
      expect(value).toBeCloseTo(expected, 4);
    });
  });

  test("vectors have length 1 unless told otherwise, and point the same way", async () => {
    const [unit] = await model.embed([text]);
    const [plain] = await model.embed([text], { normalize: false });
    expect(norm(unit!.vector)).toBeCloseTo(1, 5);
    expect(norm(plain!.vector)).not.toBeCloseTo(1, 1);
    expect(cosine(unit!.vector, plain!.vector)).toBeCloseTo(1, 5);
  });

  test("plain TypeScript and SIMD agree", async () => {
    const reference = await open(file.path, { kvType: "f32", level: 1 });
    for (const pooling of ["mean", "last"] as const) {
      const [a] = await reference.embed([text], { pooling });
      const [b] = await model.embed([text], { pooling });
      expect(cosine(a!.vector, b!.vector)).toBeGreaterThan(0.99999);
    }
    await reference.dispose();
  });

  test("what cannot be", async () => {
    await expect(model.embed([[]])).rejects.toBeInstanceOf(UsageError);
    await expect(model.embed(["a".repeat(500)])).rejects.toBeInstanceOf(ContextError);
    await expect(model.embed([text], { pooling: "max" as "mean" })).rejects.toThrow(
      /"max", expected one of none, mean, cls, last, rank/,
    );
    const signal = AbortSignal.abort();
    await expect(model.embed([text], { signal })).rejects.toBeInstanceOf(AbortedError);
  });
});

describeShared("against llama.cpp", "models/stories15M/stories15M-Q8_0.gguf", () => {
  const golden = JSON.parse(
    readFileSync(new URL("data/embeddings-stories15M-Q8_0.json", import.meta.url), "utf8"),
  ) as { embeddings: { text: string; vector: number[] }[] };

  test("the last token's state points the same way, and is as long", async () => {
    const stories = await open(sharedPath("models/stories15M/stories15M-Q8_0.gguf"));
    const texts = golden.embeddings.map((entry) => entry.text);
    const ours = await stories.embed(texts, { pooling: "last", normalize: false });
    golden.embeddings.forEach(({ vector }, at) => {
      expect(cosine(ours[at]!.vector, vector)).toBeGreaterThan(0.9995);
      expect(norm(ours[at]!.vector) / norm(vector)).toBeCloseTo(1, 2);
    });
    await stories.dispose();
  });
});

function dot(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}

function norm(a: ArrayLike<number>): number {
  return Math.sqrt(dot(a, a));
}

function cosine(a: ArrayLike<number>, b: ArrayLike<number>): number {
  return dot(a, b) / (norm(a) * norm(b));
}

// embed() and rerank() as a caller sees them: norms, prefixes, dimensions, progress, and scores in their order. What the vectors
// are is test/engine/embedding.test.ts's business and that of the encoders' golden tests.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { normalized } from "../../src/base/vectors.ts";
import {
  AbortedError,
  ContextError,
  cosineSimilarity,
  type EmbedProgress,
  embeddingPrefix,
  type Model,
  open,
  UsageError,
} from "../../src/index.ts";
import { tinyEncoder } from "../support/tiny-encoder.ts";
import { tinyFile } from "../support/tiny-file.ts";

let encoder: Model;
let decoder: Model;
const files: { remove(): void }[] = [];
beforeAll(async () => {
  const one = await tinyEncoder({
    more: [["general.name", { type: "string", value: "E5 Base V2" }]],
  });
  const other = await tinyFile();
  files.push(one, other);
  const how = { threads: 1, level: 1, contextSize: 64 } as const;
  [encoder, decoder] = await Promise.all([open(one.path, how), open(other.path, how)]);
});
afterAll(async () => {
  await Promise.all([encoder.dispose(), decoder.dispose()]);
  for (const file of files) file.remove();
});

const texts = ["the cat sat", "eels at sea", "a"];

describe("norms", () => {
  const vector = Float32Array.from([3, -4, 0]);

  test.each([
    [-1, [3, -4, 0]],
    [0, [24570, -32760, 0]],
    [1, [3 / 7, -4 / 7, 0]],
    [2, [0.6, -0.8, 0]],
    [3, [3 / 91 ** (1 / 3), -4 / 91 ** (1 / 3), 0]],
    [1000, [0.75, -1, 0]], // no power of it leaves the range of numbers
  ])("%i is llama.cpp's", (norm, expected) => {
    normalized(vector, norm).forEach((value, i) => {
      expect(value).toBeCloseTo(expected[i]!, 5);
    });
  });

  test("zeros stay zeros, and are like each other and like nothing else", () => {
    const zeros = new Float32Array(3);
    for (const norm of [-1, 0, 1, 2, 3]) expect(normalized(zeros, norm)).toEqual(zeros);
    expect(cosineSimilarity(zeros, zeros)).toBe(1);
    expect(cosineSimilarity(zeros, vector)).toBe(0);
    expect(cosineSimilarity(vector, vector)).toBeCloseTo(1, 12);
    expect(cosineSimilarity([1, 0], [0, 2])).toBe(0);
  });
});

describe("embed()", () => {
  test("scales by any norm what -1 leaves as it is; true and false are 2 and -1", async () => {
    const plain = await encoder.embed(texts, { normalize: -1 });
    expect(await encoder.embed(texts, { normalize: false })).toEqual(plain);
    expect(await encoder.embed(texts)).toEqual(await encoder.embed(texts, { normalize: 2 }));
    for (const norm of [0, 1, 2, 3]) {
      const scaled = await encoder.embed(texts, { normalize: norm });
      const vectors = plain.map(({ vector }) => normalized(vector, norm));
      expect(scaled.map(({ vector }) => vector)).toEqual(vectors);
    }
  });

  test("dimensions cut before the vector is scaled, of tokens each one", async () => {
    const [plain] = await encoder.embed(["the cat"], { normalize: false });
    const [short] = await encoder.embed(["the cat"], { dimensions: 5 });
    expect(short!.vector).toEqual(normalized(plain!.vector.subarray(0, 5), 2));
    const [all] = await encoder.embed(["the cat"], { pooling: "none", normalize: false });
    const [cut] = await encoder.embed(["the cat"], { pooling: "none", dimensions: 5 });
    expect(cut!.vector).toHaveLength(5 * cut!.tokens);
    expect(cut!.vector.subarray(5, 10)).toEqual(normalized(all!.vector.subarray(32, 37), 2));
  });

  test("puts before texts what the model's card asks for, if it is told to, and says it", async () => {
    for (const [as, prefix] of [
      ["query", "query: "],
      ["passage", "passage: "],
    ] as const) {
      const found = await encoder.embed(texts, { as });
      const own = await encoder.embed(texts.map((text) => prefix + text));
      expect(found).toEqual(own.map((one) => ({ ...one, prefix })));
    }
    expect((await encoder.embed(texts))[0]).not.toHaveProperty("prefix");
    await expect(encoder.embed([[5, 6]], { as: "query" })).rejects.toThrow(
      /expected a text: with "as", something is put before it/,
    );
    await expect(decoder.embed(texts, { as: "query" })).rejects.toThrow(
      /not known what tiny \(llama\) expects before a query/,
    );
  });

  test("says how far it is, over any number of texts", async () => {
    const seen: EmbedProgress[] = [];
    const many = Array.from({ length: 300 }, (_, i) => [5 + (i % 200)]);
    const found = await encoder.embed(many, { onProgress: (now) => seen.push(now) });
    expect(found).toHaveLength(300);
    expect(seen.map(({ doneTexts }) => doneTexts)).toEqual(many.map((_, i) => i + 1));
    expect(seen.every(({ totalTexts }) => totalTexts === 300)).toBe(true);
  });

  test.each([
    [{ normalize: -2 }, /normalize: got -2, expected true, false, or -1/],
    [{ normalize: 1.5 }, /normalize: got 1.5/],
    [{ dimensions: 33 }, /dimensions: got 33, expected a whole number from 1 to 32/],
    [{ dimensions: 0 }, /dimensions: got 0/],
    [{ dimensions: 5, pooling: "rank" }, /dimensions: .* pooling "rank", which gives scores/],
    [{ as: "title" }, /as: got "title", expected "query" or "passage"/],
    [{ pooled: "mean" }, /embed\(\): unknown option "pooled"/],
  ])("refuses %j", async (options, message) => {
    const wrong = encoder.embed(texts, options as object);
    await expect(wrong).rejects.toThrow(message);
    await expect(wrong).rejects.toBeInstanceOf(UsageError);
  });
});

describe("rerank()", () => {
  test("scores the query with each document, the best first", async () => {
    const { results, tokens } = await encoder.rerank("the cat", texts);
    expect(results.map(({ index }) => index).sort()).toEqual([0, 1, 2]);
    const scores = results.map(({ score }) => score);
    expect(scores).toEqual(scores.toSorted((a, b) => b - a));
    for (const { index, score, document } of results) {
      expect(document).toBe(texts[index]);
      const [query, own] = await Promise.all(
        ["the cat", document].map((text) => encoder.tokenize(text, { addBos: false })),
      );
      // This vocabulary has BOS and no separator.
      const [alone] = await encoder.embed([[1, ...query!, ...own!]], { pooling: "rank" });
      expect(score).toBe(alone!.vector[0]);
    }
    const best = await encoder.rerank("the cat", texts, { topN: 1 });
    expect(best).toEqual({ results: results.slice(0, 1), tokens });
  });

  test("equal scores keep their order, no documents are none", async () => {
    const { results } = await encoder.rerank("the", ["a", "cat", "a", "cat"]);
    const places = (text: string) =>
      results.filter(({ document }) => document === text).map(({ index }) => index);
    expect([places("a"), places("cat")]).toEqual([
      [0, 2],
      [1, 3],
    ]);
    expect(await encoder.rerank("the", [])).toEqual({ results: [], tokens: 0 });
  });

  test("says how far it is, and stops", async () => {
    const seen: number[] = [];
    await encoder.rerank("a", texts, { onProgress: ({ doneTexts }) => seen.push(doneTexts) });
    expect(seen).toEqual([1, 2, 3]);
    const signal = AbortSignal.abort();
    await expect(encoder.rerank("a", texts, { signal })).rejects.toBeInstanceOf(AbortedError);
  });

  test("what cannot be", async () => {
    const none = decoder.rerank("a", texts);
    await expect(none).rejects.toThrow(/tiny has no classifier that could score documents/);
    await expect(encoder.rerank("a", ["e".repeat(200)])).rejects.toBeInstanceOf(ContextError);
    for (const [query, documents] of [
      [5, texts],
      ["a", "text"],
      ["a", [5]],
    ] as unknown as [string, string[]][]) {
      await expect(encoder.rerank(query, documents)).rejects.toBeInstanceOf(UsageError);
    }
    await expect(encoder.rerank("a", texts, { topN: 0 })).rejects.toThrow(/topN: got 0/);
  });
});

test.each([
  ["nomic-embed-text-v1.5", "x", "search_query: ", "search_document: "],
  ["some name", "nomic-bert-moe", "search_query: ", "search_document: "],
  ["Bge Small En V1.5", "bert", "Represent this sentence for searching relevant passages: ", ""],
  ["bge-m3", "bert", "", ""],
  ["embeddinggemma-300M", "x", "task: search result | query: ", "title: none | text: "],
  ["multilingual-e5-large-instruct", "bert", /^Instruct: .*\nQuery: $/, ""],
  ["Multilingual E5 Small", "bert", "query: ", "passage: "],
  ["Qwen3 Embedding 0.6B", "qwen3", /^Instruct: .*\nQuery:$/, ""],
  ["x", "jina-bert-v3", /evidence documents: $/, "Represent the document for retrieval: "],
  ["snowflake-arctic-embed-l-v2.0", "bert", "query: ", ""],
  ["snowflake-arctic-embed-m", "bert", /relevant passages: $/, ""],
])("the prefixes of %s (%s)", (name, architecture, query, passage) => {
  const prefix = (role: "query" | "passage") => embeddingPrefix({ name, architecture }, role);
  expect(prefix("query")).toEqual(typeof query === "string" ? query : expect.stringMatching(query));
  expect(prefix("passage")).toBe(passage);
});

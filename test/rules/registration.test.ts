// "One file and one line": a tensor type, an architecture and a backend are added from here, by the functions that the
// tables themselves use, and a model made of all three is read and run. If core had to change for one, this test could
// not be written. And what would force core to change, names of types and architectures in its code, is looked for.
// Held against: a model that is read and run.

import { describe, expect, test } from "vitest";
import { allBackends, registerBackend } from "../../src/backends/table.ts";
import { allDTypes, dtypeByGgufId, dtypeByName, registerDType } from "../../src/dtypes/table.ts";
import { computeLogits } from "../../src/engine/compute-logits.ts";
import { Engine } from "../../src/engine/engine.ts";
import type { EngineParts } from "../../src/engine/engine-parts.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import { allArchs, archNamed, registerArch } from "../../src/models/table.ts";
import { filesModelSource } from "../../src/platform/sources/blob.ts";
import type { Tokenizer } from "../../src/tokenizers/tokenizer.ts";
import { CountingBackend, fakeArch, fakeDType, fakeLogits, fakeModelFile, sizes } from "./fakes.ts";
import { importsOf, programFolders, resolveImport, sourceFiles, tokenize } from "./scan.ts";

const builtInDTypes: readonly string[] = allDTypes().map((dtype) => dtype.name);
const builtInArchs: readonly string[] = allArchs().flatMap((arch) => arch.names);
const builtInBackends: readonly string[] = allBackends().map((backend) => backend.name);

describe("a type, an architecture and a backend from outside", () => {
  test("are unknown before, and found after they are registered", () => {
    expect(dtypeByName(fakeDType.name)).toBeUndefined();
    expect(() => archNamed("testnet")).toThrow(/"testnet", which Lantern does not support/);
    registerDType(fakeDType);
    registerArch(fakeArch);
    registerBackend({
      name: "counting",
      available: () => true,
      create: () => new CountingBackend(),
    });
    expect(dtypeByName(fakeDType.name)).toBe(fakeDType);
    expect(dtypeByGgufId(fakeDType.ggufId)).toBe(fakeDType);
    expect(archNamed("testnet")).toBe(fakeArch);
    expect(allBackends()[0]!.name).toBe("counting");
  });

  test("run a model that is made of them, exactly", async () => {
    const file = await openModelFile(await filesModelSource([await fakeModelFile()]));
    expect(file.tensors.get("up.weight")!.dtype).toBe(fakeDType);
    const backend = allBackends()[0]!.create({
      level: 1,
      threads: 1,
      startThread: undefined,
    }) as CountingBackend;
    const parts: EngineParts = {
      name: file.name,
      format: file.format,
      metadata: file.metadata,
      tensors: file.tensors,
      readTensor: (name, target, at) => file.readTensor(file.tensors.get(name)!, target, at),
      tokenizer: { vocabSize: 0, special: {}, endTokens: [] } as unknown as Tokenizer,
      template: undefined,
      backend,
    };
    const kvType = dtypeByName("f32")!;
    const watch = { progress: () => {}, check: () => {} };
    const engine = await Engine.load(parts, { contextSize: undefined, kvType }, watch);
    await file.close();
    expect(engine.info).toMatchObject({ architecture: "testnet", weightType: fakeDType.name });

    const tokens = [3, 0, 5, 3, 1, 4, 2];
    const control = { aborted: false, yieldThread: async () => {}, now: () => 0 };
    const options = { top: sizes.vocab, greedy: 0 };
    const { positions } = await computeLogits(engine, tokens, options, control);
    const logits = positions.map(({ top }) => [...top].sort((a, b) => a[0] - b[0]));
    expect(logits).toEqual(tokens.map((token) => [...fakeLogits(token).entries()]));
    expect(new Set(logits.flat(2)).size).toBeGreaterThan(20); // not all zeros
    expect(backend.batches).toBe(1);
    engine.dispose();
  });

  test("cannot take a name that is taken", () => {
    expect(() => registerDType({ ...fakeDType, ggufId: 7002 })).toThrow(/collides with "test_p4"/);
    expect(() => registerDType({ ...fakeDType, name: "other" })).toThrow(/collides with "test_p4"/);
    expect(() => registerArch(fakeArch)).toThrow(/"testnet" is registered already/);
  });
});

/** Where a name of a type or an architecture may stand as text, besides its own file, and what it means there. */
const allowed: readonly { file: string; names: readonly string[]; why: string }[] = [
  {
    file: "apps/cli/launch/clients/qwen.ts",
    names: ["qwen"],
    why: "the name of a program, Qwen Code",
  },
  {
    file: "apps/cli/commands/logits.ts",
    names: ["f32"],
    why: "the KV type that golden logits are compared with",
  },
  {
    file: "src/models/embed-prefixes.ts",
    names: ["nomic-bert", "nomic-bert-moe", "gemma-embedding", "jina-bert-v2", "jina-bert-v3"],
    why: "families of models whose cards ask for the same prefixes",
  },
  {
    file: "apps/server/reasoning-fields.ts",
    names: ["deepseek"],
    why: "llama.cpp's name for reasoning in a field of its own",
  },
  { file: "src/chat/built-in.ts", names: ["command-r"], why: "the name of a chat template" },
  {
    file: "src/graph/builder.ts",
    names: ["f32"],
    why: "the type of numbers that are not in the file",
  },
  { file: "apps/cli/commands/inspect.ts", names: ["f32"], why: "a metadata value type of GGUF" },
  { file: "src/tools/verify/compose.ts", names: ["f32"], why: "the KV type that rounds nothing" },
  {
    file: "src/kernels/ops/attention/kv-formats.ts",
    names: ["f16", "bf16", "q8_0"],
    why: "how each type of KV cache is read by a kernel",
  },
  {
    file: "src/kernels/ops/attention/kv-nibbles.ts",
    names: ["q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"],
    why: "the same for types with blocks of nibbles",
  },
  {
    file: "src/kernels/ops/matmul/floats.ts",
    names: ["f16", "bf16"],
    why: "the float types that the IR loads",
  },
  {
    file: "src/kernels/ops/elementwise/widen.ts",
    names: ["f16", "bf16"],
    why: "the half float types that are widened",
  },
  {
    file: "src/backends/cpu/memory/float-panels.ts",
    names: ["f32", "f16", "bf16"],
    why: "the float types that have tiles",
  },
  {
    file: "src/backends/cpu/ops/matmul-activations.ts",
    names: ["f32"],
    why: "f32 activations need no rounding",
  },
  {
    file: "src/backends/cpu/ops/matmul-lower.ts",
    names: ["f32"],
    why: "what tiles of half floats are widened to",
  },
  {
    file: "src/backends/cpu/ops/matmul-kernels.ts",
    names: ["f32"],
    why: "what tiles of half floats are widened to",
  },
  {
    file: "apps/cli/commands/limits.ts",
    names: ["f32", "f16"],
    why: "the factors that a data sheet has peaks for",
  },
  { file: "src/tools/limits/model-facts.ts", names: ["f16"], why: "the type of a KV cache" },
  {
    file: "src/tools/limits/config-header.ts",
    names: ["f16", "f32"],
    why: "the types of weights that no file has",
  },
  {
    file: "src/tune/matmul-graph.ts",
    names: ["f32"],
    why: "the activations that meet the weights",
  },
  {
    file: "src/tune/identity.ts",
    names: ["f32"],
    why: "the matrix kernel of floats is that of f32",
  },
  { file: "src/tune/api.ts", names: ["q4_0"], why: "the type that is tuned when none is named" },
  {
    file: "src/tools/convert/types.ts",
    names: ["f32", "f16"],
    why: "what every value fits into, and what rows without whole blocks become",
  },
  { file: "src/tools/convert/entries.ts", names: ["f32"], why: "a metadata value type of GGUF" },
  {
    file: "src/tools/quantize/file-types.ts",
    names: [
      ...["f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k"],
      ...["q5_k", "q6_k", "iq4_nl", "iq4_xs", "iq3_xxs", "iq3_s", "iq2_xxs", "iq2_xs", "iq2_s"],
      ...["iq1_s", "iq1_m", "tq1_0", "tq2_0", "mxfp4"],
      "llama-embed",
    ],
    why: "the table of file types: which tensor types each mixes, and which models count as large",
  },
  {
    file: "src/formats/gguf/powerinfer.ts",
    names: ["llama", "q8_0", "f32"],
    why: "the architecture of PowerInfer's files that is read, and the types of a transposed matrix",
  },
  {
    file: "src/models/predictor.ts",
    names: ["f32"],
    why: "the type of the bias of scores",
  },
  {
    file: "src/tools/sparsify/sparsify.ts",
    names: ["f32"],
    why: "the type of the bias of scores",
  },
  {
    file: "src/tools/sparsify/api.ts",
    names: ["q8_0", "q4_0", "f16"],
    why: "the types that predictors can be written in, and that of a KV cache",
  },
  {
    file: "src/tools/quantize/importance.ts",
    names: ["f32"],
    why: "the type of sums in an importance matrix",
  },
  {
    file: "src/tools/convert/vocabulary.ts",
    names: ["llama", "gpt2"],
    why: "values of tokenizer.ggml.model",
  },
  {
    file: "src/formats/safetensors.ts",
    names: ["f32", "f16", "bf16"],
    why: "the table of that format's own type names",
  },
  {
    file: "src/formats/llama2c.ts",
    names: ["f32", "llama"],
    why: "that format knows one type and one architecture",
  },
  {
    file: "src/formats/huggingface-families.ts",
    names: [
      "apertus",
      "arcee",
      "bitnet",
      "bloom",
      "cohere2",
      "deepseek",
      "dots1",
      "ernie4_5",
      "exaone",
      "exaone4",
      "falcon",
      "gemma",
      "gemma2",
      "gemma3",
      "glm4",
      "gpt2",
      "granite",
      "granitemoe",
      "internlm2",
      "jamba",
      "lfm2",
      "llama",
      "llama4",
      "mamba",
      "mamba2",
      "minicpm",
      "mistral3",
      "mpt",
      "nemotron",
      "nemotron_h",
      "olmo",
      "olmo2",
      "olmoe",
      "phi3",
      "phimoe",
      "qwen2",
      "qwen3",
      "seed_oss",
      "smollm3",
      "stablelm",
      "starcoder2",
    ],
    why: "the table of Hugging Face's model_type",
  },
  {
    file: "src/formats/huggingface-dense.ts",
    names: [
      "apertus",
      "arcee",
      "bitnet",
      "chatglm",
      "cohere2",
      "command-r",
      "ernie4_5",
      "exaone",
      "exaone4",
      "f32",
      "gemma",
      "gemma2",
      "gemma3",
      "glm4",
      "granite",
      "hunyuan-dense",
      "internlm2",
      "llama",
      "minicpm",
      "mistral3",
      "nemotron",
      "olmo",
      "olmo2",
      "phi2",
      "phi3",
      "qwen2",
      "qwen3",
      "seed_oss",
      "smollm3",
      "stablelm",
    ],
    why: "names of architectures that folders become; f32 is a metadata value type, mxfp4 a quant_method",
  },
  {
    file: "src/formats/huggingface-gpt.ts",
    names: ["bloom", "falcon", "gpt2", "gptneox", "mpt", "starcoder", "starcoder2"],
    why: "names of architectures that folders become; f32 is a metadata value type, mxfp4 a quant_method",
  },
  {
    file: "src/formats/huggingface-moe.ts",
    names: [
      "bailingmoe",
      "bailingmoe2",
      "deepseek",
      "deepseek2",
      "dots1",
      "ernie4_5-moe",
      "f32",
      "glm4moe",
      "gpt-oss",
      "granitemoe",
      "grok",
      "hunyuan-moe",
      "llama",
      "llama4",
      "minimax-m2",
      "mxfp4",
      "olmoe",
      "phimoe",
      "qwen2moe",
      "qwen3moe",
    ],
    why: "names of architectures that folders become; f32 is a metadata value type, mxfp4 a quant_method",
  },
  {
    file: "src/formats/huggingface-recurrent.ts",
    names: ["jamba", "lfm2", "lfm2moe", "mamba", "mamba2"],
    why: "names of architectures that folders become; f32 is a metadata value type, mxfp4 a quant_method",
  },
  {
    file: "src/formats/huggingface-hybrid.ts",
    names: ["falcon-h1", "granitehybrid", "mamba", "nemotron_h", "nemotron_h_moe"],
    why: "names of architectures that folders become; f32 is a metadata value type, mxfp4 a quant_method",
  },
  {
    file: "src/formats/huggingface-delta.ts",
    names: ["qwen35", "qwen35moe", "qwen3next"],
    why: "names of architectures that folders become; f32 is a metadata value type, mxfp4 a quant_method",
  },
  {
    file: "src/formats/huggingface-names.ts",
    names: ["f32"],
    why: "a metadata value type of GGUF",
  },
  { file: "src/formats/huggingface-keys.ts", names: ["f32"], why: "a metadata value type of GGUF" },
  {
    file: "src/formats/huggingface-changes.ts",
    names: ["f32", "mxfp4"],
    why: "what changed and packed values are",
  },
  {
    file: "src/formats/huggingface-metadata.ts",
    names: ["f32"],
    why: "a metadata value type of GGUF",
  },
  { file: "src/formats/huggingface.ts", names: ["f32"], why: "a metadata value type of GGUF" },
  { file: "src/formats/packed-bytes.ts", names: ["f32"], why: "what a DType has to say" },
  { file: "src/formats/typed-metadata.ts", names: ["f32"], why: "a metadata value type of GGUF" },
  { file: "src/formats/gguf/value-types.ts", names: ["f32"], why: "a metadata value type of GGUF" },
  {
    file: "src/tokenizers/from-metadata.ts",
    names: ["llama", "gpt2", "bert", "phi3", "nomic-bert-moe", "jina-bert-v3", "modern-bert"],
    why: "values of tokenizer.ggml.model, and of the names of models whose control tokens are known",
  },
  {
    file: "src/tokenizers/pretokenize.ts",
    names: [
      ...[
        "qwen2",
        "glm4",
        "exaone",
        "exaone4",
        "mellum",
        "falcon",
        "codeshell",
        "olmo",
        "jais",
        "mpt",
        "starcoder",
      ],
      ...["refact", "command-r", "falcon-h1", "lfm2", "dbrx", "modern-bert"],
    ],
    why: "values of tokenizer.ggml.pre",
  },
];

const sources = sourceFiles(...programFolders).map((file) => ({
  ...file,
  tokens: tokenize(file.text),
}));

test("types and architectures are named in their own file and nowhere else", () => {
  const isOwn = (path: string, name: string) => {
    // An architecture's file has its first name, and serves the others.
    if (!builtInDTypes.includes(name)) return path === `src/models/${archNamed(name).names[0]}.ts`;
    // A type also names its activation type; and f32 is a type of registers in kernels and shaders, f16 one of shaders.
    const inKernels = [
      "src/kernels/",
      "src/backends/webgpu/exact/",
      "src/backends/webgpu/wgsl/",
    ].some((at) => path.startsWith(at));
    const inShaders = path.startsWith("src/backends/webgpu/wgsl/");
    return (
      path.startsWith("src/dtypes/") ||
      (name === "f32" && inKernels) ||
      (name === "f16" && inShaders)
    );
  };
  const used = sources.flatMap(({ path, tokens }) =>
    tokens
      .filter(({ kind, text }) => kind === "string" && isName(text) && !isOwn(path, text))
      .map(({ text, line }) => ({ path, name: text, line })),
  );
  const isAllowed = (path: string, name: string) =>
    allowed.some(({ file, names }) => file === path && names.includes(name));
  const stray = used.filter(({ path, name }) => !isAllowed(path, name));
  expect(
    stray.map(({ path, name, line }) => `${path}:${line} says "${name}"`).join("\n"),
    "ask the table (or the DType, the Arch) instead of comparing names",
  ).toBe("");
  const unneeded = allowed.flatMap(({ file, names }) =>
    names
      .filter((name) => !used.some((use) => use.path === file && use.name === name))
      .map((name) => `${file} no longer says "${name}"`),
  );
  expect(unneeded.join("\n"), "take it off the list").toBe("");
});

test("only the tables import a type, an architecture or a backend", () => {
  const tableOf = new Map<string, string>([
    ...builtInDTypes.map((name) => [`src/dtypes/${name}.ts`, "src/dtypes/table.ts"] as const),
    ...allArchs()
      .filter((arch) => arch !== fakeArch)
      .map(({ names }) => [`src/models/${names[0]}.ts`, "src/models/table.ts"] as const),
    ...builtInBackends.map(
      (name) => [`src/backends/${name}/${name}.ts`, "src/backends/table.ts"] as const,
    ),
  ]);
  const paths = sources.map(({ path }) => path);
  expect(
    [...tableOf.keys()].filter((entry) => !paths.includes(entry)),
    "an entry's file has its name",
  ).toEqual([]);
  const stray = sources.flatMap(({ path, tokens }) =>
    importsOf(tokens)
      .map(({ from }) => resolveImport(path, from) ?? "")
      .filter((target) => tableOf.has(target) && tableOf.get(target) !== path)
      .map((target) => `${path} imports ${target}`),
  );
  expect(stray.join("\n"), "ask the table for it").toBe("");
});

function isName(text: string): boolean {
  return builtInDTypes.includes(text) || builtInArchs.includes(text);
}

// Thousands of damaged model files. Each either opens or is refused with a LanternError: never another error, a read
// beyond the file (the memory source throws a plain Error for one), more bytes than the file justifies, a file that
// stays open, or a hang (the suite's time limit).
//
// A failure names seed and index: `mutate(file, seededRandom(seed + index))` makes the same mutant again.

import { readFile } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import { LanternError } from "../../src/base/errors.ts";
import type { ModelFile } from "../../src/formats/model-file.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import { describeShared, sharedPath } from "../support/shared.ts";
import { mutate, seededRandom } from "./mutate.ts";
import {
  concat,
  countingTensor,
  type Entries,
  ggufBytes,
  jsonBytes,
  llama2cBytes,
  memorySource,
  type SparseFile,
  safetensorsOf,
  smallLlama2c,
  tokenizerBytes,
} from "./support.ts";

/** Another seed, other mutants: LANTERN_FUZZ_SEED=7 npx vitest run test/formats/fuzz.test.ts */
const seed: number = Number(process.env.LANTERN_FUZZ_SEED ?? 20_250_801);

interface Victim {
  what: string;
  files: Record<string, Uint8Array | SparseFile>;
  main: string | undefined;
  /** The files that are damaged, in turn. */
  damaged: string[];
  count: number;
}

/** Everything that is decoded late: arrays, text, tensor bytes. */
async function useAll(model: ModelFile): Promise<void> {
  for (const key of model.metadata.keys()) {
    model.metadata.preview(key, Number.POSITIVE_INFINITY);
  }
  const target = new Uint8Array(1);
  for (const tensor of model.tensors.values()) {
    await model.readTensor(tensor, target, tensor.byteLength - 1);
  }
}

/** How the mutant ended: undefined when it opened and could be used. */
async function outcome(source: ReturnType<typeof memorySource>): Promise<unknown> {
  try {
    const model = await openModelFile(source);
    try {
      await useAll(model);
    } finally {
      await model.close();
    }
    return undefined;
  } catch (error) {
    return error;
  }
}

function damage(file: Uint8Array | SparseFile, index: number): Uint8Array | SparseFile {
  const random = seededRandom(seed + index);
  if (file instanceof Uint8Array) return mutate(file, random);
  const head = mutate(file.head, random);
  return { head, size: Math.max(head.byteLength, file.size - random.pick([0, 0, 1, file.size])) };
}

async function fuzz(victim: Victim): Promise<void> {
  const messages = new Set<string>();
  let opened = 0;
  for (let index = 0; index < victim.count; index++) {
    const name = victim.damaged[index % victim.damaged.length]!;
    const files = { ...victim.files, [name]: damage(victim.files[name]!, index) };
    const source = memorySource(files, victim.main);
    const error = await outcome(source);
    const which = `${victim.what}: ${name}, seed ${seed}, index ${index}`;
    if (error === undefined) opened++;
    else if (error instanceof LanternError) messages.add(error.message);
    else throw new Error(`${which}: not a LanternError: ${String(error)}`, { cause: error });
    const size = Object.values(files).reduce(
      (sum, file) => sum + ("size" in file ? file.size : file.byteLength),
      0,
    );
    if (source.count.bytes > 3 * size + 64)
      throw new Error(`${which}: read ${source.count.bytes} bytes of ${size}`);
    if (source.count.open !== 0) throw new Error(`${which}: ${source.count.open} files left open`);
  }
  // A fuzzer that only ever sees one outcome tests nothing.
  expect(opened).toBeGreaterThan(0);
  expect(messages.size).toBeGreaterThan(victim.count / 100);
}

const entries: Entries = {
  "general.architecture": { type: "string", value: "llama" },
  "general.alignment": { type: "u32", value: 32 },
  "llama.block_count": { type: "u32", value: 2 },
  "llama.rope.freq_base": { type: "f32", value: 10000 },
  "tokenizer.ggml.tokens": { type: "array<string>", value: ["<unk>", "▁a", "b", "🙂"] },
  "tokenizer.ggml.scores": { type: "array<f32>", value: [0, -1, -2, -3] },
  "tokenizer.ggml.flags": { type: "array<bool>", value: [true, false] },
  "tokenizer.ggml.add_bos_token": { type: "bool", value: true },
  "x.u64": { type: "u64", value: 2n ** 63n },
};
const tensors = [
  countingTensor("token_embd.weight", "f32", [4, 8]),
  countingTensor("blk.0.attn_q.weight", "q8_0", [2, 32]),
  countingTensor("blk.0.attn_norm.weight", "f16", [2, 2, 2, 2]),
];

async function splitFiles(): Promise<Record<string, Uint8Array>> {
  const files: Record<string, Uint8Array> = {};
  for (let i = 0; i < 3; i++) {
    const split: Entries = {
      "split.no": { type: "u16", value: i },
      "split.count": { type: "u16", value: 3 },
      "split.tensors.count": { type: "i32", value: 3 },
    };
    files[`m-0000${i + 1}-of-00003.gguf`] = await ggufBytes(split, [tensors[i]!]);
  }
  return files;
}

const tokenizer = tokenizerBytes(["<unk>", "<s>", "</s>", "a", "bc"]);
const weights = {
  "model.embed_tokens.weight": [4, 8],
  "lm_head.weight": [4, 8],
  "model.norm.weight": [8],
};
const index = {
  metadata: { total_size: 288 },
  weight_map: Object.fromEntries(Object.keys(weights).map((name) => [name, "w.safetensors"])),
};
const huggingFace = {
  "config.json": jsonBytes({
    model_type: "llama",
    num_hidden_layers: 1,
    hidden_size: 8,
    intermediate_size: 16,
    num_attention_heads: 2,
    rope_theta: 10000,
    rope_scaling: { rope_type: "yarn", factor: 2, attention_factor: 1.5 },
    tie_word_embeddings: true,
    eos_token_id: [1, 2],
  }),
  "generation_config.json": jsonBytes({ eos_token_id: 2 }),
  "tokenizer.json": jsonBytes({ added_tokens: [{ id: 1, content: "<s>" }] }),
  "tokenizer_config.json": jsonBytes({
    bos_token: "<s>",
    eos_token: { content: "</s>" },
    chat_template: [{ name: "default", template: "{{ x }}" }],
    added_tokens_decoder: { "2": { content: "</s>" } },
  }),
  "special_tokens_map.json": jsonBytes({ pad_token: "<s>" }),
  "chat_template.jinja": new TextEncoder().encode("{{ messages }}"),
  "model.safetensors.index.json": jsonBytes(index),
  "w.safetensors": safetensorsOf(weights, { format: "pt" }),
};

const victims: Victim[] = [
  {
    what: "gguf v3",
    files: { "m.gguf": await ggufBytes(entries, tensors) },
    main: "m.gguf",
    damaged: ["m.gguf"],
    count: 3500,
  },
  {
    what: "gguf v2",
    files: { "m.gguf": await ggufBytes(entries, tensors, 2) },
    main: "m.gguf",
    damaged: ["m.gguf"],
    count: 1000,
  },
  {
    what: "split gguf",
    files: await splitFiles(),
    main: "m-00001-of-00003.gguf",
    damaged: Object.keys(await splitFiles()),
    count: 1500,
  },
  {
    what: "safetensors",
    files: huggingFace,
    main: "w.safetensors",
    damaged: ["w.safetensors"],
    count: 2000,
  },
  {
    what: "hugging face folder",
    files: huggingFace,
    main: undefined,
    damaged: Object.keys(huggingFace),
    count: 2500,
  },
  {
    what: "llama2.c",
    files: { "m.bin": llama2cBytes(smallLlama2c), "tokenizer.bin": tokenizer },
    main: "m.bin",
    damaged: ["m.bin", "tokenizer.bin"],
    count: 1000,
  },
  {
    what: "llama2.c with its tokenizer behind it",
    files: { "m.data": concat(llama2cBytes(smallLlama2c), tokenizer) },
    main: "m.data",
    damaged: ["m.data"],
    count: 500,
  },
];
describe("fuzz", () => {
  test.each(victims)("$what ($count mutants)", async (victim) => {
    await fuzz(victim);
  });

  test("makes at least 10,000 mutants", () => {
    const mutants = victims.reduce((sum, victim) => sum + victim.count, 0);
    expect(mutants).toBeGreaterThanOrEqual(10_000);
  });
});

describeShared("fuzz real headers", "models", () => {
  /** The file's first bytes, where its header is; its tensors read as zeros. */
  async function head(relative: string, bytes: number): Promise<SparseFile> {
    const whole = await readFile(sharedPath(relative));
    return { head: new Uint8Array(whole.subarray(0, bytes)), size: whole.byteLength };
  }

  test.each([
    ["models/stories260K/stories260K-F32.gguf", 14_240],
    ["models/story/story-656K-F32.gguf", 50_208],
  ])("%s", async (path, headerBytes) => {
    const files = { "m.gguf": await head(path, headerBytes) };
    await fuzz({ what: path, files, main: "m.gguf", damaged: ["m.gguf"], count: 400 });
  });

  test.each([
    ["models/story", 2168],
    ["models/minimind2-small", 8792],
  ])("%s (safetensors)", async (path, headerBytes) => {
    const files = {
      "config.json": new Uint8Array(await readFile(sharedPath(`${path}/config.json`))),
      "tokenizer.json": jsonBytes({}),
      "model.safetensors": await head(`${path}/model.safetensors`, headerBytes),
    };
    const damaged = ["model.safetensors", "config.json"];
    await fuzz({ what: path, files, main: undefined, damaged, count: 400 });
  });
});

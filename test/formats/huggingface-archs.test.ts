// A Hugging Face folder of every family, held against transformers (its logits) and llama.cpp's converter (its keys and the bytes of
// its tensors). data/huggingface-archs.json has their results; huggingface-archs.py made it.

import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Engine } from "../../src/engine/engine.ts";
import { computeLogits } from "../../src/engine/generator.ts";
import { architectures } from "../../src/formats/huggingface-families.ts";
import type { ModelFile } from "../../src/formats/model-file.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import { tokenizerOf } from "../../src/load/compose.ts";
import { convertInMemory } from "../tools/conversion.ts";
import { jsonFile } from "../tools/safetensors-files.ts";
import { asFiles, type Files } from "../tools/tiny-folder.ts";
import { type FolderGolden, folders, goldenFolder, prompt } from "./huggingface-archs.ts";
import { memorySource } from "./support.ts";

async function logitsOf(file: ModelFile): Promise<Map<number, number>[]> {
  const engine = await Engine.load(
    {
      name: file.name,
      format: file.format,
      metadata: file.metadata,
      tensors: file.tensors,
      readTensor: (name, target, offset) =>
        file.readTensor(file.tensors.get(name)!, target, offset),
      tokenizer: tokenizerOf(file),
      template: undefined,
      backend: new ReferenceBackend(),
    },
    { contextSize: 128, kvType: dtypeByName("f32")! },
    { progress: () => {}, check: () => {} },
  );
  try {
    const control = { aborted: false, breathe: async () => {}, now: () => 0 };
    const result = await computeLogits(engine, [...prompt], { top: 20, greedy: 0 }, control);
    return result.positions.map(({ top }) => new Map(top));
  } finally {
    engine.dispose();
  }
}

async function expectTransformersLogits(files: Files, { logits }: FolderGolden): Promise<void> {
  const found = await logitsOf(await openModelFile(memorySource(files)));
  let worst = 0;
  for (const [position, row] of logits!.entries()) {
    for (const [id, logit] of row) {
      worst = Math.max(worst, Math.abs((found[position]!.get(id) ?? Number.NaN) - logit));
    }
  }
  expect(worst).toBeLessThan(1e-4);
}

async function hashOf(file: ModelFile, name: string): Promise<string> {
  const tensor = file.tensors.get(name)!;
  const bytes = new Uint8Array(tensor.byteLength);
  await file.readTensor(tensor, bytes);
  return createHash("sha256").update(bytes).digest("hex").slice(0, 12);
}

describe.each(Object.entries(folders))("%s", (_, golden) => {
  const files = goldenFolder(golden);

  test.skipIf(golden.logits === null)("transformers' logits", async () => {
    await expectTransformersLogits(files, golden);
  });

  test("llama.cpp's file after conversion", async () => {
    const { file } = await convertInMemory(asFiles(files));
    const shapes = Array.from(file.tensors.values(), ({ name, shape }) => [name, shape.join()]);
    expect(Object.fromEntries(shapes)).toEqual(
      Object.fromEntries(Object.entries(golden.gguf).map(([name, [shape]]) => [name, shape])),
    );
    for (const [name, [, hash]] of Object.entries(golden.gguf)) {
      if (hash !== null) expect(await hashOf(file, name), name).toBe(hash);
    }
    for (const [key, [type, value]] of Object.entries(golden.keys)) {
      expect(file.metadata.preview(key, Number.POSITIVE_INFINITY), key).toMatchObject({
        type,
        value,
      });
    }
  });
});

test("every family has a golden folder, or is another name of one that has", () => {
  const names = new Set(Object.keys(folders).map((type) => architectures.get(type)!.name));
  const without = [...architectures].filter(([, { name }]) => !names.has(name));
  expect(without.map(([type]) => type)).toEqual([]);
});

test("a model with pictures: its language model, under the names of either generation of transformers", async () => {
  const golden = folders.gemma3_text!;
  const { config } = golden;
  const { model_type, ...text_config } = config;
  for (const prefix of ["language_model.model.", "model.language_model."]) {
    const renamed = structuredClone(golden.tensors);
    // A formula makes the values of the names: renamed tensors need the values of the old ones.
    const files = goldenFolder({ ...golden, tensors: renamed });
    const weights = new TextDecoder("latin1").decode(files["model.safetensors"]!);
    const at = 8 + Number(new DataView(files["model.safetensors"]!.buffer).getBigUint64(0, true));
    const header = weights.slice(8, at).replaceAll('"model.', `"${prefix}`);
    const bytes = new Uint8Array(8 + header.length + files["model.safetensors"]!.length - at);
    new DataView(bytes.buffer).setBigUint64(0, BigInt(header.length), true);
    bytes.set(new TextEncoder().encode(header), 8);
    bytes.set(files["model.safetensors"]!.subarray(at), 8 + header.length);
    await expectTransformersLogits(
      {
        ...files,
        "config.json": jsonFile({ model_type: "gemma3", text_config }),
        "model.safetensors": bytes,
      },
      golden,
    );
  }
  expect(model_type).toBe("gemma3_text");
});

test("an older config.json: rope_theta and rope_local_base_freq beside the other keys", async () => {
  const golden = folders.gemma3_text!;
  const { rope_parameters, layer_types, ...config } = golden.config;
  expect([rope_parameters, layer_types].every((value) => value !== undefined)).toBe(true);
  const older = { ...config, rope_theta: 1e6, rope_local_base_freq: 10000 };
  await expectTransformersLogits(
    { ...goldenFolder(golden), "config.json": jsonFile(older) },
    golden,
  );
});

test("what an architecture does not compute is refused", async () => {
  const open = (type: string, change: object) => {
    const golden = folders[type]!;
    const files = goldenFolder(golden);
    const config = jsonFile({ ...golden.config, ...change });
    return openModelFile(memorySource({ ...files, "config.json": config }));
  };
  await expect(open("gemma2", { hidden_activation: "relu" })).rejects.toThrow(
    /hidden_activation.*relu.*gelu/s,
  );
  await expect(open("qwen3_moe", { norm_topk_prob: false })).rejects.toThrow(/norm_topk_prob/);
  await expect(open("deepseek_v3", { kv_lora_rank: "many" })).rejects.toThrow(/kv_lora_rank/);
  await expect(open("deepseek_v3", { v_head_dim: 12 })).rejects.toThrow(/kv_b_proj/);
  await expect(open("gpt_neox", { num_attention_heads: 5 })).rejects.toThrow(/query_key_value/);
});

// A Hugging Face folder of every family, held against transformers (its logits) and llama.cpp's converter (its keys and the bytes of
// its tensors). data/huggingface-archs.json has their results; huggingface-archs.py made it.

import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { computeLogits } from "../../src/engine/compute-logits.ts";
import { Engine } from "../../src/engine/engine.ts";
import { architectures } from "../../src/formats/huggingface-families.ts";
import type { ModelFile } from "../../src/formats/model-file.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import { tokenizerOf } from "../../src/load/compose.ts";
import { skippedFor } from "../support/skips.ts";
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
    const control = { aborted: false, yieldThread: async () => {}, now: () => 0 };
    const result = await computeLogits(engine, [...prompt], { top: 20, greedy: 0 }, control);
    return result.positions.map(({ top }) => new Map(top));
  } finally {
    engine.dispose();
  }
}

async function expectTransformersLogits(
  files: Files,
  { logits, within }: FolderGolden,
): Promise<void> {
  const found = await logitsOf(await openModelFile(memorySource(files)));
  let worst = 0;
  for (const [position, row] of logits!.entries()) {
    for (const [id, logit] of row) {
      worst = Math.max(worst, Math.abs((found[position]!.get(id) ?? Number.NaN) - logit));
    }
  }
  expect(worst).toBeLessThan(within ?? 1e-4);
}

async function hashOf(file: ModelFile, name: string): Promise<string> {
  const tensor = file.tensors.get(name)!;
  const bytes = new Uint8Array(tensor.byteLength);
  await file.readTensor(tensor, bytes);
  return createHash("sha256").update(bytes).digest("hex").slice(0, 12);
}

describe.each(Object.entries(folders))("%s", (_, golden) => {
  const files = goldenFolder(golden);

  test.skipIf(golden.logits === null)(
    `transformers' logits${skippedFor("transformers has none of it", golden.logits === null)}`,
    async () => {
      await expectTransformersLogits(files, golden);
    },
  );

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
  const families = new Set(
    Object.values(folders).map(({ config }) => architectures.get(String(config.model_type))),
  );
  const without = [...architectures].filter(([, family]) => !families.has(family));
  // transformers has no Bamboo: bamboo.test.ts holds it against another forward pass.
  expect(without.map(([type]) => type)).toEqual(["bamboo"]);
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

test("the language model of Mistral 3, whose own model_type is in text_config", async () => {
  const golden = folders.ministral3!;
  const { architectures: _, ...text_config } = golden.config;
  const config = {
    architectures: ["Mistral3ForConditionalGeneration"],
    model_type: "mistral3",
    text_config,
  };
  await expectTransformersLogits(
    { ...goldenFolder(golden), "config.json": jsonFile(config) },
    golden,
  );
});

test("Granite 4 without Mamba is a Granite", async () => {
  const golden = folders.granitemoehybrid!;
  const config = { ...golden.config, layer_types: ["attention", "attention"] };
  const files = { ...goldenFolder(golden), "config.json": jsonFile(config) };
  const file = await openModelFile(memorySource(files));
  expect(file.metadata.string("general.architecture")).toBe("granitemoe");
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

test("packed experts without their scales, and packed tensors that nobody reads, are refused", async () => {
  const golden = folders["gpt_oss-mxfp4"]!;
  const renamed = (from: string, to: string) => {
    const tensors = JSON.parse(JSON.stringify(golden.tensors).replace(from, to));
    return openModelFile(memorySource(goldenFolder({ ...golden, tensors })));
  };
  await expect(renamed("down_proj_scales", "down_proj_scalez")).rejects.toThrow(
    /down_proj_scale.*(no such tensor|U8)/,
  );
  await expect(renamed("u8,0,255", "u8,0,254")).resolves.toBeDefined();
  await expect(
    renamed("0.mlp.experts.down_proj_blocks", "0.mlp.experts.down_blocks"),
  ).rejects.toThrow(/down_blocks.*got "U8", expected F32, F16 or BF16/);
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
  await expect(open("llama", { quantization_config: { quant_method: "awq" } })).rejects.toThrow(
    /quant_method: got "awq", expected a folder with F32, F16 or BF16 weights/,
  );
  await expect(open("falcon_h1", { mlp_multipliers: [1] })).rejects.toThrow(
    /mlp_multipliers.*2 num/,
  );
  await expect(open("nemotron_h", { hybrid_override_pattern: "MX" })).rejects.toThrow(
    /got "X", exp/,
  );
  await expect(open("qwen3_5_text", { linear_num_value_heads: 3 })).rejects.toThrow(
    /multiple of 2/,
  );
  await expect(open("qwen3_5_text", { linear_value_head_dim: 8 })).rejects.toThrow(/conv1d/);
  await expect(open("qwen3_next", { layer_types: ["full_attention"] })).rejects.toThrow(
    /layer_types/,
  );
  await expect(open("gpt_neox", { num_attention_heads: 5 })).rejects.toThrow(/query_key_value/);
});

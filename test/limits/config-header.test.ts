// A config.json alone, held against the folders that transformers made of it: every matrix is counted, and none that is not there.

import { describe, expect, test } from "vitest";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import type { Weight } from "../../src/graph/graph.ts";
import { LanternError, limits } from "../../src/index.ts";
import { buildModel } from "../../src/models/build.ts";
import { headerOfConfig } from "../../src/tools/limits/config-header.ts";
import { folders, goldenFolder } from "../formats/huggingface-archs.ts";
import { memorySource } from "../formats/support.ts";

/** Values of all matrices by name, with queries, keys and values together: some files have them as one. */
function counted(tensors: ReadonlyMap<string, Weight>): Record<string, number> {
  const found: Record<string, number> = {};
  for (const { name, shape } of tensors.values()) {
    if (shape.filter((dim) => dim > 1).length < 2) continue;
    const key = name.replace(/\.attn_(?:q|k|v|qkv)\.weight$/, ".qkv");
    found[key] = (found[key] ?? 0) + shape.reduce((product, dim) => product * dim, 1);
  }
  return found;
}

describe("every family's folder", () => {
  test.each(Object.entries(folders))("%s", async (_name, folder) => {
    const file = await openModelFile(memorySource(goldenFolder(folder)));
    const header = headerOfConfig(folder.config, "tiny");
    buildModel(header);
    expect(counted(header.tensors)).toEqual(counted(file.tensors));
    if (file.tensors.has("blk.0.attn_q.weight")) {
      const bias = "blk.0.attn_q.bias";
      expect(header.tensors.has(bias)).toBe(file.tensors.has(bias));
    }
  });
});

/** The published number of parameters, norms not counted. */
const mixtral = {
  architectures: ["MixtralForCausalLM"],
  hidden_size: 4096,
  intermediate_size: 14336,
  num_attention_heads: 32,
  num_key_value_heads: 8,
  num_hidden_layers: 32,
  num_local_experts: 8,
  num_experts_per_tok: 2,
  rms_norm_eps: 1e-5,
  tie_word_embeddings: false,
  vocab_size: 32000,
};
const qwen = {
  model_type: "qwen2",
  hidden_size: 4096,
  intermediate_size: 11008,
  num_attention_heads: 32,
  num_key_value_heads: 32,
  num_hidden_layers: 32,
  rms_norm_eps: 1e-6,
  vocab_size: 151936,
};

test("Mixtral 8x7B, by its class alone: 46.7 B parameters, 12.9 B of them for a token", async () => {
  const { parameters, memory } = await limits(
    { config: mixtral },
    { device: "rtx4090", weights: 4 },
  );
  // The index of its published files says 93405585408 bytes of BF16, norms included.
  expect(parameters.total + parameters.norms).toBe(93405585408 / 2);
  expect(parameters.active + parameters.embedding).toBeCloseTo(12.88e9, -8);
  expect(memory.storedBytes).toBeCloseTo((93405585408 / 16) * 4, -7);
});

test("a plain transformer: the report of the built-in configuration of the same sizes", async () => {
  const options = { device: "rtx4090-article", counting: "article", kv: 8, weights: 4 } as const;
  const named = await limits("qwen1.5-7b", options);
  const own = await limits({ config: qwen, name: "mine" }, options);
  expect({ ...own, model: undefined }).toEqual({ ...named, model: undefined });
  const { shape } = named.model;
  const sizes = await limits({ shape }, options);
  expect({ ...sizes, model: undefined }).toEqual({ ...named, model: undefined });
});

describe("refused", () => {
  test.each<[string, Record<string, unknown>, string]>([
    ["an unknown kind", { model_type: "elmo" }, "model_type: got elmo, expected one of llama"],
    ["no kind", { model_type: undefined }, "model_type: got nothing"],
    ["a kind that is no text", { model_type: 7 }, "model_type: got 7"],
    ["a size that is a text", { hidden_size: "big" }, "hidden_size: got big, expected a whole"],
    ["no size", { hidden_size: undefined }, "hidden_size: got nothing"],
    ["no vocabulary", { vocab_size: undefined }, "vocab_size: got nothing, expected a whole"],
    ["an empty vocabulary", { vocab_size: 0 }, "vocab_size: got 0"],
    ["a billion layers", { num_hidden_layers: 1e9 }, "num_hidden_layers: got 1000000000, expected"],
    ["no layers", { num_hidden_layers: 0 }, "block_count: got 0"],
    ["half a layer", { num_hidden_layers: 1.5 }, "num_hidden_layers: got 1.5"],
    ["no heads", { num_attention_heads: 0 }, "head_count"],
    ["heads that do not divide", { num_key_value_heads: 5 }, "got 5, expected a divisor of the 32"],
    ["an infinite size", { intermediate_size: Infinity }, "intermediate_size: got Infinity"],
    ["another activation", { hidden_act: "tanh" }, "hidden_act: got tanh"],
    ["a size beyond all models", { hidden_size: 4e9 }, "embedding_length: got 4000000000"],
  ])("%s", async (_what, changed, message) => {
    const refused = limits({ config: { ...qwen, ...changed } }, { device: "rtx4090" });
    const error: unknown = await refused.catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(LanternError);
    // What was got is quoted once or twice.
    expect(String(error).replace(/[\\"]/g, "")).toContain(message);
  });

  test.each<[string, Parameters<typeof limits>[0], string]>([
    ["no object", { config: [] }, "expected a parsed config.json"],
    ["both", { config: qwen, shape: { ...sizes } }, "expected one of the two"],
    ["a wrong size", { shape: { ...sizes, heads: 0 } }, "heads: got 0"],
    ["KV heads that do not divide", { shape: { ...sizes, kvHeads: 3 } }, "kvHeads: got 3"],
  ])("%s", async (_what, model, message) => {
    await expect(limits(model, { device: "rtx4090" })).rejects.toThrow(message);
  });
});

const sizes = {
  ...{ vocabSize: 1000, layers: 2, embed: 64, feedForward: 128, heads: 4, kvHeads: 4, headDim: 16 },
  ...{ qkvBias: false, headNorms: false, tied: false },
};

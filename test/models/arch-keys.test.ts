// What is refused of an architecture's own keys before anything is allocated for them, and names that are not in the table.

import { describe, expect, test } from "vitest";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { rowsOf, tensorOf, timesOf, weightReader } from "../../src/graph/weight-source.ts";
import { architectures, archNamed } from "../../src/models/table.ts";
import { type MetadataValue, plainMetadata, tinyMetadata } from "../support/tiny-engine.ts";

const f32 = dtypeByName("f32")!;

function config(architecture: string, change: Record<string, MetadataValue>) {
  const own = Object.entries(change).map(([key, value]) => [`${architecture}.${key}`, value]);
  const metadata = plainMetadata({ ...tinyMetadata(architecture), ...Object.fromEntries(own) });
  const table = { name: "token_embd.weight", shape: [48, 32], dtype: f32 };
  return archNamed(architecture).config({ metadata, tensors: new Map([[table.name, table]]) });
}

test.each<[string, string, MetadataValue, RegExp]>([
  ["gemma2", "attention.head_count", 0, /head_count: got 0, expected an integer from 1/],
  ["gemma2", "attention.sliding_window", 0, /sliding_window: got 0, expected an integer from 1/],
  ["gemma2", "attn_logit_softcapping", 0, /softcapping: got 0, expected a number above 0/],
  ["gemma3", "attention.sliding_window", -1, /sliding_window: got -1, expected an integer from 0/],
  ["cohere2", "attention.sliding_window", 0, /sliding_window: got 0, expected an integer from 1/],
  ["cohere2", "logit_scale", 0, /logit_scale: got 0, expected a number above 0/],
  ["granite", "logit_scale", -2, /logit_scale: got -2, expected a number above 0/],
  ["openelm", "attention.head_count_kv", 0, /head_count_kv: got 0, expected an integer from 1/],
  ["openelm", "attention.head_count_kv", 3, /head_count_kv\[0\]: got 3, expected a divisor of 4/],
  ["deci", "attention.head_count", 0, /head_count: got 0, expected a layer with heads/],
  ["deci", "feed_forward_length", 0, /feed_forward_length\[0\]: got 0, expected an integer from 1/],
  ["olmo", "attention.clamp_kqv", -1, /clamp_kqv: got -1, expected a number above 0/],
  ["mpt", "attention.max_alibi_bias", -8, /max_alibi_bias: got -8, expected a number above 0/],
  ["phi3", "rope.scaling.original_context_length", 0, /original_context_length: got 0, expected/],
  ["gemma4", "attention.shared_kv_layers", 2, /shared_kv_layers: got 2, expected an integer from/],
  ["gemma4", "attention.value_length", 8, /value_length: got 8, expected 16, as keys/],
  ["gemma4", "expert_count", -1, /expert_count: got -1, expected an integer from 1/],
  ["gemma3n", "attention.sliding_window", 0, /sliding_window: got 0, expected an integer from 1/],
  ["llama", "hidden_activation", "tanh", /hidden_activation: got "tanh", expected one of gelu/],
  ["llama", "expert_count", -1, /expert_count: got -1, expected an integer from 1/],
  ["qwen3moe", "expert_used_count", 5, /expert_used_count: got 5, expected an integer from 1 to 4/],
  ["qwen3moe", "expert_count", 0, /expert_count: got 0, expected an integer from 1/],
  [
    "deepseek",
    "leading_dense_block_count",
    9,
    /dense_block_count: got 9, expected an integer from 0/,
  ],
  [
    "deepseek32",
    "attention.indexer.key_length",
    12,
    /key_length: got 12, expected a multiple of 8/,
  ],
  ["deepseek32", "attention.indexer.top_k", 0, /top_k: got 0, expected an integer from 1/],
  [
    "deepseek32",
    "attention.key_length_mla",
    0,
    /key_length_mla: got 0, expected an integer from 1/,
  ],
  ["glm-dsa", "attention.indexer.types", [0, 1], /types\[0\]: got false, expected true/],
  ["dots3note", "attention.indexer.types", [1, 1], /types\[1\]: got true, expected false/],
  ["dots3note", "attention.key_length_mla_swa", 4, /mla_swa: got 4, expected more than 4/],
  [
    "minimax-m3",
    "attention.indexer.block_size",
    0,
    /block_size: got 0, expected an integer from 1/,
  ],
  ["minimax-01", "block_count", 1, /block_count: got 1, expected at least 2/],
  ["grovemoe", "experts_per_group", 3, /per_group: got 3, expected a divisor of 4/],
  ["grovemoe", "experts_per_group", 4, /per_group: got 4, expected a divisor of 4 that leaves 2/],
  ["bailingmoe3", "kda.gate_lower_bound", 1, /lower_bound: got 1, expected a number from -1000/],
  ["bailingmoe3", "kda.safe_gate", false, /safe_gate: got false, expected true/],
  ["kimi-k3", "activation.situ_beta", 0, /situ_beta: got 0, expected a number above 0/],
  ["graniteswitch", "adapters.count", 3, /token_ids_activate: got 2 values, expected 3 integers/],
  ["graniteswitch", "adapters.token_ids_substitute", [4, 48], /substitute\[1\]: got 48, expected/],
  ["deepseek", "expert_shared_count", -1, /shared_count: got -1, expected an integer from 0/],
  ["deepseek2", "rope.dimension_count", 12, /dimension_count: got 12, expected less than the 12/],
  ["deepseek2", "attention.kv_lora_rank", 0, /kv_lora_rank: got 0, expected an integer from 1/],
  ["dots1", "expert_gating_func", 7, /gating_func: got 7, expected an integer from 0 to 3/],
  ["dots1", "expert_weights_scale", -1, /weights_scale: got -1, expected a number above 0/],
  [
    "bailingmoe2",
    "expert_group_count",
    3,
    /group_count: got 3, expected a divisor of the 4 experts/,
  ],
  ["bailingmoe2", "expert_group_count", 2, /group_used_count: got nothing, expected an integer/],
  ["glm4moe", "nextn_predict_layers", 2, /predict_layers: got 2, expected an integer from 0 to 1/],
  ["ernie4_5-moe", "interleave_moe_layer_step", 0, /layer_step: got 0, expected an integer from 1/],
  ["gpt-oss", "attention.sliding_window", 0, /sliding_window: got 0, expected an integer from 1/],
  ["llama4", "interleave_moe_layer_step", 0, /interleave_moe_layer_step: got 0, expected/],
  ["mimo2", "attention.sliding_window", 0, /sliding_window: got 0, expected an integer from 1/],
  ["nanbeige", "num_loops", 600, /num_loops: got 600, expected an integer from 1 to 512/],
  ["plm", "rope.dimension_count", 12, /dimension_count: got 12, expected an integer from 1 to 11/],
  ["qwen3vl", "rope.dimension_sections", [2, 2], /got 2 values, expected 4 integers/],
  ["rwkv6qwen2", "token_shift_count", 2, /token_shift_count: got 2, expected 1/],
  ["step35", "rope.dimension_count", 6, /dimension_count: got 6, expected a multiple of 4/],
  ["dbrx", "attention.clamp_kqv", 0, /clamp_kqv: got 0, expected a number above 0/],
  ["grok", "final_logit_softcapping", -1, /softcapping: got -1, expected a number above 0/],
  ["qwen", "feed_forward_length", 0, /feed_forward_length: got 0, expected an integer from 1/],
  ["hunyuan-dense", "rope.dimension_sections", [2, 2], /2 values, expected 4 integers/],
  ["glm4", "rope.dimension_sections", [0, 0, 0, 0], /got 0,0,0,0, expected the pairs/],
])("%s: %s %s", (architecture, key, value, message) => {
  expect(() => config(architecture, { [key]: value })).toThrow(message);
});

test("a parameter of each layer: an array of another length is refused", () => {
  const metadata = plainMetadata({ ...tinyMetadata("apertus"), "xielu.beta": [0.5] });
  const table = { name: "token_embd.weight", shape: [48, 32], dtype: f32 };
  const header = { metadata, tensors: new Map([[table.name, table]]) };
  expect(() => archNamed("apertus").config(header)).toThrow(
    "xielu.beta: got 1 values, expected one for each of 2 layers",
  );
});

describe("names", () => {
  test("an unknown one comes with those that are similar", () => {
    expect(() => archNamed("gema2")).toThrow(/"gema2".*Similar names that it does: gemma2/);
    expect(() => archNamed("zzz")).toThrow(/does not support. "lantern models --architectures"/);
  });

  test("all are listed, with the models that have them", () => {
    const known = architectures();
    expect(known.map(({ name }) => name)).toContain("gemma3");
    expect(known.every(({ name, models }) => archNamed(name).about === models)).toBe(true);
  });
});

describe("weights that are part of a tensor, or of none", () => {
  const fused = { name: "qkv", shape: [6, 4], dtype: f32 };
  const bytes = new Uint8Array(Float32Array.from({ length: 24 }, (_, i) => i).buffer);
  const read = async (name: string, target: Uint8Array, at: number) => {
    expect(name).toBe("qkv");
    target.set(bytes.subarray(at, at + target.length));
  };

  test("rows of a matrix are read where they lie", async () => {
    const rows = rowsOf(fused, 2, 3);
    expect(rows).toMatchObject({ name: "qkv[2:5]", shape: [3, 4] });
    expect(tensorOf(rows)).toBe("qkv");
    const target = new Float32Array(4);
    await weightReader(rows, read)(new Uint8Array(target.buffer), 16);
    expect([...target]).toEqual([12, 13, 14, 15]);
  });

  test("values of a vector are read several times each, from anywhere", async () => {
    const vector = { name: "qkv", shape: [24], dtype: f32 };
    const many = timesOf(vector, 3);
    expect(many).toMatchObject({ name: "qkv[x3]", shape: [72] });
    expect(tensorOf(many)).toBe("qkv");
    const target = new Float32Array(5);
    await weightReader(many, read)(new Uint8Array(target.buffer), 4 * 4);
    expect([...target]).toEqual([1, 1, 2, 2, 2]);
    expect(() => timesOf(fused, 2)).toThrow(/qkv is f32 \[6,4\], expected a vector of floats/);
  });

  test("rows beyond the last are refused", () => {
    expect(() => rowsOf(fused, 4, 3)).toThrow(/qkv has 6 rows, expected 7: rows 4 to 6 are read/);
  });

  test("numbers of the architecture are not in the file", async () => {
    const values = Float32Array.of(1, 2, 3);
    const weight = { name: "ones", shape: [3], dtype: f32, source: { values } };
    expect(tensorOf(weight)).toBeUndefined();
    const target = new Float32Array(2);
    await weightReader(weight, read)(new Uint8Array(target.buffer), 4);
    expect([...target]).toEqual([2, 3]);
  });
});

test("a Llama with ReLU says so (hidden_activation), and its networks then have one", () => {
  const reading = (change: Record<string, MetadataValue>) => config("llama", change);
  expect(reading({ hidden_activation: "relu" })).toMatchObject({ gating: { activation: "relu" } });
  expect(reading({})).toMatchObject({ gating: { activation: "silu" } });
});

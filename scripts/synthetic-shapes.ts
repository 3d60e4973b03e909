// The shapes of synthetic models: one entry for each, from the model's own configuration. An entry has the sizes that most
// architectures share, and under `keys` the further ones that its architecture reads. synthetic-model.ts makes the tensors,
// which the architecture's own list of weights names.

import type { GgufValue } from "../src/formats/gguf/writer.ts";

export interface Shape {
  architecture: string;
  layers: number;
  embed: number;
  vocab: number;
  context: number;
  feedForward?: number;
  heads?: number;
  kvHeads?: number;
  /** The size of a head, if heads do not make up the embedding. */
  headDim?: number;
  /** The epsilon of RMS norms. */
  normEps?: number;
  ropeBase?: number;
  /** The output matrix is the embedding table. */
  tied?: boolean;
  /** Further keys, without the architecture's name: { expert_count: u32(128) }. */
  keys?: Readonly<Record<string, GgufValue>>;
  /** Further keys with their whole names. */
  otherKeys?: Readonly<Record<string, GgufValue>>;
  /** Queries, keys and values are one matrix. */
  fusedQkv?: boolean;
  /** Optional weights that the file has, by a part of their names. An output matrix is there unless `tied`. */
  optional?: readonly string[];
  /** Weights whose type is the shape's own, by a part of their names: { "_exps.weight": "mxfp4" }. */
  types?: Readonly<Record<string, string>>;
  /** The means of tensors that stay F32, by the end of their names, if they are unusual. */
  centers?: Readonly<Record<string, number>>;
  /** For vectors: [a share of the values, their mean], one after the other, by the end of their names. */
  steps?: Readonly<Record<string, readonly (readonly [share: number, center: number])[]>>;
  /** Vectors that llama.cpp has as matrices of one column, by the ends of their names. */
  columns?: readonly string[];
}

export const u32 = (value: number): GgufValue => ({ type: "u32", value });
export const f32 = (value: number): GgufValue => ({ type: "f32", value: Math.fround(value) });
export const integers = (type: "u32" | "i32", value: readonly number[]): GgufValue => ({
  type: `array<${type}>`,
  value: [...value],
});
const no: GgufValue = { type: "bool", value: false };
export const text = (value: string): GgufValue => ({ type: "string", value });

const llama = { architecture: "llama", vocab: 32000, normEps: 1e-5, ropeBase: 1e4 };
const qwen = {
  architecture: "qwen2",
  vocab: 151936,
  context: 32768,
  normEps: 1e-6,
  ropeBase: 1e6,
};

const small = { layers: 2, embed: 128, feedForward: 256, vocab: 512, context: 512 };

/** TinyLlama's shape, with ReLU. Its gates have a deviation of 0.9. */
const reglu: Shape = {
  ...llama,
  layers: 22,
  embed: 2048,
  feedForward: 5632,
  heads: 32,
  kvHeads: 4,
  context: 8192,
  optional: ["ffn_gate.bias"],
  keys: { hidden_activation: text("relu") },
};

const bamboo: Shape = {
  ...reglu,
  layers: 20,
  feedForward: 7168,
  heads: 16,
  vocab: 8192,
};

/** The shapes, from the models' own configurations. */
export const shapes: Readonly<Record<string, Shape>> = {
  tiny: {
    ...llama,
    layers: 2,
    embed: 256,
    feedForward: 512,
    heads: 4,
    kvHeads: 2,
    vocab: 512,
    context: 512,
  },
  // The smallest of each kind that a test or a software GPU can take: experts, several windows, and recurrent state.
  "tiny-moe": {
    architecture: "qwen3moe",
    ...small,
    heads: 4,
    kvHeads: 2,
    headDim: 64,
    normEps: 1e-6,
    ropeBase: 1e6,
    keys: {
      expert_count: u32(16),
      expert_used_count: u32(4),
      expert_feed_forward_length: u32(64),
    },
  },
  "tiny-gpt-oss": {
    architecture: "gpt-oss",
    ...small,
    heads: 4,
    kvHeads: 2,
    headDim: 64,
    normEps: 1e-5,
    ropeBase: 150000,
    keys: {
      expert_count: u32(8),
      expert_used_count: u32(4),
      expert_feed_forward_length: u32(64),
      "attention.sliding_window": u32(32),
      "rope.scaling.type": text("yarn"),
      "rope.scaling.factor": f32(32),
      "rope.scaling.original_context_length": u32(128),
    },
    types: { "_exps.weight": "mxfp4" },
  },
  "tiny-qwen35": {
    architecture: "qwen35",
    ...small,
    heads: 2,
    kvHeads: 1,
    headDim: 64,
    normEps: 1e-6,
    ropeBase: 1e7,
    tied: true,
    keys: {
      "rope.dimension_count": u32(16),
      "rope.dimension_sections": integers("i32", [3, 3, 2, 0]),
      full_attention_interval: u32(2),
      "ssm.conv_kernel": u32(4),
      "ssm.state_size": u32(32),
      "ssm.group_count": u32(2),
      "ssm.time_step_rank": u32(4),
      "ssm.inner_size": u32(128),
    },
  },
  "tiny-lfm2": {
    architecture: "lfm2",
    ...small,
    heads: 4,
    normEps: 1e-5,
    ropeBase: 1e6,
    tied: true,
    keys: {
      "attention.head_count_kv": integers("u32", [0, 2]),
      "shortconv.l_cache": u32(3),
      vocab_size: u32(512),
    },
  },
  "tiny-mamba2": {
    architecture: "mamba2",
    ...small,
    heads: 0,
    feedForward: 0,
    normEps: 1e-5,
    tied: true,
    keys: {
      vocab_size: u32(512),
      "ssm.conv_kernel": u32(4),
      "ssm.inner_size": u32(256),
      "ssm.state_size": u32(32),
      "ssm.time_step_rank": u32(4),
      "ssm.group_count": u32(1),
    },
    optional: ["ssm_conv1d.bias"],
    columns: ["ssm_a", "ssm_d"],
  },
  // A vocabulary with hardly a model: bench/host.ts.
  words: { ...llama, layers: 1, embed: 32, feedForward: 32, heads: 1, kvHeads: 1, context: 4096 },
  // A draft model for llama-1b, with the same vocabulary.
  "llama-0.1b": {
    ...llama,
    layers: 12,
    embed: 768,
    feedForward: 2048,
    heads: 12,
    kvHeads: 12,
    context: 8192,
  },
  // TinyLlama's.
  "llama-1b": {
    ...llama,
    layers: 22,
    embed: 2048,
    feedForward: 5632,
    heads: 32,
    kvHeads: 4,
    context: 8192, // more than TinyLlama has, for long conversations
  },
  // The same with ReLU instead of SiLU (as ReluLLaMA), and biases that close 60 to 95 % of the gates: docs/use/sparse.md.
  "reglu-1b-95": { ...reglu, centers: { "ffn_gate.bias": -1.489 } },
  "reglu-1b-90": { ...reglu, centers: { "ffn_gate.bias": -1.16 } },
  "reglu-1b-80": { ...reglu, centers: { "ffn_gate.bias": -0.762 } },
  "reglu-1b-70": { ...reglu, centers: { "ffn_gate.bias": -0.475 } },
  "reglu-1b-60": { ...reglu, centers: { "ffn_gate.bias": -0.229 } },
  // The same share of weights in feed-forward networks as ReluLLaMA-7B has: two thirds, since each head has its own keys and values.
  "relullama-1b-90": {
    ...reglu,
    layers: 20,
    feedForward: 5504,
    heads: 16,
    kvHeads: 16,
    centers: { "ffn_gate.bias": -1.16 },
  },
  // Of a 7B, with the neurons sorted by how often they are open: a quarter of them 30 % of the time, the others 3 %.
  "relullama-7b-hot": {
    ...reglu,
    layers: 32,
    embed: 4096,
    feedForward: 11008,
    kvHeads: 32,
    context: 4096,
    steps: {
      "ffn_gate.bias": [
        [0.25, -0.67],
        [0.75, -2.41],
      ],
    },
  },
  // Bamboo's and Mistral's share: networks 3.5 times as wide, few keys and values; a small vocabulary, since those models have 7B.
  "bamboo-1b-90": { ...bamboo, centers: { "ffn_gate.bias": -1.16 } },
  "bamboo-1b-60": { ...bamboo, centers: { "ffn_gate.bias": -0.229 } },
  "llama2-7b": {
    ...llama,
    layers: 32,
    embed: 4096,
    feedForward: 11008,
    heads: 32,
    kvHeads: 32,
    context: 4096,
  },
  "llama2-13b": {
    ...llama,
    layers: 40,
    embed: 5120,
    feedForward: 13824,
    heads: 40,
    kvHeads: 40,
    context: 4096,
  },
  "qwen1.5-0.5b": {
    ...qwen,
    layers: 24,
    embed: 1024,
    feedForward: 2816,
    heads: 16,
    kvHeads: 16,
    tied: true,
  },
  "qwen1.5-1.8b": {
    ...qwen,
    layers: 24,
    embed: 2048,
    feedForward: 5504,
    heads: 16,
    kvHeads: 16,
  },
  "qwen1.5-4b": {
    ...qwen,
    layers: 40,
    embed: 2560,
    feedForward: 6912,
    heads: 20,
    kvHeads: 20,
  },
  "qwen1.5-7b": {
    ...qwen,
    layers: 32,
    embed: 4096,
    feedForward: 11008,
    heads: 32,
    kvHeads: 32,
  },
  "qwen1.5-14b": {
    ...qwen,
    layers: 40,
    embed: 5120,
    feedForward: 13696,
    heads: 40,
    kvHeads: 40,
    vocab: 152064,
  },
  // Half as wide as Qwen3-30B-A3B, with its 128 experts, of which 8 are used: 4.0 G parameters, 0.63 G for a token.
  "qwen3-moe-4b-a0.6b": {
    architecture: "qwen3moe",
    layers: 18,
    embed: 1024,
    heads: 16,
    kvHeads: 4,
    headDim: 128,
    feedForward: 3072,
    vocab: 151936,
    context: 40960,
    normEps: 1e-6,
    ropeBase: 1e6,
    keys: {
      expert_count: u32(128),
      expert_used_count: u32(8),
      expert_feed_forward_length: u32(512),
    },
  },
  // A quarter of gpt-oss-20b's layers and vocabulary; everything else is as there.
  "gpt-oss-mini": {
    architecture: "gpt-oss",
    layers: 6,
    embed: 2880,
    heads: 64,
    kvHeads: 8,
    headDim: 64,
    feedForward: 2880,
    vocab: 50272,
    context: 131072,
    normEps: 1e-5,
    ropeBase: 150000,
    keys: {
      expert_count: u32(32),
      expert_used_count: u32(4),
      expert_feed_forward_length: u32(2880),
      "attention.sliding_window": u32(128),
      "rope.scaling.type": text("yarn"),
      "rope.scaling.factor": f32(32),
      "rope.scaling.original_context_length": u32(4096),
    },
    types: { "_exps.weight": "mxfp4" },
  },
  "gemma3-1b": {
    architecture: "gemma3",
    layers: 26,
    embed: 1152,
    heads: 4,
    kvHeads: 1,
    headDim: 256,
    feedForward: 6912,
    vocab: 262144,
    context: 32768,
    normEps: 1e-6,
    ropeBase: 1e6,
    tied: true,
    keys: { "attention.sliding_window": u32(512) },
  },
  // Three layers of the gated delta rule, then one of attention.
  "qwen35-0.8b": {
    architecture: "qwen35",
    layers: 24,
    embed: 1024,
    heads: 8,
    kvHeads: 2,
    headDim: 256,
    feedForward: 3584,
    vocab: 248320,
    context: 262144,
    normEps: 1e-6,
    ropeBase: 1e7,
    tied: true,
    keys: {
      "rope.dimension_count": u32(64),
      "rope.dimension_sections": integers("i32", [11, 11, 10, 0]),
      full_attention_interval: u32(4),
      "ssm.conv_kernel": u32(4),
      "ssm.state_size": u32(128),
      "ssm.group_count": u32(16),
      "ssm.time_step_rank": u32(16),
      "ssm.inner_size": u32(2048),
    },
  },
  // Ten layers of short convolutions, six of attention.
  "lfm2-1.2b": {
    architecture: "lfm2",
    layers: 16,
    embed: 2048,
    heads: 32,
    feedForward: 8192,
    vocab: 65536,
    context: 128000,
    normEps: 1e-5,
    ropeBase: 1e6,
    tied: true,
    keys: {
      "attention.head_count_kv": integers("u32", [0, 0, 8, 0, 0, 8, 0, 0, 8, 0, 8, 0, 8, 0, 8, 0]),
      "shortconv.l_cache": u32(3),
      vocab_size: u32(65536),
    },
  },
  // Mamba2-370m's.
  "mamba2-0.4b": {
    architecture: "mamba2",
    layers: 48,
    embed: 1024,
    heads: 0,
    feedForward: 0,
    vocab: 50288,
    context: 1048576,
    normEps: 1e-5,
    tied: true,
    keys: {
      vocab_size: u32(50288),
      "ssm.conv_kernel": u32(4),
      "ssm.inner_size": u32(2048),
      "ssm.state_size": u32(128),
      "ssm.time_step_rank": u32(32),
      "ssm.group_count": u32(1),
    },
    optional: ["ssm_conv1d.bias"],
    columns: ["ssm_a", "ssm_d"],
  },
  "modernbert-base": {
    architecture: "modern-bert",
    layers: 22,
    embed: 768,
    heads: 12,
    kvHeads: 12,
    feedForward: 1152,
    vocab: 50368,
    context: 8192,
    ropeBase: 160000,
    tied: true,
    keys: {
      vocab_size: u32(50368),
      "attention.layer_norm_epsilon": f32(1e-5),
      "attention.causal": no,
      "attention.sliding_window": u32(128),
      "attention.sliding_window_pattern": u32(3),
      "rope.freq_base_swa": f32(10000),
      pooling_type: u32(1),
    },
    fusedQkv: true,
  },
  // nomic-embed-text-v1.5's.
  "nomic-embed": {
    architecture: "nomic-bert",
    layers: 12,
    embed: 768,
    heads: 12,
    kvHeads: 12,
    feedForward: 3072,
    vocab: 30528,
    context: 2048,
    ropeBase: 1000,
    tied: true,
    keys: {
      vocab_size: u32(30528),
      "attention.layer_norm_epsilon": f32(1e-12),
      "attention.causal": no,
      pooling_type: u32(1),
    },
    otherKeys: { "tokenizer.ggml.token_type_count": u32(2) },
    fusedQkv: true,
    optional: ["token_types.weight"],
  },
};

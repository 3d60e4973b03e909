// The families of models whose Hugging Face folders can be opened: one entry each, by config.json's model_type. What is computed is
// what llama.cpp's converter computes, so that a folder and the GGUF file that the converter makes of it are the same model.

import type { Target } from "./huggingface-changes.ts";
import { flagOf, numberIn } from "./huggingface-config.ts";
import {
  bool,
  denseStart,
  expertScale,
  f32,
  gating,
  gatings,
  graniteScales,
  headSize,
  hunyuanKeys,
  latentKeys,
  lfm2Keys,
  logitScale,
  longFactors,
  mamba2Keys,
  mambaKeys,
  phi3Keys,
  same,
  sharedCount,
  softcaps,
  text,
  u32,
  windowPattern,
} from "./huggingface-keys.ts";
import type { HuggingFaceArchitecture } from "./huggingface-names.ts";
import {
  bloom,
  deepseek2,
  exaone,
  experts,
  falcon,
  falconGroups,
  fusedGate,
  gpt2,
  gptneox,
  gptOss,
  graniteMoe,
  internlm2,
  lfm2,
  llama,
  llama4,
  mamba,
  mamba2,
  mixtral,
  named,
  postNorms,
  shiftedNorms,
  starcoder,
} from "./huggingface-tensors.ts";

const gelu: readonly string[] = ["gelu", "gelu_pytorch_tanh", "gelu_new", "gelu_fast"];
const relu2: readonly string[] = ["relu2"];

type Family = [type: string, architecture: HuggingFaceArchitecture];

/** By config.json's model_type. */
const families: readonly Family[] = [
  ["llama", { name: "llama", tensors: llama }],
  ["mistral", { name: "llama", tensors: llama }],
  ["mixtral", { name: "llama", tensors: mixtral }],
  ["qwen2", { name: "qwen2", tensors: llama }],
  ["qwen3", { name: "qwen3", tensors: llama }],
  ["qwen2_moe", { name: "qwen2moe", tensors: experts }],
  ["qwen3_moe", { name: "qwen3moe", tensors: experts, fixed: { norm_topk_prob: true } }],
  ["olmoe", { name: "olmoe", tensors: experts }],
  ["gemma", { name: "gemma", tensors: shiftedNorms(llama), activations: gelu }],
  [
    "gemma2",
    {
      name: "gemma2",
      tensors: shiftedNorms(named(llama, postNorms)),
      activations: gelu,
      settings: softcaps,
    },
  ],
  ...["gemma3", "gemma3_text"].map(
    (type): Family => [
      type,
      {
        name: "gemma3",
        tensors: shiftedNorms(named(llama, postNorms)),
        activations: gelu,
        // What Gemma's own files leave out.
        defaults: {
          hidden_activation: "gelu_pytorch_tanh",
          num_attention_heads: 8,
          num_key_value_heads: 4,
          head_dim: 256,
          max_position_embeddings: 131072,
          rms_norm_eps: 1e-6,
          rope_theta: 1e6,
          rope_local_base_freq: 10000,
          tie_word_embeddings: true,
        },
        settings: softcaps,
      },
    ],
  ),
  [
    "phi",
    {
      name: "phi2",
      activations: gelu,
      tensors: named(
        llama,
        { "self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down" },
        { global: { ...llama.global, final_layernorm: "output_norm" } },
      ),
      defaults: { partial_rotary_factor: 0.5 },
    },
  ],
  [
    "phi3",
    {
      name: "phi3",
      tensors: named(llama, { ...fusedGate, "self_attn.qkv_proj": "attn_qkv" }),
      keys: phi3Keys,
      constants: longFactors,
    },
  ],
  ["phimoe", { name: "phimoe", tensors: mixtral, keys: phi3Keys, constants: longFactors }],
  [
    "olmo",
    {
      name: "olmo",
      tensors: llama,
      settings: [{ from: "clip_qkv", to: ["attention.clamp_kqv"], type: "f32" }],
      keys: () => ({ "attention.layer_norm_epsilon": f32(1e-5) }),
    },
  ],
  ["olmo2", { name: "olmo2", tensors: named(llama, postNorms) }],
  ["olmo3", { name: "olmo2", tensors: named(llama, postNorms), keys: windowPattern }],
  [
    "cohere",
    {
      name: "command-r",
      tensors: llama,
      pairs: "stored",
      defaults: { tie_word_embeddings: true, logit_scale: 0.0625 },
      settings: [logitScale],
      keys: () => ({ "rope.scaling.type": text("none") }),
    },
  ],
  [
    "cohere2",
    {
      name: "cohere2",
      tensors: llama,
      pairs: "stored",
      defaults: { tie_word_embeddings: true, logit_scale: 0.0625 },
      settings: [logitScale],
      keys: (config) => ({
        "rope.scaling.type": text("none"),
        "rope.dimension_count": u32(headSize(config)),
      }),
    },
  ],
  ["smollm3", { name: "smollm3", tensors: llama }],
  ["granite", { name: "granite", tensors: llama, settings: graniteScales }],
  ["granitemoe", { name: "granitemoe", tensors: graniteMoe, settings: graniteScales }],
  ["granitemoeshared", { name: "granitemoe", tensors: graniteMoe, settings: graniteScales }],
  [
    "glm4",
    {
      name: "glm4",
      pairs: "stored",
      tensors: named(llama, {
        ...fusedGate,
        post_self_attn_layernorm: "post_attention_norm",
        post_mlp_layernorm: "post_ffw_norm",
      }),
      defaults: { partial_rotary_factor: 0.5 },
    },
  ],
  [
    "glm",
    {
      name: "chatglm",
      pairs: "stored",
      tensors: named(llama, fusedGate),
      defaults: { partial_rotary_factor: 0.5 },
    },
  ],
  [
    "glm4_moe",
    {
      name: "glm4moe",
      tensors: named(experts, { post_attention_layernorm: "post_attention_norm" }),
      defaults: { partial_rotary_factor: 0.5 },
      settings: [
        denseStart,
        sharedCount,
        expertScale,
        { from: "num_nextn_predict_layers", to: ["nextn_predict_layers"], type: "u32" },
      ],
      keys: (config) => ({
        block_count: u32(
          numberIn(config, ["num_hidden_layers"]) +
            numberIn(config, ["num_nextn_predict_layers"], 0),
        ),
        expert_gating_func: u32(gatings.sigmoid!),
        expert_weights_norm: bool(flagOf(config, "norm_topk_prob")),
      }),
    },
  ],
  ["ernie4_5", { name: "ernie4_5", tensors: llama, pairs: "stored" }],
  [
    "ernie4_5_moe",
    {
      name: "ernie4_5-moe",
      tensors: experts,
      pairs: "stored",
      settings: [
        { from: "moe_num_experts", to: ["expert_count"], type: "u32" },
        { from: "moe_k", to: ["expert_used_count"], type: "u32" },
        { from: "moe_layer_interval", to: ["interleave_moe_layer_step"], type: "u32" },
        { from: "moe_layer_start_index", to: ["leading_dense_block_count"], type: "u32" },
        { from: "moe_num_shared_experts", to: ["expert_shared_count"], type: "u32" },
      ],
      keys: (config) => ({
        expert_shared_feed_forward_length: u32(
          numberIn(config, ["moe_num_shared_experts"], 0) *
            numberIn(config, ["moe_intermediate_size"]),
        ),
      }),
    },
  ],
  [
    "hunyuan_v1_dense",
    {
      name: "hunyuan-dense",
      tensors: named(llama, {
        "self_attn.query_layernorm": "attn_q_norm",
        "self_attn.key_layernorm": "attn_k_norm",
      }),
      keys: hunyuanKeys,
    },
  ],
  [
    "hunyuan_v1_moe",
    {
      name: "hunyuan-moe",
      tensors: named(experts, {
        "self_attn.query_layernorm": "attn_q_norm",
        "self_attn.key_layernorm": "attn_k_norm",
        "mlp.gate.wg": "ffn_gate_inp",
        "mlp.shared_mlp.gate_proj": "ffn_gate_shexp",
        "mlp.shared_mlp.up_proj": "ffn_up_shexp",
        "mlp.shared_mlp.down_proj": "ffn_down_shexp",
      }),
      keys: (config) => ({
        ...hunyuanKeys(config),
        expert_shared_feed_forward_length: u32(numberIn(config, ["intermediate_size"])),
        expert_feed_forward_length: u32(same(config, "moe_intermediate_size")),
        expert_used_count: u32(same(config, "moe_topk")),
        expert_shared_count: u32(same(config, "num_shared_expert")),
      }),
    },
  ],
  ["internlm2", { name: "internlm2", tensors: internlm2 }],
  [
    "exaone",
    {
      name: "exaone",
      tensors: exaone,
      settings: [
        {
          from: "layer_norm_epsilon",
          to: ["attention.layer_norm_rms_epsilon"],
          type: "f32",
          required: true,
        },
      ],
    },
  ],
  ["exaone4", { name: "exaone4", tensors: named(llama, postNorms), keys: windowPattern }],
  [
    "minicpm",
    {
      name: "minicpm",
      tensors: llama,
      settings: [{ from: "scale_emb", to: ["embedding_scale"], type: "f32" }],
      keys: (config) => ({
        residual_scale: f32(
          numberIn(config, ["scale_depth"], 1.4) /
            Math.sqrt(numberIn(config, ["num_hidden_layers"])),
        ),
        logit_scale: f32(
          numberIn(config, ["hidden_size"]) / numberIn(config, ["dim_model_base"], 256),
        ),
      }),
    },
  ],
  [
    "stablelm",
    {
      name: "stablelm",
      tensors: llama,
      defaults: { partial_rotary_factor: 0.25 },
      keys: (config) => ({
        use_parallel_residual: bool(
          config.use_parallel_residual === undefined || flagOf(config, "use_parallel_residual"),
        ),
      }),
    },
  ],
  [
    "starcoder2",
    {
      name: "starcoder2",
      activations: gelu,
      tensors: named(llama, { "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down" }),
    },
  ],
  [
    "gpt_bigcode",
    {
      name: "starcoder",
      activations: gelu,
      tensors: starcoder,
      defaults: { tie_word_embeddings: true },
      without: ["feed_forward_length"],
      keys: (config) => ({
        feed_forward_length: u32(4 * numberIn(config, ["n_embd"])),
        "attention.head_count_kv": u32(1),
      }),
    },
  ],
  [
    "gpt2",
    {
      name: "gpt2",
      activations: gelu,
      tensors: gpt2,
      defaults: { tie_word_embeddings: true },
      without: ["feed_forward_length"],
      keys: (config) => ({ feed_forward_length: u32(4 * numberIn(config, ["n_embd"])) }),
    },
  ],
  [
    "gpt_neox",
    {
      name: "gptneox",
      activations: gelu,
      tensors: gptneox,
      keys: (config) => ({
        use_parallel_residual: bool(
          config.use_parallel_residual === undefined || flagOf(config, "use_parallel_residual"),
        ),
      }),
    },
  ],
  [
    "falcon",
    {
      name: "falcon",
      activations: gelu,
      tensors: falcon,
      defaults: { tie_word_embeddings: true },
      without: ["feed_forward_length"],
      keys: (config) => ({
        context_length: u32(2048), // not in config.json
        tensor_data_layout: text("jploski"),
        feed_forward_length: u32(4 * numberIn(config, ["hidden_size"])),
        "attention.head_count_kv": u32(falconGroups(config)),
      }),
    },
  ],
  [
    "bloom",
    {
      name: "bloom",
      activations: gelu,
      tensors: bloom,
      defaults: { tie_word_embeddings: true, seq_length: 2048 },
      without: ["feed_forward_length"],
      keys: (config) => {
        const heads = numberIn(config, ["n_head", "num_attention_heads"]);
        const embed = numberIn(config, ["hidden_size", "n_embed"]);
        return {
          context_length: u32(numberIn(config, ["seq_length"])),
          feed_forward_length: u32(4 * embed),
          "attention.head_count_kv": u32(heads),
        };
      },
    },
  ],
  [
    "nemotron",
    {
      name: "nemotron",
      activations: relu2,
      tensors: {
        ...shiftedNorms(llama),
        exact: Object.fromEntries(
          ["input_layernorm", "post_attention_layernorm"]
            .map((key): [string, Target] => [`${key}.bias`, `${String(llama.layer[key])}.bias`])
            .concat([["norm.bias", "output_norm.bias"]]),
        ),
      },
      settings: [{ from: "norm_eps", to: ["attention.layer_norm_epsilon"], type: "f32" }],
      keys: () => ({ "rope.scaling.type": text("none") }),
    },
  ],
  [
    "seed_oss",
    {
      name: "seed_oss",
      tensors: named(llama, { post_attention_layernorm: "post_attention_norm" }),
    },
  ],
  ["arcee", { name: "arcee", tensors: llama, activations: relu2 }],
  [
    "gpt_oss",
    {
      name: "gpt-oss",
      tensors: gptOss,
      keys: (config) => ({
        expert_feed_forward_length: u32(numberIn(config, ["intermediate_size"])),
      }),
    },
  ],
  [
    "minimax_m2",
    {
      name: "minimax-m2",
      tensors: mixtral,
      defaults: { scoring_func: "sigmoid" },
      keys: (config) => ({
        expert_feed_forward_length: u32(numberIn(config, ["intermediate_size"])),
        expert_gating_func: gating(config),
        "rope.dimension_count": u32(numberIn(config, ["rotary_dim"], headSize(config))),
      }),
    },
  ],
  ...(
    [
      ["deepseek_v2", {}],
      ["deepseek_v3", { scoring_func: "sigmoid", norm_topk_prob: true }],
    ] as const
  ).map(
    ([type, defaults]): Family => [
      type,
      {
        name: "deepseek2",
        tensors: deepseek2,
        pairs: "stored",
        defaults,
        settings: [denseStart, sharedCount, expertScale],
        keys: latentKeys,
      },
    ],
  ),
  [
    "deepseek",
    {
      name: "deepseek",
      tensors: experts,
      settings: [denseStart, sharedCount],
      keys: (config) => ({
        "rope.scaling.type": text("none"),
        expert_weights_scale: f32(1),
        expert_gating_func: gating(config),
      }),
    },
  ],
  [
    "dots1",
    {
      name: "dots1",
      tensors: experts,
      defaults: { scoring_func: "sigmoid" },
      settings: [denseStart, sharedCount, expertScale],
      keys: (config) => ({
        expert_gating_func: gating(config),
        expert_weights_norm: bool(flagOf(config, "norm_topk_prob")),
      }),
    },
  ],
  ...["llama4", "llama4_text"].map(
    (type): Family => [
      type,
      {
        name: "llama4",
        tensors: llama4,
        pairs: "stored",
        keys: (config) => ({
          feed_forward_length: u32(numberIn(config, ["intermediate_size_mlp"])),
          expert_feed_forward_length: u32(numberIn(config, ["intermediate_size"])),
          interleave_moe_layer_step: u32(numberIn(config, ["interleave_moe_layer_step"])),
        }),
      },
    ],
  ),
  [
    "lfm2",
    { name: "lfm2", tensors: lfm2, keys: lfm2Keys, defaults: { tie_word_embeddings: true } },
  ],
  [
    "lfm2_moe",
    {
      name: "lfm2moe",
      tensors: lfm2,
      defaults: { tie_word_embeddings: true },
      settings: [{ from: "num_dense_layers", to: ["leading_dense_block_count"], type: "u32" }],
      keys: (config) => ({ ...lfm2Keys(config), expert_gating_func: u32(gatings.sigmoid!) }),
    },
  ],
  [
    "mamba",
    {
      name: "mamba",
      tensors: mamba,
      defaults: { tie_word_embeddings: true },
      without: ["feed_forward_length", "attention.head_count"],
      keys: mambaKeys,
    },
  ],
  [
    "mamba2",
    {
      name: "mamba2",
      tensors: mamba2,
      without: ["feed_forward_length", "attention.head_count"],
      keys: mamba2Keys,
    },
  ],
];

export const architectures: ReadonlyMap<string, HuggingFaceArchitecture> = new Map(families);

// Hugging Face folders: Mixtures of experts. The names of their tensors, and the metadata that llama.cpp's converter makes of
// config.json. huggingface-families.ts has the table.

import {
  mxfp4,
  type Presented,
  rowGroups,
  split,
  type Target,
  transposed,
  transposedHalves,
  transposedTurns,
  turns,
  wrongShape,
} from "./huggingface-changes.ts";
import { flagOf, numberIn, ropeOf } from "./huggingface-config.ts";
import {
  bool,
  denseStart,
  expertScale,
  f32,
  gating,
  gatings,
  gelu,
  graniteScales,
  headSize,
  hunyuanKeys,
  longFactors,
  phi3Keys,
  same,
  sharedCount,
  softcaps,
  text,
  u32,
} from "./huggingface-keys.ts";
import type { HuggingFaceArchitecture, Setting, TensorNames } from "./huggingface-names.ts";
import {
  expertsNames,
  llamaNames,
  mixtralNames,
  named,
  sparseExpert,
} from "./huggingface-tensors.ts";
import type { JsonObject } from "./json.ts";
import type { MetadataEntry } from "./typed-metadata.ts";

function latentKeys(config: JsonObject): Record<string, MetadataEntry | undefined> {
  const rank = numberIn(config, ["kv_lora_rank"]);
  const rope = numberIn(config, ["qk_rope_head_dim"]);
  const ownRank = config.q_lora_rank;
  return {
    "attention.head_count_kv": u32(1),
    "attention.kv_lora_rank": u32(rank),
    "attention.q_lora_rank": typeof ownRank === "number" ? u32(ownRank) : undefined,
    "attention.key_length": u32(rank + rope),
    "attention.value_length": u32(rank),
    "attention.key_length_mla": u32(numberIn(config, ["qk_nope_head_dim"]) + rope),
    "attention.value_length_mla": u32(numberIn(config, ["v_head_dim"])),
    "rope.dimension_count": u32(rope),
    expert_gating_func: gating(config),
    expert_weights_norm: flagOf(config, "norm_topk_prob") ? bool(true) : undefined,
    "rope.scaling.yarn_log_multiplier": yarnLogMultiplier(config),
  };
}

function yarnLogMultiplier(config: JsonObject): MetadataEntry | undefined {
  const all = ropeOf(config).mscale_all_dim;
  return typeof all === "number" ? f32(0.1 * all) : undefined;
}

const graniteMoeNames: TensorNames = named(llamaNames, {
  "block_sparse_moe.input_linear": split("ffn_gate_exps", "ffn_up_exps"),
  "block_sparse_moe.output_linear": "ffn_down_exps",
  "block_sparse_moe.router.layer": "ffn_gate_inp",
  "shared_mlp.input_linear": split("ffn_gate_shexp", "ffn_up_shexp"),
  "shared_mlp.output_linear": "ffn_down_shexp",
});

/** Latent attention: the matrix of k, transposed, and that of v, which are one matrix in the folder. */
const latentKv: Target = (tensor, config) => {
  const heads = numberIn(config, ["num_attention_heads"]);
  const [nope, value] = [numberIn(config, ["qk_nope_head_dim"]), numberIn(config, ["v_head_dim"])];
  const [rows, rank] = tensor.shape as [number, number];
  if (tensor.shape.length !== 2 || rows !== heads * (nope + value)) {
    throw wrongShape(tensor, `[${heads} heads of ${nope} + ${value}, columns]`);
  }
  const first = (head: number) => head * (nope + value);
  const each = Array.from({ length: heads }, (_, head) => head);
  const keys = rowGroups(tensor, each.map(first), nope, [heads, nope]); // [heads, nope, rank]
  const values = rowGroups(
    tensor,
    each.map((head) => first(head) + nope),
    value,
    [heads, value],
  );
  const turned = { ...keys, shape: [heads, rank, nope] };
  return [
    {
      name: "attn_k_b",
      tensor: turned,
      stored: keys,
      change: { kind: "columns", first: 0, step: 1 },
    },
    { name: "attn_v_b", tensor: values },
  ];
};

const deepseek2Names: TensorNames = named(expertsNames, {
  "self_attn.q_a_proj": "attn_q_a",
  "self_attn.q_a_layernorm": "attn_q_a_norm",
  "self_attn.q_b_proj": "attn_q_b",
  "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
  "self_attn.kv_a_layernorm": "attn_kv_a_norm",
  "self_attn.kv_b_proj": latentKv,
});

const gptOssNames: TensorNames = named(
  llamaNames,
  { post_attention_layernorm: "post_attention_norm", "mlp.router": "ffn_gate_inp" },
  {
    exact: {
      "self_attn.sinks": "attn_sinks.weight",
      "mlp.experts.gate_up_proj": transposedTurns("ffn_gate_exps.weight", "ffn_up_exps.weight"),
      "mlp.experts.gate_up_proj_bias": turns("ffn_gate_exps.bias", "ffn_up_exps.bias"),
      "mlp.experts.down_proj": transposed("ffn_down_exps.weight"),
      "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
      "mlp.experts.gate_up_proj_blocks": mxfp4("ffn_gate_exps.weight", "ffn_up_exps.weight"),
      "mlp.experts.gate_up_proj_scales": () => [], // read with the blocks
      "mlp.experts.down_proj_blocks": mxfp4("ffn_down_exps.weight"),
      "mlp.experts.down_proj_scales": () => [],
    },
  },
);

const llama4Names: TensorNames = named(
  llamaNames,
  {
    "feed_forward.gate_proj": "ffn_gate",
    "feed_forward.up_proj": "ffn_up",
    "feed_forward.down_proj": "ffn_down",
    "feed_forward.router": "ffn_gate_inp",
    "feed_forward.shared_expert.gate_proj": "ffn_gate_shexp",
    "feed_forward.shared_expert.up_proj": "ffn_up_shexp",
    "feed_forward.shared_expert.down_proj": "ffn_down_shexp",
  },
  {
    exact: {
      "feed_forward.experts.gate_up_proj": transposedHalves(
        "ffn_gate_exps.weight",
        "ffn_up_exps.weight",
      ),
      "feed_forward.experts.down_proj": transposed("ffn_down_exps.weight"),
    },
  },
);

export const mixtral: HuggingFaceArchitecture = { name: "llama", tensors: mixtralNames };

export const qwen2Moe: HuggingFaceArchitecture = { name: "qwen2moe", tensors: expertsNames };

export const qwen3Moe: HuggingFaceArchitecture = {
  name: "qwen3moe",
  tensors: expertsNames,
  fixed: { norm_topk_prob: true },
};

export const olmoe: HuggingFaceArchitecture = { name: "olmoe", tensors: expertsNames };

export const phimoe: HuggingFaceArchitecture = {
  name: "phimoe",
  tensors: mixtralNames,
  keys: phi3Keys,
  constants: longFactors,
};

export const granitemoe: HuggingFaceArchitecture = {
  name: "granitemoe",
  tensors: graniteMoeNames,
  settings: graniteScales,
};

export const glm4Moe: HuggingFaceArchitecture = {
  name: "glm4moe",
  tensors: named(expertsNames, { post_attention_layernorm: "post_attention_norm" }),
  defaults: { partial_rotary_factor: 0.5 },
  settings: [
    denseStart,
    sharedCount,
    expertScale,
    { from: "num_nextn_predict_layers", to: ["nextn_predict_layers"], type: "u32" },
  ],
  keys: (config) => ({
    block_count: u32(
      numberIn(config, ["num_hidden_layers"]) + numberIn(config, ["num_nextn_predict_layers"], 0),
    ),
    expert_gating_func: u32(gatings.sigmoid!),
    expert_weights_norm: bool(flagOf(config, "norm_topk_prob")),
  }),
};

export const ernie4_5Moe: HuggingFaceArchitecture = {
  name: "ernie4_5-moe",
  tensors: expertsNames,
  defaults: { tie_word_embeddings: true },
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
      numberIn(config, ["moe_num_shared_experts"], 0) * numberIn(config, ["moe_intermediate_size"]),
    ),
  }),
};

export const hunyuanV1Moe: HuggingFaceArchitecture = {
  name: "hunyuan-moe",
  tensors: named(expertsNames, {
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
};

export const gptOss: HuggingFaceArchitecture = {
  name: "gpt-oss",
  packed: ["mxfp4"],
  tensors: gptOssNames,
  keys: (config) => ({
    expert_feed_forward_length: u32(numberIn(config, ["intermediate_size"])),
  }),
};

export const minimaxM2: HuggingFaceArchitecture = {
  name: "minimax-m2",
  tensors: mixtralNames,
  defaults: { scoring_func: "sigmoid" },
  keys: (config) => ({
    expert_feed_forward_length: u32(numberIn(config, ["intermediate_size"])),
    expert_gating_func: gating(config),
    "rope.dimension_count": u32(numberIn(config, ["rotary_dim"], headSize(config))),
  }),
};

export const deepseek: HuggingFaceArchitecture = {
  name: "deepseek",
  tensors: expertsNames,
  settings: [denseStart, sharedCount],
  keys: (config) => ({
    "rope.scaling.type": text("none"),
    expert_weights_scale: f32(1),
    expert_gating_func: gating(config),
  }),
};

export const dots1: HuggingFaceArchitecture = {
  name: "dots1",
  tensors: expertsNames,
  defaults: { scoring_func: "sigmoid" },
  settings: [denseStart, sharedCount, expertScale],
  keys: (config) => ({
    expert_gating_func: gating(config),
    expert_weights_norm: bool(flagOf(config, "norm_topk_prob")),
  }),
};

const latent: HuggingFaceArchitecture = {
  name: "deepseek2",
  tensors: deepseek2Names,
  pairs: "stored",
  settings: [denseStart, sharedCount, expertScale],
  keys: latentKeys,
  present: (config) => (config.q_lora_rank ? [] : ["blk.0.attn_q.weight"]),
};
export const deepseekV2: HuggingFaceArchitecture = latent;
export const deepseekV3: HuggingFaceArchitecture = {
  ...latent,
  defaults: { scoring_func: "sigmoid", norm_topk_prob: true },
};

export const llama4: HuggingFaceArchitecture = {
  name: "llama4",
  tensors: llama4Names,
  pairs: "stored",
  keys: (config) => ({
    feed_forward_length: u32(numberIn(config, ["intermediate_size_mlp"])),
    expert_feed_forward_length: u32(numberIn(config, ["intermediate_size"])),
    interleave_moe_layer_step: u32(numberIn(config, ["interleave_moe_layer_step"])),
  }),
};

/** All of q, then k, then v: three tensors. */
const bailingQkv: Target = (tensor, config) => {
  const heads = numberIn(config, ["num_attention_heads"]);
  const kvHeads = numberIn(config, ["num_key_value_heads"], heads);
  const rows = headSize(config);
  if (tensor.shape[0] !== (heads + 2 * kvHeads) * rows) {
    throw wrongShape(tensor, `${heads} + 2 * ${kvHeads} heads of ${rows} rows`);
  }
  const of = (name: string, first: number, count: number): Presented => {
    const starts = Array.from({ length: count }, (_, head) => (first + head) * rows);
    return { name, tensor: rowGroups(tensor, starts, rows, [count * rows]) };
  };
  return [
    of("attn_q", 0, heads),
    of("attn_k", heads, kvHeads),
    of("attn_v", heads + kvHeads, kvHeads),
  ];
};

const bailingNames: TensorNames = named(
  expertsNames,
  { "attention.query_key_value": bailingQkv, "attention.dense": "attn_output" },
  { global: { ...expertsNames.global, word_embeddings: "token_embd" } },
);

const bailingSettings: readonly Setting[] = [
  denseStart,
  { ...sharedCount, from: "num_shared_experts" },
];

export const bailingMoe: HuggingFaceArchitecture = {
  name: "bailingmoe",
  tensors: bailingNames,
  // Its output matrix would have to be divided by the length of its columns.
  fixed: { norm_head: false },
  settings: bailingSettings,
  keys: (config) => ({
    "rope.dimension_count": u32(headSize(config)),
    expert_weights_scale: f32(1),
    expert_weights_norm: bool(flagOf(config, "norm_topk_prob")),
  }),
};

export const bailingMoeV2: HuggingFaceArchitecture = {
  name: "bailingmoe2",
  tensors: named(
    bailingNames,
    {
      "attention.query_key_value": "attn_qkv",
      "attention.query_layernorm": "attn_q_norm",
      "attention.key_layernorm": "attn_k_norm",
    },
    { exact: { "mlp.gate.expert_bias": "exp_probs_b.bias" } },
  ),
  defaults: { partial_rotary_factor: 0.5 },
  // Layers that predict tokens further ahead are not read.
  fixed: { num_nextn_predict_layers: 0 },
  settings: [...bailingSettings, expertScale],
  keys: (config) => ({
    expert_shared_feed_forward_length: u32(
      numberIn(
        config,
        ["moe_shared_expert_intermediate_size"],
        numberIn(config, ["moe_intermediate_size"]) * numberIn(config, ["num_shared_experts"], 0),
      ),
    ),
    expert_weights_norm: bool(flagOf(config, "norm_topk_prob")),
    expert_gating_func: gating(config),
    nextn_predict_layers: config.num_nextn_predict_layers === undefined ? undefined : u32(0),
  }),
};

const grokNames: TensorNames = named(
  mixtralNames,
  {
    pre_attn_norm: "attn_norm",
    post_attn_norm: "attn_output_norm",
    pre_moe_norm: "ffn_norm",
    post_moe_norm: "post_ffw_norm",
    // Grok 1's own names.
    rms_norm: "attn_norm",
    rms_norm_1: "attn_output_norm",
    rms_norm_2: "ffn_norm",
    rms_norm_3: "layer_output_norm",
    "multi_head_attention.query": "attn_q",
    "multi_head_attention.key": "attn_k",
    "multi_head_attention.value": "attn_v",
    "multi_head_attention.linear": "attn_output",
    router: "ffn_gate_inp",
  },
  {
    global: { ...mixtralNames.global, in_out_embed: "token_embd", rms_norm: "output_norm" },
    experts: {
      stems: ["block_sparse_moe.experts", "moe"],
      each: {
        ...sparseExpert("").each,
        linear: "ffn_gate_exps",
        linear_v: "ffn_up_exps",
        linear_1: "ffn_down_exps",
      },
      fused: {},
    },
  },
);

const grokRope: readonly Setting[] = [
  { from: "scaling_factor", to: ["rope.scaling.factor"], type: "f32", required: true },
  {
    from: "original_max_position_embeddings",
    to: ["rope.scaling.original_context_length"],
    type: "u32",
    required: true,
  },
  { from: "extrapolation_factor", to: ["rope.scaling.yarn_ext_factor"], type: "f32" },
  { from: "attn_factor", to: ["rope.scaling.yarn_attn_factor"], type: "f32" },
  { from: "beta_fast", to: ["rope.scaling.yarn_beta_fast"], type: "f32" },
  { from: "beta_slow", to: ["rope.scaling.yarn_beta_slow"], type: "f32" },
];

/** Grok 2, and Grok 1 as it was put on Hugging Face. */
export function grok(config: JsonObject): HuggingFaceArchitecture {
  const isScaled = config.rope_type === "yarn" || config.rope_type === "original";
  return {
    name: "grok",
    activations: gelu,
    tensors: grokNames,
    settings: [
      ...softcaps,
      { from: "router_logit_softcapping", to: ["router_logit_softcapping"], type: "f32" },
      { from: "embedding_multiplier_scale", to: ["embedding_scale"], type: "f32", required: true },
      { from: "output_multiplier_scale", to: ["logit_scale"], type: "f32", required: true },
      { from: "attn_temperature_len", to: ["attention.temperature_length"], type: "u32" },
      ...(isScaled ? grokRope : []),
    ],
    defaults: { attn_logit_softcapping: 30, router_logit_softcapping: 30, hidden_act: "gelu" },
    // Grok 2 has a dense network beside its experts, which have a size of their own.
    present: (own) => (own.moe_intermediate_size === undefined ? [] : ["blk.0.ffn_up.weight"]),
    keys: (own) => ({
      "rope.scaling.type": isScaled ? text("yarn") : undefined,
      "attention.output_scale": f32(
        numberIn(own, ["attn_output_multiplier"], headSize(own) ** -0.5),
      ),
    }),
  };
}

// Hugging Face folders: Mixtures of experts. The names of their tensors, and what llama.cpp's converter
// makes of config.json. huggingface-families.ts has the table.

import {
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
  graniteScales,
  headSize,
  hunyuanKeys,
  longFactors,
  phi3Keys,
  same,
  sharedCount,
  text,
  u32,
} from "./huggingface-keys.ts";
import type { HuggingFaceArchitecture, TensorNames } from "./huggingface-names.ts";
import { expertsNames, llamaNames, mixtralNames, named } from "./huggingface-tensors.ts";
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

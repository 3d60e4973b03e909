// Keys of config.json that only some families have, and GGUF keys that are computed from several: the parts of
// huggingface-families.ts that are not names of tensors.

import { byName } from "../base/by-name.ts";
import { constant, type Presented } from "./huggingface-changes.ts";
import { configError, flagOf, numberIn, numbersIn, ropeOf, textsIn } from "./huggingface-config.ts";
import type { Setting } from "./huggingface-names.ts";
import type { JsonObject } from "./json.ts";
import { arrayEntry, type MetadataEntry } from "./typed-metadata.ts";

export const u32: (value: number) => MetadataEntry = (value: number): MetadataEntry => ({
  type: "u32",
  value,
});
export const f32: (value: number) => MetadataEntry = (value: number): MetadataEntry => ({
  type: "f32",
  value: Math.fround(value),
});
export const bool: (value: boolean) => MetadataEntry = (value: boolean): MetadataEntry => ({
  type: "bool",
  value,
});
export const text: (value: string) => MetadataEntry = (value: string): MetadataEntry => ({
  type: "string",
  value,
});

export const graniteScales: readonly Setting[] = [
  { from: "attention_multiplier", to: ["attention.scale"], type: "f32" },
  { from: "embedding_multiplier", to: ["embedding_scale"], type: "f32" },
  { from: "residual_multiplier", to: ["residual_scale"], type: "f32" },
  { from: "logits_scaling", to: ["logit_scale"], type: "f32" },
  {
    from: "shared_intermediate_size",
    to: ["expert_shared_feed_forward_length"],
    type: "u32",
  },
];

export const denseStart: Setting = {
  from: "first_k_dense_replace",
  to: ["leading_dense_block_count"],
  type: "u32",
};
export const sharedCount: Setting = {
  from: "n_shared_experts",
  to: ["expert_shared_count"],
  type: "u32",
};
export const expertScale: Setting = {
  from: "routed_scaling_factor",
  to: ["expert_weights_scale"],
  type: "f32",
};
export const logitScale: Setting = { from: "logit_scale", to: ["logit_scale"], type: "f32" };
export const softcaps: readonly Setting[] = [
  { from: "attn_logit_softcapping", to: ["attn_logit_softcapping"], type: "f32" },
  { from: "final_logit_softcapping", to: ["final_logit_softcapping"], type: "f32" },
];

/** Which layers have a window, where a configuration lists it. */
export function windowPattern(config: JsonObject): Record<string, MetadataEntry | undefined> {
  const types = textsIn(config, "layer_types");
  const hasWindow = typeof config.sliding_window === "number";
  if (!types || !hasWindow) return {};
  return {
    "attention.sliding_window_pattern": arrayEntry(
      "bool",
      types.map((type) => type === "sliding_attention"),
    ),
  };
}

export const gatings: Readonly<Record<string, number>> = byName({ softmax: 1, sigmoid: 2 });

/** How experts' scores become weights. */
export function gating(config: JsonObject): MetadataEntry | undefined {
  const value = config.scoring_func ?? config.score_function;
  if (value === undefined || value === null) return undefined;
  const found = gatings[String(value)];
  if (found !== undefined) return u32(found);
  throw configError("scoring_func", JSON.stringify(value), Object.keys(gatings).join(" or "));
}

export function latentKeys(config: JsonObject): Record<string, MetadataEntry | undefined> {
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

/** A number for each layer: KV heads of those with attention, 0 for those with a convolution. */
export function lfm2Keys(config: JsonObject): Record<string, MetadataEntry | undefined> {
  const kvHeads = numberIn(config, ["num_key_value_heads"]);
  const layers = numberIn(config, ["num_hidden_layers"]);
  const listed = numbersIn(config, "full_attn_idxs");
  const types =
    textsIn(config, "layer_types") ??
    Array.from({ length: layers }, (_, i) => (listed?.includes(i) ? "full_attention" : "conv"));
  const counts = types.map((type) => (type === "full_attention" ? kvHeads : 0));
  return {
    "attention.head_count_kv": arrayEntry("i32", counts),
    "shortconv.l_cache": u32(numberIn(config, ["conv_L_cache"])),
    feed_forward_length: u32(lfm2FeedForward(config)),
  };
}

/** LFM 2 states the size before it is cut to two thirds and rounded up. */
function lfm2FeedForward(config: JsonObject): number {
  const stated = numberIn(config, ["block_ff_dim", "intermediate_size"]);
  if (config.block_auto_adjust_ff_dim !== true) return stated;
  const scaled = Math.trunc(
    Math.trunc((2 * stated) / 3) * numberIn(config, ["block_ffn_dim_multiplier"], 1),
  );
  const multiple = numberIn(config, ["block_multiple_of"], 256);
  return multiple * Math.ceil(scaled / multiple);
}

export function mambaKeys(config: JsonObject): Record<string, MetadataEntry | undefined> {
  const embed = numberIn(config, ["hidden_size", "d_model"]);
  const inner = numberIn(config, ["intermediate_size", "d_inner"], 2 * embed);
  const rank = config.time_step_rank ?? config.dt_rank;
  return {
    context_length: u32(1 << 20), // the converter's: a scan has no end
    feed_forward_length: u32(0),
    "attention.head_count": u32(0),
    "ssm.conv_kernel": u32(numberIn(config, ["conv_kernel", "d_conv"], 4)),
    "ssm.inner_size": u32(inner),
    "ssm.state_size": u32(numberIn(config, ["state_size", "d_state"], 16)),
    "ssm.time_step_rank": u32(typeof rank === "number" ? rank : Math.ceil(embed / 16)),
    "ssm.dt_b_c_rms": bool(false),
    "attention.layer_norm_rms_epsilon": f32(
      numberIn(config, ["layer_norm_epsilon", "rms_norm_eps"], 1e-5),
    ),
    "attention.layer_norm_epsilon": undefined,
  };
}

export function mamba2Keys(config: JsonObject): Record<string, MetadataEntry | undefined> {
  const embed = numberIn(config, ["hidden_size", "d_model"]);
  const inner = numberIn(config, ["intermediate_size", "d_inner"], 2 * embed);
  const headDim = numberIn(config, ["head_dim", "mamba_d_head"], 64);
  return {
    ...mambaKeys(config),
    "ssm.state_size": u32(numberIn(config, ["state_size", "d_state"], 128)),
    "ssm.time_step_rank": u32(inner / headDim),
    "ssm.group_count": u32(numberIn(config, ["n_groups"], 1)),
    "ssm.dt_b_c_rms": undefined,
    "attention.key_length": undefined,
    "attention.value_length": undefined,
  };
}

/** Phi's long contexts: factors for each pair, as tensors. */
export function longFactors(config: JsonObject): readonly Presented[] {
  const rope = ropeOf(config);
  const long = numbersIn(rope, "long_factor");
  const short = numbersIn(rope, "short_factor");
  if (!long || !short) return [];
  return [
    constant("rope_factors_long.weight", long, "config.json"),
    constant("rope_factors_short.weight", short, "config.json"),
  ];
}

export function phi3Keys(config: JsonObject): Record<string, MetadataEntry | undefined> {
  const rope = ropeOf(config);
  const context = numberIn(config, ["max_position_embeddings"]);
  const original = numberIn({ ...config, ...rope }, ["original_max_position_embeddings"], context);
  const scale = context / original;
  const factor = scale > 1 ? Math.sqrt(1 + Math.log(scale) / Math.log(original)) : 1;
  return {
    "rope.scaling.original_context_length": u32(original),
    "rope.scaling.attn_factor": numbersIn(rope, "long_factor") ? f32(factor) : undefined,
    "attention.sliding_window": u32(numberIn(config, ["sliding_window"], 0)),
  };
}

/** Hunyuan's "dynamic" scaling is a larger base. */
export function hunyuanKeys(config: JsonObject): Record<string, MetadataEntry | undefined> {
  const rope = ropeOf(config);
  if ((rope.rope_type ?? rope.type) !== "dynamic") return {};
  const dim = numberIn(config, ["head_dim"], 128);
  const base = numberIn({ ...config, ...rope }, ["rope_theta"], 10000);
  const alpha = numberIn(rope, ["alpha"], 1000);
  return {
    "rope.freq_base": f32(base * alpha ** (dim / (dim - 2))),
    "rope.scaling.type": text("none"),
    "rope.scaling.factor": f32(1),
  };
}

/** The first of a list, in which all are the same. */
export function same(config: JsonObject, key: string): number {
  const list = Array.isArray(config[key]) ? numbersIn(config, key) : undefined;
  if (!list) return numberIn(config, [key]);
  if (list.length > 0 && list.every((value) => value === list[0])) return list[0]!;
  throw configError(key, JSON.stringify(config[key]), "the same number for every layer");
}

export const headSize = (config: JsonObject): number =>
  numberIn(
    config,
    ["head_dim"],
    numberIn(config, ["hidden_size", "n_embd"]) /
      numberIn(config, ["num_attention_heads", "n_head"]),
  );

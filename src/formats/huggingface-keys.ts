// Keys of config.json that only some families have, and GGUF keys that are computed from several: the parts of
// huggingface-families.ts that are not names of tensors.

import { byName } from "../base/by-name.ts";
import { constant, type Presented } from "./huggingface-changes.ts";
import { configError, numberIn, numbersIn, ropeOf, textsIn } from "./huggingface-config.ts";
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

/** The function that turns experts' scores into weights. */
export function gating(config: JsonObject): MetadataEntry | undefined {
  const value = config.scoring_func ?? config.score_function;
  if (value === undefined || value === null) return undefined;
  const found = gatings[String(value)];
  if (found !== undefined) return u32(found);
  throw configError("scoring_func", JSON.stringify(value), Object.keys(gatings).join(" or "));
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

/** Values of hidden_act, beside SwiGLU's. */
export const gelu: readonly string[] = ["gelu", "gelu_pytorch_tanh", "gelu_new", "gelu_fast"];
export const relu2: readonly string[] = ["relu2"];

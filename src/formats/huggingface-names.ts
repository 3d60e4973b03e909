// The mapping of Hugging Face's names to GGUF's: the parts of the families (huggingface-families.ts), and the keys of config.json
// that most of them share.

import type { Presented, Target } from "./huggingface-changes.ts";
import type { ExpertNames } from "./huggingface-experts.ts";
import { placeOf, textName } from "./huggingface-place.ts";
import { isObject, type JsonObject } from "./json.ts";
import type { TensorInfo } from "./model-file.ts";
import type { MetadataEntry, ScalarType } from "./typed-metadata.ts";

export interface HuggingFaceArchitecture {
  /** GGUF's general.architecture. */
  readonly name: string;
  readonly tensors: TensorNames;
  /** The values of hidden_act that the architecture computes. Default: SwiGLU's. */
  readonly activations?: readonly string[];
  /** Values of keys that a config.json may leave out. */
  readonly defaults?: JsonObject;
  /** The architecture's values for keys that a config.json could set otherwise. */
  readonly fixed?: JsonObject;
  /** The required keys that this family may lack. */
  readonly without?: readonly string[];
  /** Numbers beside the common ones. */
  readonly settings?: readonly Setting[];
  /** Keys after "<architecture>.", computed from config.json; undefined: the key is not written. */
  readonly keys?: (config: JsonObject) => Readonly<Record<string, MetadataEntry | undefined>>;
  /** Tensors that only config.json has. */
  readonly constants?: (config: JsonObject) => readonly Presented[];
  /** GGUF's lists of numbers, one for each layer, by the names of the single values that the folder has after "layers.N.". */
  readonly listed?: Readonly<Record<string, string>>;
  /** The optional tensors of the architecture that a folder with this config.json has. */
  readonly present?: (config: JsonObject) => readonly string[];
  /** A reranker's labels: tokens with rows of the output matrix that form its classifier. */
  readonly labels?: readonly string[];
  /** A reranker's template for a query and a document: {query}, {document}. */
  readonly pairTemplate?: string;
  /** The quant_method of folders with tensors that are packed as this family reads them. */
  readonly packed?: readonly string[];
  /** "stored": GGUF has q and k as the folder has them. Default: pairs are half a head apart in the folder. */
  readonly pairs?: "stored";
}

export interface TensorNames {
  /** Tensors outside the layers. */
  readonly global: Readonly<Record<string, Target>>;
  /** "layers.N." + key becomes "blk.N." + value. */
  readonly layer: Readonly<Record<string, Target>>;
  /** The same for names that do not end in ".weight" or ".bias"; values are whole names. */
  readonly exact?: Readonly<Record<string, Target>>;
  /** Precomputed tables that some checkpoints contain, and parts of a model that are not its language model. */
  readonly ignored: RegExp;
  /** Only for a mixture of experts. */
  readonly experts?: ExpertNames;
}

/** A tensor as GGUF has it, under its own name if GGUF has none; undefined if it is ignored. */
export function presented(
  names: TensorNames,
  tensor: TensorInfo,
  config: JsonObject,
  table: ReadonlyMap<string, TensorInfo>,
): readonly Presented[] {
  const own = textName(tensor.name);
  if (names.ignored.test(own)) return [];
  const { layer, rest } = placeOf(own);
  const prefix = layer === undefined ? "" : `blk.${layer}.`;
  const exact = lookUp(names.exact ?? {}, rest);
  if (exact !== undefined) return resolved(exact, prefix, "", tensor, config, table);
  const [, stem, kind] = /^(.+)(\.(?:weight|bias))$/.exec(rest) ?? [];
  const ownNames = layer === undefined ? names.global : names.layer;
  const target = stem === undefined ? undefined : lookUp(ownNames, stem);
  if (target === undefined) return [{ name: tensor.name, tensor }];
  return resolved(target, prefix, kind!, tensor, config, table);
}

function resolved(
  target: Target,
  prefix: string,
  suffix: string,
  tensor: TensorInfo,
  config: JsonObject,
  table: ReadonlyMap<string, TensorInfo>,
): readonly Presented[] {
  if (typeof target === "string") return [{ name: `${prefix}${target}${suffix}`, tensor }];
  return target(tensor, config, table).map((each) => ({
    ...each,
    name: `${prefix}${each.name}${suffix}`,
  }));
}

function lookUp<T>(table: Readonly<Record<string, T>>, key: string): T | undefined {
  return Object.hasOwn(table, key) ? table[key] : undefined;
}

/** The configuration of the language model in a model with pictures or sound. */
export function textConfig(config: JsonObject): JsonObject {
  const text = Object.hasOwn(config, "text_config") ? config.text_config : undefined;
  return isObject(text) ? { ...config, ...text } : config;
}

/** A family, or several that config.json tells apart. */
export type Family = HuggingFaceArchitecture | ((config: JsonObject) => HuggingFaceArchitecture);

/** A number in config.json, under the first of these names that is there, and the "<architecture>." keys it becomes. */
export interface Setting {
  /** The largest value of a real model, where arrays of that length are made. */
  readonly most?: number;
  readonly from: string | readonly string[];
  readonly to: readonly string[];
  readonly type: ScalarType & ("u32" | "f32");
  readonly required?: true | undefined;
}

export const settings: readonly Setting[] = [
  {
    from: ["num_hidden_layers", "n_layer", "n_layers", "num_layers"],
    to: ["block_count"],
    type: "u32",
    most: 1024,
    required: true,
  },
  {
    from: ["hidden_size", "n_embd", "d_model"],
    to: ["embedding_length"],
    type: "u32",
    required: true,
  },
  {
    from: ["intermediate_size", "n_inner"],
    to: ["feed_forward_length"],
    type: "u32",
    required: true,
  },
  {
    from: ["num_attention_heads", "n_head", "n_heads"],
    to: ["attention.head_count"],
    type: "u32",
    required: true,
  },
  {
    from: ["num_key_value_heads", "num_kv_heads"],
    to: ["attention.head_count_kv"],
    type: "u32",
  },
  { from: "head_dim", to: ["attention.key_length", "attention.value_length"], type: "u32" },
  {
    from: ["rms_norm_eps", "norm_eps"],
    to: ["attention.layer_norm_rms_epsilon"],
    type: "f32",
  },
  {
    from: ["layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"],
    to: ["attention.layer_norm_epsilon"],
    type: "f32",
  },
  {
    from: ["max_position_embeddings", "n_ctx", "n_positions"],
    to: ["context_length"],
    type: "u32",
  },
  { from: "vocab_size", to: ["vocab_size"], type: "u32" },
  {
    from: ["num_local_experts", "num_experts", "n_routed_experts"],
    to: ["expert_count"],
    type: "u32",
  },
  { from: "num_experts_per_tok", to: ["expert_used_count"], type: "u32" },
  { from: "moe_intermediate_size", to: ["expert_feed_forward_length"], type: "u32" },
  {
    from: "shared_expert_intermediate_size",
    to: ["expert_shared_feed_forward_length"],
    type: "u32",
  },
  { from: "n_group", to: ["expert_group_count"], type: "u32" },
  { from: "topk_group", to: ["expert_group_used_count"], type: "u32" },
];

/** Read only if the configuration has it and does not switch it off (use_sliding_window). */
export const slidingWindow: Setting = {
  from: "sliding_window",
  to: ["attention.sliding_window"],
  type: "u32",
};

/**
 * rope_scaling / rope_parameters, by rope_type; all under "<architecture>.rope.scaling.". GGUF has type, factor,
 * original_context_length and the yarn_* keys. It has no keys for llama3 (its converters store a tensor of factors
 * instead), so low_freq_factor and high_freq_factor are Lantern's own.
 */
export const ropeScalings: ReadonlyMap<string, readonly Setting[]> = new Map([
  ["default", []],
  // Hunyuan's, which is a larger base: its family writes that.
  ["dynamic", []],
  // Phi's factors are tensors.
  ["longrope", []],
  ["linear", [{ from: "factor", to: ["factor"], type: "f32", required: true }]],
  [
    "llama3",
    [
      { from: "factor", to: ["factor"], type: "f32", required: true },
      { from: "low_freq_factor", to: ["low_freq_factor"], type: "f32", required: true },
      { from: "high_freq_factor", to: ["high_freq_factor"], type: "f32", required: true },
      {
        from: "original_max_position_embeddings",
        to: ["original_context_length"],
        type: "u32",
        required: true,
      },
    ],
  ],
  [
    "yarn",
    [
      { from: "factor", to: ["factor"], type: "f32", required: true },
      {
        from: "original_max_position_embeddings",
        to: ["original_context_length"],
        type: "u32",
      },
      { from: "extrapolation_factor", to: ["yarn_ext_factor"], type: "f32" },
      { from: "beta_fast", to: ["yarn_beta_fast"], type: "f32" },
      { from: "beta_slow", to: ["yarn_beta_slow"], type: "f32" },
      { from: "attn_factor", to: ["attn_factor"], type: "f32" },
    ],
  ],
] as [string, readonly Setting[]][]);

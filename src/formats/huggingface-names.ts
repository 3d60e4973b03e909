// The architectures of Hugging Face folders, as data: their GGUF names, settings and tensors. One line in
// `architectures` adds a model_type whose tensors are named like Llama's.

import type { ExpertNames } from "./huggingface-experts.ts";
import type { ScalarType } from "./typed-metadata.ts";

export interface HuggingFaceArchitecture {
  /** GGUF's general.architecture. */
  readonly name: string;
  readonly tensors: TensorNames;
}

export interface TensorNames {
  /** Tensors outside the layers. */
  readonly global: Readonly<Record<string, string>>;
  /** "layers.N." + key becomes "blk.N." + value. */
  readonly layer: Readonly<Record<string, string>>;
  /** Precomputed tables that some checkpoints contain. */
  readonly ignored: RegExp;
  /** Only for a mixture of experts. */
  readonly experts?: ExpertNames;
}

/** The names before ".weight" and ".bias". */
const llamaTensors: TensorNames = {
  global: { embed_tokens: "token_embd", norm: "output_norm", lm_head: "output" },
  layer: {
    input_layernorm: "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    post_attention_layernorm: "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
  },
  ignored: /rotary_emb\.inv_freq$/,
};

/** Qwen's and OLMo's mixtures of experts: a tensor for each expert, or all experts in one, with gate and up fused. */
const moeTensors: TensorNames = {
  ...llamaTensors,
  layer: {
    ...llamaTensors.layer,
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
  },
  experts: {
    stem: "mlp.experts",
    each: { gate_proj: "ffn_gate_exps", up_proj: "ffn_up_exps", down_proj: "ffn_down_exps" },
    fused: { gate_up_proj: ["ffn_gate_exps", "ffn_up_exps"], down_proj: ["ffn_down_exps"] },
  },
};

const mixtralTensors: TensorNames = {
  ...llamaTensors,
  layer: { ...llamaTensors.layer, "block_sparse_moe.gate": "ffn_gate_inp" },
  experts: {
    stem: "block_sparse_moe.experts",
    each: { w1: "ffn_gate_exps", w3: "ffn_up_exps", w2: "ffn_down_exps" },
    fused: {},
  },
};

/** By config.json's model_type. */
export const architectures: ReadonlyMap<string, HuggingFaceArchitecture> = new Map([
  ["llama", { name: "llama", tensors: llamaTensors }],
  ["mistral", { name: "llama", tensors: llamaTensors }],
  ["qwen2", { name: "qwen2", tensors: llamaTensors }],
  ["qwen3", { name: "qwen3", tensors: llamaTensors }],
  ["mixtral", { name: "llama", tensors: mixtralTensors }],
  ["qwen2_moe", { name: "qwen2moe", tensors: moeTensors }],
  ["qwen3_moe", { name: "qwen3moe", tensors: moeTensors }],
  ["olmoe", { name: "olmoe", tensors: moeTensors }],
]);

/** GGUF's name of a tensor; the same name if GGUF has none; undefined if the tensor is ignored. */
export function ggufTensorName(names: TensorNames, name: string): string | undefined {
  if (names.ignored.test(name)) return undefined;
  const match = /^(?:model\.)?(?:layers\.(\d{1,6})\.)?(.+)\.(weight|bias)$/.exec(name);
  if (!match) return name;
  const [, layer, stem, kind] = match as unknown as [string, string | undefined, string, string];
  const table = layer === undefined ? names.global : names.layer;
  const renamed = Object.hasOwn(table, stem) ? table[stem] : undefined;
  if (renamed === undefined) return name;
  return layer === undefined ? `${renamed}.${kind}` : `blk.${Number(layer)}.${renamed}.${kind}`;
}

/** A number in config.json and the "<architecture>." keys it becomes. */
export interface Setting {
  readonly from: string;
  readonly to: readonly string[];
  readonly type: ScalarType & ("u32" | "f32");
  readonly required?: true;
}

export const settings: readonly Setting[] = [
  { from: "num_hidden_layers", to: ["block_count"], type: "u32", required: true },
  { from: "hidden_size", to: ["embedding_length"], type: "u32", required: true },
  { from: "intermediate_size", to: ["feed_forward_length"], type: "u32", required: true },
  { from: "num_attention_heads", to: ["attention.head_count"], type: "u32", required: true },
  { from: "num_key_value_heads", to: ["attention.head_count_kv"], type: "u32" },
  { from: "head_dim", to: ["attention.key_length", "attention.value_length"], type: "u32" },
  { from: "rms_norm_eps", to: ["attention.layer_norm_rms_epsilon"], type: "f32" },
  { from: "max_position_embeddings", to: ["context_length"], type: "u32" },
  { from: "vocab_size", to: ["vocab_size"], type: "u32" },
  { from: "num_experts", to: ["expert_count"], type: "u32" },
  { from: "num_local_experts", to: ["expert_count"], type: "u32" },
  { from: "num_experts_per_tok", to: ["expert_used_count"], type: "u32" },
  { from: "moe_intermediate_size", to: ["expert_feed_forward_length"], type: "u32" },
  {
    from: "shared_expert_intermediate_size",
    to: ["expert_shared_feed_forward_length"],
    type: "u32",
  },
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

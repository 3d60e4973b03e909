// The names of tensors in Hugging Face folders, by kind of model, and the changes of tensors that GGUF stores in another form.
// huggingface-families.ts assigns them to families.

import { plusOne, reshaped, type Target } from "./huggingface-changes.ts";
import type { ExpertNames } from "./huggingface-experts.ts";
import type { TensorNames } from "./huggingface-names.ts";

/** The names before ".weight" and ".bias". */
export const llamaNames: TensorNames = {
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
  ignored:
    /rotary_emb\.inv_freq$|^(?:model\.)?(?:vision_tower|vision_model|multi_modal_projector|visual|mtp|mtp_block\.\d+|mtp_emb_norm\.\d+|mtp_hidden_norm\.\d+|mtp_linear_proj\.\d+)\./,
};

/** The same names, with some replaced. */
export function named(
  base: TensorNames,
  layer: TensorNames["layer"],
  more: Partial<TensorNames> = {},
): TensorNames {
  return { ...base, ...more, layer: { ...base.layer, ...layer } };
}

/** Norms after attention and feed-forward, as Gemma 2 and OLMo 2 have them. */
export const postNorms: TensorNames["layer"] = {
  post_attention_layernorm: "post_attention_norm",
  pre_feedforward_layernorm: "ffn_norm",
  post_feedforward_layernorm: "post_ffw_norm",
};

/** Gemma stores its norms' weights as their difference from 1. */
export function shiftedNorms(names: TensorNames): TensorNames {
  const shift = (table: Readonly<Record<string, Target>>): Record<string, Target> =>
    Object.fromEntries(
      Object.entries(table).map(([key, target]) =>
        typeof target === "string" && key.endsWith("norm") ? [key, plusOne(target)] : [key, target],
      ),
    );
  return { ...names, global: shift(names.global), layer: shift(names.layer) };
}

/** Phi's and GLM's feed-forward has gate and up in one matrix, as in GGUF. */
export const fusedGate: TensorNames["layer"] = { "mlp.gate_up_proj": "ffn_up" };

const eachExpert: ExpertNames = {
  stems: ["mlp.experts"],
  each: { gate_proj: "ffn_gate_exps", up_proj: "ffn_up_exps", down_proj: "ffn_down_exps" },
  fused: { gate_up_proj: ["ffn_gate_exps", "ffn_up_exps"], down_proj: ["ffn_down_exps"] },
};
export const sparseExpert: (stem: string) => ExpertNames = (stem: string): ExpertNames => ({
  stems: [stem],
  each: { w1: "ffn_gate_exps", w3: "ffn_up_exps", w2: "ffn_down_exps" },
  fused: { gate_up_proj: ["ffn_gate_exps", "ffn_up_exps"], down_proj: ["ffn_down_exps"] },
});

/** Mixtures of experts: a tensor for each expert, or all experts in one, with gate and up fused. */
export const expertsNames: TensorNames = named(
  llamaNames,
  {
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
  },
  {
    exact: {
      "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
      "mlp.moe_statics.e_score_correction_bias": reshaped("exp_probs_b.bias", (shape) =>
        shape.slice(-1),
      ),
    },
    experts: eachExpert,
  },
);

export const mixtralNames: TensorNames = named(
  llamaNames,
  { "block_sparse_moe.gate": "ffn_gate_inp" },
  {
    exact: { "block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias" },
    experts: sparseExpert("block_sparse_moe.experts"),
  },
);

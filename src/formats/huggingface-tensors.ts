// The names of tensors in Hugging Face folders, by kind of model, and what becomes of those that GGUF stores in another form.
// huggingface-families.ts says which family has which.

import {
  decay,
  headDecay,
  type Presented,
  plusOne,
  reshaped,
  rowGroups,
  split,
  squeezed,
  type Target,
  transposed,
  transposedHalves,
  transposedTurns,
  turns,
  wrongShape,
} from "./huggingface-changes.ts";
import { numberIn } from "./huggingface-config.ts";
import type { ExpertNames } from "./huggingface-experts.ts";
import type { TensorNames } from "./huggingface-names.ts";
import type { JsonObject } from "./json.ts";

/** The names before ".weight" and ".bias". */
export const llama: TensorNames = {
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

/** The same names with others in place of some. */
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
  stem: "mlp.experts",
  each: { gate_proj: "ffn_gate_exps", up_proj: "ffn_up_exps", down_proj: "ffn_down_exps" },
  fused: { gate_up_proj: ["ffn_gate_exps", "ffn_up_exps"], down_proj: ["ffn_down_exps"] },
};
const sparseExpert = (stem: string): ExpertNames => ({
  stem,
  each: { w1: "ffn_gate_exps", w3: "ffn_up_exps", w2: "ffn_down_exps" },
  fused: { gate_up_proj: ["ffn_gate_exps", "ffn_up_exps"], down_proj: ["ffn_down_exps"] },
});

/** Mixtures of experts: a tensor for each expert, or all experts in one, with gate and up fused. */
export const experts: TensorNames = named(
  llama,
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

export const mixtral: TensorNames = named(
  llama,
  { "block_sparse_moe.gate": "ffn_gate_inp" },
  {
    exact: { "block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias" },
    experts: sparseExpert("block_sparse_moe.experts"),
  },
);

export const graniteMoe: TensorNames = named(llama, {
  "block_sparse_moe.input_linear": split("ffn_gate_exps", "ffn_up_exps"),
  "block_sparse_moe.output_linear": "ffn_down_exps",
  "block_sparse_moe.router.layer": "ffn_gate_inp",
  "shared_mlp.input_linear": split("ffn_gate_shexp", "ffn_up_shexp"),
  "shared_mlp.output_linear": "ffn_down_shexp",
});

/** The rows of one head after the other, q, k and v of each: all of q, then k, then v. */
const headByHead: Target = (tensor, config) => {
  const heads = numberIn(config, ["num_attention_heads", "n_head"]);
  return [regrouped(tensor, heads, 1)];
};

/** Groups of heads that share k and v: q of the group, k, v. */
const groupByGroup: Target = (tensor, config) => {
  const heads = numberIn(config, ["num_attention_heads", "n_head"]);
  const groups = falconGroups(config);
  return [regrouped(tensor, groups, heads / groups)];
};

/** Falcon's first models share one k and v between all heads, whatever num_kv_heads says. */
export function falconGroups(config: JsonObject): number {
  const isFirst = config.multi_query === true && config.new_decoder_architecture !== true;
  return isFirst ? 1 : numberIn(config, ["num_kv_heads", "n_head_kv"], 1);
}

function regrouped(
  tensor: Parameters<typeof rowGroups>[0],
  groups: number,
  each: number,
): Presented {
  const rows = tensor.shape[0]! / (groups * (each + 2));
  if (!Number.isInteger(rows) || rows === 0 || !Number.isInteger(each)) {
    throw wrongShape(tensor, `q, k and v of ${groups} groups of ${each} heads`);
  }
  const blocks = Array.from({ length: groups * (each + 2) }, (_, i) => i);
  const inGroup = (i: number) => i % (each + 2);
  const order = [
    ...blocks.filter((i) => inGroup(i) < each),
    ...blocks.filter((i) => inGroup(i) === each),
    ...blocks.filter((i) => inGroup(i) === each + 1),
  ];
  const starts = order.map((i) => i * rows);
  return { name: "attn_qkv", tensor: rowGroups(tensor, starts, rows, [tensor.shape[0]!]) };
}

/** InternLM 2: the same groups, as three tensors. */
const internlmQkv: Target = (tensor, config) => {
  const heads = numberIn(config, ["num_attention_heads"]);
  const groups = numberIn(config, ["num_key_value_heads"], heads);
  const each = heads / groups;
  const rows = tensor.shape[0]! / (groups * (each + 2));
  if (!Number.isInteger(rows) || rows === 0 || !Number.isInteger(each)) {
    throw wrongShape(tensor, `q, k and v of ${groups} groups of ${each} heads`);
  }
  const of = (name: string, first: number, count: number): Presented => {
    const starts = Array.from({ length: groups * count }, (_, i) => {
      const group = Math.floor(i / count);
      return (group * (each + 2) + first + (i % count)) * rows;
    });
    return { name, tensor: rowGroups(tensor, starts, rows, [starts.length * rows]) };
  };
  return [of("attn_q", 0, each), of("attn_k", each, 1), of("attn_v", each + 1, 1)];
};

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

export const deepseek2: TensorNames = named(experts, {
  "self_attn.q_a_proj": "attn_q_a",
  "self_attn.q_a_layernorm": "attn_q_a_norm",
  "self_attn.q_b_proj": "attn_q_b",
  "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
  "self_attn.kv_a_layernorm": "attn_kv_a_norm",
  "self_attn.kv_b_proj": latentKv,
});

export const gptOss: TensorNames = named(
  llama,
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

export const llama4: TensorNames = named(
  llama,
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

const gpt2Layer: TensorNames["layer"] = {
  ln_1: "attn_norm",
  ln_2: "ffn_norm",
  "attn.c_attn": "attn_qkv",
  "attn.c_proj": "attn_output",
  "mlp.c_fc": "ffn_up",
  "mlp.c_proj": "ffn_down",
};
export const starcoder: TensorNames = {
  global: { wte: "token_embd", wpe: "position_embd", ln_f: "output_norm", lm_head: "output" },
  layer: gpt2Layer,
  ignored: /\.attn\.(?:bias|masked_bias)$/,
};
/** GPT-2's matrices are stored transposed; its vectors are not matrices. */
export const gpt2: TensorNames = {
  ...starcoder,
  layer: { ln_1: "attn_norm", ln_2: "ffn_norm" },
  exact: Object.fromEntries(
    Object.entries(gpt2Layer)
      .filter(([key]) => key.includes("."))
      .flatMap(([key, name]): [string, Target][] => [
        [`${key}.weight`, transposed(`${String(name)}.weight`)],
        [`${key}.bias`, `${String(name)}.bias`],
      ]),
  ),
};

const denseLayer = {
  input_layernorm: "attn_norm",
  post_attention_layernorm: "ffn_norm",
  "mlp.dense_h_to_4h": "ffn_up",
  "mlp.dense_4h_to_h": "ffn_down",
};
export const gptneox: TensorNames = {
  global: { embed_in: "token_embd", final_layer_norm: "output_norm", embed_out: "output" },
  layer: {
    ...denseLayer,
    "attention.query_key_value": headByHead,
    "attention.dense": "attn_output",
  },
  ignored: /\.attention\.(?:bias|masked_bias|rotary_emb\.inv_freq)$/,
};
export const falcon: TensorNames = {
  global: { word_embeddings: "token_embd", ln_f: "output_norm", lm_head: "output" },
  layer: {
    ...denseLayer,
    ln_attn: "attn_norm_2",
    ln_mlp: "attn_norm",
    "self_attention.query_key_value": groupByGroup,
    "self_attention.dense": "attn_output",
  },
  ignored: /rotary_emb\.inv_freq$/,
};
export const bloom: TensorNames = {
  global: { ...falcon.global, word_embeddings_layernorm: "token_embd_norm" },
  layer: {
    ...denseLayer,
    "self_attention.query_key_value": headByHead,
    "self_attention.dense": "attn_output",
  },
  ignored: /^$/,
};

export const internlm2: TensorNames = {
  global: { tok_embeddings: "token_embd", norm: "output_norm", output: "output" },
  layer: {
    attention_norm: "attn_norm",
    ffn_norm: "ffn_norm",
    "attention.wqkv": internlmQkv,
    "attention.wo": "attn_output",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up",
    "feed_forward.w2": "ffn_down",
  },
  ignored: llama.ignored,
};

export const exaone: TensorNames = {
  global: { wte: "token_embd", ln_f: "output_norm", lm_head: "output" },
  layer: {
    ln_1: "attn_norm",
    ln_2: "ffn_norm",
    "attn.attention.q_proj": "attn_q",
    "attn.attention.k_proj": "attn_k",
    "attn.attention.v_proj": "attn_v",
    "attn.attention.out_proj": "attn_output",
    "mlp.c_fc_0": "ffn_gate",
    "mlp.c_fc_1": "ffn_up",
    "mlp.c_proj": "ffn_down",
  },
  ignored: /rotary\.inv_freq$|rotary_emb\.inv_freq$/,
};

export const lfm2: TensorNames = named(
  llama,
  {
    operator_norm: "attn_norm",
    ffn_norm: "ffn_norm",
    "conv.conv": squeezed("shortconv.conv"),
    "conv.in_proj": "shortconv.in_proj",
    "conv.out_proj": "shortconv.out_proj",
    "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up",
    "feed_forward.w2": "ffn_down",
    "feed_forward.gate": "ffn_gate_inp",
  },
  {
    global: { ...llama.global, embedding_norm: "token_embd_norm" },
    exact: { "feed_forward.expert_bias": "exp_probs_b.bias" },
    experts: sparseExpert("feed_forward.experts"),
  },
);

export const mamba: TensorNames = {
  global: { embeddings: "token_embd", norm_f: "output_norm", lm_head: "output" },
  layer: {
    norm: "attn_norm",
    "mixer.conv1d": squeezed("ssm_conv1d"),
    "mixer.in_proj": "ssm_in",
    "mixer.out_proj": "ssm_out",
    "mixer.x_proj": "ssm_x",
    "mixer.dt_proj": "ssm_dt",
  },
  exact: { "mixer.A_log": decay("ssm_a"), "mixer.D": "ssm_d" },
  ignored: /^$/,
};
export const mamba2: TensorNames = named(
  mamba,
  {
    "mixer.norm": reshaped("ssm_norm", (shape, config) => {
      const groups = numberIn(config, ["n_groups"]);
      return [groups, shape[0]! / groups];
    }),
  },
  {
    exact: {
      "mixer.A_log": headDecay("ssm_a"),
      "mixer.D": reshaped("ssm_d", (shape) => [...shape, 1]),
      "mixer.dt_bias": "ssm_dt.bias",
    },
  },
);

// Hugging Face folders: Dense models that are like Llama: one feed-forward, rotary positions. The names of their tensors, and the metadata that
// llama.cpp's converter makes of config.json. huggingface-families.ts has the table.

import {
  type Presented,
  rowGroups,
  type Target,
  ternary,
  wrongShape,
} from "./huggingface-changes.ts";
import { flagOf, numberIn, ropeOf } from "./huggingface-config.ts";
import {
  bool,
  f32,
  gelu,
  graniteScales,
  headSize,
  hunyuanKeys,
  logitScale,
  longFactors,
  phi3Keys,
  relu2,
  softcaps,
  text,
  u32,
  windowPattern,
} from "./huggingface-keys.ts";
import type { HuggingFaceArchitecture, TensorNames } from "./huggingface-names.ts";
import { fusedGate, llamaNames, named, postNorms, shiftedNorms } from "./huggingface-tensors.ts";
import type { JsonObject } from "./json.ts";
import { arrayEntry } from "./typed-metadata.ts";

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

const internlm2Names: TensorNames = {
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
  ignored: llamaNames.ignored,
};

const exaoneNames: TensorNames = {
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

/** ReluLLaMA and ProSparse have ReLU, which the file then names. */
export const llama: HuggingFaceArchitecture = {
  name: "llama",
  tensors: llamaNames,
  activations: ["silu", "swish", "relu"],
  keys: ({ hidden_act }) => (hidden_act === "relu" ? { hidden_activation: text("relu") } : {}),
};

/** Mistral's shape, with a ReLU on gate and up (dReLU). */
export const bamboo: HuggingFaceArchitecture = {
  name: "llama",
  tensors: llamaNames,
  activations: ["relu"],
  keys: () => ({ hidden_activation: text("drelu") }),
};

export const qwen2: HuggingFaceArchitecture = {
  name: "qwen2",
  tensors: llamaNames,
  defaults: { attention_bias: true },
};

const qwen3Plain: HuggingFaceArchitecture = { name: "qwen3", tensors: llamaNames };

/** Qwen3-Reranker answers yes or no; only its name tells it from the language model. */
const qwen3Reranker: HuggingFaceArchitecture = {
  ...qwen3Plain,
  labels: ["yes", "no"],
  keys: () => ({
    pooling_type: u32(4), // rank
    "classifier.output_labels": arrayEntry("string", ["yes", "no"]),
  }),
  pairTemplate:
    '<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n' +
    "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n" +
    "<|im_start|>assistant\n<think>\n\n</think>\n\n",
};

export function qwen3(config: JsonObject): HuggingFaceArchitecture {
  const isReranker = /qwen3-reranker/i.test(String(config._name_or_path ?? ""));
  return isReranker ? qwen3Reranker : qwen3Plain;
}

export const gemma: HuggingFaceArchitecture = {
  name: "gemma",
  tensors: shiftedNorms(llamaNames),
  activations: gelu,
  defaults: { tie_word_embeddings: true },
};

export const gemma2: HuggingFaceArchitecture = {
  name: "gemma2",
  tensors: shiftedNorms(named(llamaNames, postNorms)),
  activations: gelu,
  defaults: { tie_word_embeddings: true },
  settings: softcaps,
};

export const gemma3: HuggingFaceArchitecture = {
  name: "gemma3",
  tensors: shiftedNorms(named(llamaNames, postNorms)),
  activations: gelu,
  // Values that Gemma's own files leave out.
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
};

export const phi: HuggingFaceArchitecture = {
  name: "phi2",
  activations: gelu,
  tensors: named(
    llamaNames,
    { "self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down" },
    { global: { ...llamaNames.global, final_layernorm: "output_norm" } },
  ),
  defaults: { partial_rotary_factor: 0.5, attention_bias: true },
};

export const phi3: HuggingFaceArchitecture = {
  name: "phi3",
  tensors: named(llamaNames, { ...fusedGate, "self_attn.qkv_proj": "attn_qkv" }),
  keys: phi3Keys,
  constants: longFactors,
};

export const olmo: HuggingFaceArchitecture = {
  name: "olmo",
  tensors: llamaNames,
  settings: [{ from: "clip_qkv", to: ["attention.clamp_kqv"], type: "f32" }],
  keys: () => ({ "attention.layer_norm_epsilon": f32(1e-5) }),
};

export const olmo2: HuggingFaceArchitecture = {
  name: "olmo2",
  tensors: named(llamaNames, postNorms),
};

export const olmo3: HuggingFaceArchitecture = {
  name: "olmo2",
  tensors: named(llamaNames, postNorms),
  keys: windowPattern,
};

export const cohere: HuggingFaceArchitecture = {
  name: "command-r",
  tensors: llamaNames,
  pairs: "stored",
  defaults: { tie_word_embeddings: true, logit_scale: 0.0625 },
  settings: [logitScale],
  keys: () => ({ "rope.scaling.type": text("none") }),
};

export const cohere2: HuggingFaceArchitecture = {
  name: "cohere2",
  tensors: llamaNames,
  pairs: "stored",
  defaults: { tie_word_embeddings: true, logit_scale: 0.0625 },
  settings: [logitScale],
  keys: (config) => ({
    "rope.scaling.type": text("none"),
    "rope.dimension_count": u32(headSize(config)),
  }),
};

export const smollm3: HuggingFaceArchitecture = {
  name: "smollm3",
  tensors: llamaNames,
  defaults: { tie_word_embeddings: true },
};

export const granite: HuggingFaceArchitecture = {
  name: "granite",
  tensors: llamaNames,
  settings: graniteScales,
};

export const glm4: HuggingFaceArchitecture = {
  name: "glm4",
  pairs: "stored",
  tensors: named(llamaNames, {
    ...fusedGate,
    post_self_attn_layernorm: "post_attention_norm",
    post_mlp_layernorm: "post_ffw_norm",
  }),
  defaults: { partial_rotary_factor: 0.5 },
};

export const glm: HuggingFaceArchitecture = {
  name: "chatglm",
  pairs: "stored",
  tensors: named(llamaNames, fusedGate),
  defaults: { partial_rotary_factor: 0.5 },
};

export const ernie4_5: HuggingFaceArchitecture = {
  name: "ernie4_5",
  tensors: llamaNames,
  defaults: { tie_word_embeddings: true },
  pairs: "stored",
};

export const hunyuanV1Dense: HuggingFaceArchitecture = {
  name: "hunyuan-dense",
  tensors: named(llamaNames, {
    "self_attn.query_layernorm": "attn_q_norm",
    "self_attn.key_layernorm": "attn_k_norm",
  }),
  keys: hunyuanKeys,
};

export const internlm2: HuggingFaceArchitecture = { name: "internlm2", tensors: internlm2Names };

export const exaone: HuggingFaceArchitecture = {
  name: "exaone",
  tensors: exaoneNames,
  settings: [
    {
      from: "layer_norm_epsilon",
      to: ["attention.layer_norm_rms_epsilon"],
      type: "f32",
      required: true,
    },
  ],
};

export const exaone4: HuggingFaceArchitecture = {
  name: "exaone4",
  tensors: named(llamaNames, postNorms),
  keys: windowPattern,
};

export const minicpm: HuggingFaceArchitecture = {
  name: "minicpm",
  tensors: llamaNames,
  defaults: { tie_word_embeddings: true },
  settings: [{ from: "scale_emb", to: ["embedding_scale"], type: "f32" }],
  keys: (config) => ({
    residual_scale: f32(
      numberIn(config, ["scale_depth"], 1.4) / Math.sqrt(numberIn(config, ["num_hidden_layers"])),
    ),
    logit_scale: f32(numberIn(config, ["hidden_size"]) / numberIn(config, ["dim_model_base"], 256)),
  }),
};

export const stablelm: HuggingFaceArchitecture = {
  name: "stablelm",
  tensors: llamaNames,
  defaults: { partial_rotary_factor: 0.25 },
  keys: (config) => ({
    use_parallel_residual: bool(
      config.use_parallel_residual === undefined || flagOf(config, "use_parallel_residual"),
    ),
  }),
};

export const nemotron: HuggingFaceArchitecture = {
  name: "nemotron",
  activations: relu2,
  tensors: {
    ...shiftedNorms(llamaNames),
    exact: Object.fromEntries(
      ["input_layernorm", "post_attention_layernorm"]
        .map((key): [string, Target] => [`${key}.bias`, `${String(llamaNames.layer[key])}.bias`])
        .concat([["norm.bias", "output_norm.bias"]]),
    ),
  },
  settings: [{ from: "norm_eps", to: ["attention.layer_norm_epsilon"], type: "f32" }],
  keys: () => ({ "rope.scaling.type": text("none") }),
};

export const seedOss: HuggingFaceArchitecture = {
  name: "seed_oss",
  tensors: named(llamaNames, { post_attention_layernorm: "post_attention_norm" }),
};

export const arcee: HuggingFaceArchitecture = {
  name: "arcee",
  tensors: llamaNames,
  activations: relu2,
};

const apertusNames: TensorNames = named(
  llamaNames,
  { attention_layernorm: "attn_norm", feedforward_layernorm: "ffn_norm" },
  { ignored: new RegExp(`${llamaNames.ignored.source}|\\.act_fn\\.(?:alpha_[np]|beta|eps)$`) },
);

export const apertus: HuggingFaceArchitecture = {
  name: "apertus",
  tensors: apertusNames,
  activations: ["xielu"],
  listed: {
    "xielu.alpha_n": "mlp.act_fn.alpha_n",
    "xielu.alpha_p": "mlp.act_fn.alpha_p",
    "xielu.beta": "mlp.act_fn.beta",
    "xielu.eps": "mlp.act_fn.eps",
  },
};

export const mistral3: HuggingFaceArchitecture = {
  name: "mistral3",
  tensors: llamaNames,
  keys: (config) => {
    const rope = ropeOf(config);
    const scale = (key: string) =>
      rope[key] === undefined ? undefined : f32(numberIn(rope, [key]));
    return {
      "rope.scaling.yarn_log_multiplier": scale("mscale_all_dim"),
      "attention.temperature_scale": scale("llama_4_scaling_beta"),
    };
  },
};

/** 1bitLLM's: weights are rounded to -1, 0 and 1 times their mean, as llama.cpp's converter does. */
export const bitnet: HuggingFaceArchitecture = {
  name: "bitnet",
  tensors: named(llamaNames, {
    ...Object.fromEntries(
      Object.entries(llamaNames.layer)
        .filter(([key]) => key.endsWith("_proj"))
        .map(([key, name]) => [key, ternary(String(name))]),
    ),
    "self_attn.inner_attn_ln": "attn_sub_norm",
    "self_attn.attn_sub_norm": "attn_sub_norm",
    "mlp.ffn_layernorm": "ffn_sub_norm",
    "mlp.ffn_sub_norm": "ffn_sub_norm",
  }),
  keys: () => ({ "rope.scaling.type": text("linear"), "rope.scaling.factor": f32(1) }),
};

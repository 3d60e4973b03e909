// Hugging Face folders: GPT-2's generation: q, k and v in one matrix, a feed-forward without gate, learned positions or ALiBi. The names of their tensors, and
// the metadata that llama.cpp's converter makes of config.json. huggingface-families.ts has the table.

import {
  type Presented,
  rowGroups,
  type Target,
  transposed,
  wrongShape,
} from "./huggingface-changes.ts";
import { flagOf, numberIn, valueIn } from "./huggingface-config.ts";
import { bool, f32, gelu, text, u32 } from "./huggingface-keys.ts";
import type { HuggingFaceArchitecture, TensorNames } from "./huggingface-names.ts";
import { llamaNames, named } from "./huggingface-tensors.ts";
import { isObject, type JsonObject } from "./json.ts";

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

/** Falcon's first models share one k and v between all heads, regardless of num_kv_heads. */
function falconGroups(config: JsonObject): number {
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

const gpt2Layer: TensorNames["layer"] = {
  ln_1: "attn_norm",
  ln_2: "ffn_norm",
  "attn.c_attn": "attn_qkv",
  "attn.c_proj": "attn_output",
  "mlp.c_fc": "ffn_up",
  "mlp.c_proj": "ffn_down",
};
const starcoderNames: TensorNames = {
  global: { wte: "token_embd", wpe: "position_embd", ln_f: "output_norm", lm_head: "output" },
  layer: gpt2Layer,
  ignored: /\.attn\.(?:bias|masked_bias)$/,
};
/** GPT-2's matrices are stored transposed; its vectors are not matrices. */
const gpt2Names: TensorNames = {
  ...starcoderNames,
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
const gptneoxNames: TensorNames = {
  global: { embed_in: "token_embd", final_layer_norm: "output_norm", embed_out: "output" },
  layer: {
    ...denseLayer,
    "attention.query_key_value": headByHead,
    "attention.dense": "attn_output",
  },
  ignored: /\.attention\.(?:bias|masked_bias|rotary_emb\.inv_freq)$/,
};
const falconNames: TensorNames = {
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
const bloomNames: TensorNames = {
  global: { ...falconNames.global, word_embeddings_layernorm: "token_embd_norm" },
  layer: {
    ...denseLayer,
    "self_attention.query_key_value": headByHead,
    "self_attention.dense": "attn_output",
  },
  ignored: /^$/,
};

export const starcoder2: HuggingFaceArchitecture = {
  name: "starcoder2",
  activations: gelu,
  tensors: named(llamaNames, { "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down" }),
  defaults: { tie_word_embeddings: true, attention_bias: true },
};

export const gptBigcode: HuggingFaceArchitecture = {
  name: "starcoder",
  activations: gelu,
  tensors: starcoderNames,
  defaults: { tie_word_embeddings: true },
  without: ["feed_forward_length"],
  keys: (config) => ({
    feed_forward_length: u32(4 * numberIn(config, ["n_embd"])),
    "attention.head_count_kv": u32(1),
  }),
};

export const gpt2: HuggingFaceArchitecture = {
  name: "gpt2",
  activations: gelu,
  tensors: gpt2Names,
  defaults: { tie_word_embeddings: true },
  without: ["feed_forward_length"],
  keys: (config) => ({ feed_forward_length: u32(4 * numberIn(config, ["n_embd"])) }),
};

export const gptNeox: HuggingFaceArchitecture = {
  name: "gptneox",
  activations: gelu,
  tensors: gptneoxNames,
  keys: (config) => ({
    use_parallel_residual: bool(
      config.use_parallel_residual === undefined || flagOf(config, "use_parallel_residual"),
    ),
  }),
};

export const falcon: HuggingFaceArchitecture = {
  name: "falcon",
  activations: gelu,
  tensors: falconNames,
  defaults: { tie_word_embeddings: true },
  without: ["feed_forward_length"],
  keys: (config) => ({
    context_length: u32(2048), // not in config.json
    tensor_data_layout: text("jploski"),
    feed_forward_length: u32(4 * numberIn(config, ["hidden_size"])),
    "attention.head_count_kv": u32(falconGroups(config)),
  }),
};

export const bloom: HuggingFaceArchitecture = {
  name: "bloom",
  activations: gelu,
  tensors: bloomNames,
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
};

export const mpt: HuggingFaceArchitecture = {
  name: "mpt",
  activations: gelu,
  tensors: {
    global: { wte: "token_embd", wpe: "position_embd", norm_f: "output_norm", lm_head: "output" },
    layer: {
      norm_1: "attn_norm",
      norm_2: "ffn_norm",
      "attn.Wqkv": "attn_qkv",
      "attn.out_proj": "attn_output",
      "attn.q_ln": "attn_q_norm",
      "attn.k_ln": "attn_k_norm",
      "ffn.up_proj": "ffn_up",
      "ffn.down_proj": "ffn_down",
    },
    exact: { "ffn.act.scales": "ffn_act.scales" },
    ignored: /^$/,
  },
  defaults: { tie_word_embeddings: true },
  without: ["feed_forward_length"],
  keys: (config) => {
    const attention = isObject(config.attn_config) ? config.attn_config : {};
    const own = (keys: readonly string[]) => {
      const value = valueIn(attention, keys);
      return value === undefined ? undefined : numberIn(attention, keys);
    };
    const [kvHeads, clamp] = [own(["kv_n_heads"]), own(["clip_qkv"])];
    const bias = flagOf(attention, "alibi") ? numberIn(attention, ["alibi_bias_max"], 8) : 0;
    return {
      context_length: u32(numberIn(config, ["max_seq_len"])),
      feed_forward_length: u32(4 * numberIn(config, ["d_model"])),
      "attention.head_count_kv": kvHeads === undefined ? undefined : u32(kvHeads),
      "attention.layer_norm_epsilon": f32(1e-5),
      "attention.clamp_kqv": clamp === undefined ? undefined : f32(clamp),
      "attention.max_alibi_bias": f32(bias),
    };
  },
};

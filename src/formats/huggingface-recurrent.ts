// Hugging Face folders: Models with recurrent state: scans and convolutions, alone or beside attention. The names of their tensors, and the metadata that
// llama.cpp's converter makes of config.json. huggingface-families.ts has the table.

import { decay, headDecay, reshaped, squeezed } from "./huggingface-changes.ts";
import { numberIn, numbersIn, textsIn } from "./huggingface-config.ts";
import { bool, f32, gatings, u32 } from "./huggingface-keys.ts";
import type { HuggingFaceArchitecture, TensorNames } from "./huggingface-names.ts";
import { expertsNames, llamaNames, named, sparseExpert } from "./huggingface-tensors.ts";
import type { JsonObject } from "./json.ts";
import { arrayEntry, type MetadataEntry } from "./typed-metadata.ts";

/** A number for each layer: its KV heads if it has attention, 0 if it has a convolution. */
function lfm2Keys(config: JsonObject): Record<string, MetadataEntry | undefined> {
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

function mambaKeys(config: JsonObject): Record<string, MetadataEntry | undefined> {
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

function mamba2Keys(config: JsonObject): Record<string, MetadataEntry | undefined> {
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

const lfm2Names: TensorNames = named(
  llamaNames,
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
    global: { ...llamaNames.global, embedding_norm: "token_embd_norm" },
    exact: { "feed_forward.expert_bias": "exp_probs_b.bias" },
    experts: sparseExpert("feed_forward.experts"),
  },
);

const mambaNames: TensorNames = {
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
const mamba2Names: TensorNames = named(
  mambaNames,
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

export const lfm2: HuggingFaceArchitecture = {
  name: "lfm2",
  tensors: lfm2Names,
  keys: lfm2Keys,
  defaults: { tie_word_embeddings: true },
};

export const lfm2Moe: HuggingFaceArchitecture = {
  name: "lfm2moe",
  tensors: lfm2Names,
  defaults: { tie_word_embeddings: true },
  settings: [{ from: "num_dense_layers", to: ["leading_dense_block_count"], type: "u32" }],
  keys: (config) => ({ ...lfm2Keys(config), expert_gating_func: u32(gatings.sigmoid!) }),
};

export const mamba: HuggingFaceArchitecture = {
  name: "mamba",
  tensors: mambaNames,
  defaults: { tie_word_embeddings: true },
  without: ["feed_forward_length", "attention.head_count"],
  keys: mambaKeys,
};

export const mamba2: HuggingFaceArchitecture = {
  name: "mamba2",
  tensors: mamba2Names,
  without: ["feed_forward_length", "attention.head_count"],
  keys: mamba2Keys,
};

export const falconMamba: HuggingFaceArchitecture = {
  ...mamba,
  keys: (config) => ({ ...mambaKeys(config), "ssm.dt_b_c_rms": bool(true) }),
};

const jambaMamba: TensorNames["layer"] = Object.fromEntries(
  Object.entries(mambaNames.layer).map(([key, target]) => [
    key.replace("mixer.", "mamba."),
    target,
  ]),
);

export const jamba: HuggingFaceArchitecture = {
  name: "jamba",
  tensors: named(
    llamaNames,
    {
      ...jambaMamba,
      "mamba.dt_layernorm": "ssm_dt_norm",
      "mamba.b_layernorm": "ssm_b_norm",
      "mamba.c_layernorm": "ssm_c_norm",
      pre_ff_layernorm: "ffn_norm",
      "feed_forward.gate_proj": "ffn_gate",
      "feed_forward.up_proj": "ffn_up",
      "feed_forward.down_proj": "ffn_down",
      "feed_forward.router": "ffn_gate_inp",
    },
    {
      global: { ...llamaNames.global, final_layernorm: "output_norm" },
      exact: { "mamba.A_log": decay("ssm_a"), "mamba.D": "ssm_d" },
      experts: { ...expertsNames.experts!, stems: ["feed_forward.experts"] },
    },
  ),
  present: (config) => {
    const at = (key: string, usual: number) => numberIn(config, [key], usual);
    const [offset, period] = [at("expert_layer_offset", 1), at("expert_layer_period", 2)];
    const layers = Array.from({ length: at("num_hidden_layers", 0) }, (_, layer) => layer);
    const isSparse = (layer: number) => layer % period === offset && at("num_experts", 16) > 1;
    return layers.filter(isSparse).map((layer) => `blk.${layer}.ffn_gate_inp.weight`);
  },
  keys: (config) => {
    const embed = numberIn(config, ["hidden_size"]);
    const [offset, period] = ["attn_layer_offset", "attn_layer_period"].map((key) =>
      numberIn(config, [key]),
    ) as [number, number];
    return {
      "attention.head_count_kv": kvHeadsOf(
        config,
        (layer) => layer >= offset && (layer - offset) % period === 0,
      ),
      "ssm.conv_kernel": u32(numberIn(config, ["mamba_d_conv"], 4)),
      "ssm.inner_size": u32(numberIn(config, ["mamba_expand"], 2) * embed),
      "ssm.state_size": u32(numberIn(config, ["mamba_d_state"], 16)),
      "ssm.time_step_rank": u32(
        typeof config.mamba_dt_rank === "number" ? config.mamba_dt_rank : Math.ceil(embed / 16),
      ),
    };
  },
};

/** KV heads of layers with attention, 0 for the others. */
function kvHeadsOf(config: JsonObject, hasAttention: (layer: number) => boolean): MetadataEntry {
  const kvHeads = numberIn(config, ["num_key_value_heads"]);
  const layers = numberIn(config, ["num_hidden_layers"]);
  const counts = Array.from({ length: layers }, (_, layer) => (hasAttention(layer) ? kvHeads : 0));
  return arrayEntry("i32", counts);
}

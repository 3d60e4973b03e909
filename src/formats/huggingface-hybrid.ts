// Hugging Face folders: hybrids of Mamba 2 and attention. The names of their tensors, and the metadata that llama.cpp's converter
// makes of config.json. huggingface-families.ts has the table.

import { byName } from "../base/by-name.ts";
import {
  headDecay,
  type Presented,
  reshaped,
  scaled,
  split,
  squeezed,
  type Target,
  times,
} from "./huggingface-changes.ts";
import { configError, flagOf, numberIn, numbersIn, textsIn } from "./huggingface-config.ts";
import { granite } from "./huggingface-dense.ts";
import { bool, expertScale, f32, graniteScales, sharedCount, u32 } from "./huggingface-keys.ts";
import { granitemoe } from "./huggingface-moe.ts";
import type { HuggingFaceArchitecture, TensorNames } from "./huggingface-names.ts";
import { llamaNames, named } from "./huggingface-tensors.ts";
import type { JsonObject } from "./json.ts";
import { arrayEntry, type MetadataEntry } from "./typed-metadata.ts";

/** The tensors of a Mamba 2 mixer, under the name that the family has for it. */
function mixerNames(name: string): Pick<TensorNames, "layer" | "exact"> {
  const groups = ["n_groups", "mamba_n_groups"];
  return {
    layer: {
      [`${name}.conv1d`]: squeezed("ssm_conv1d"),
      [`${name}.in_proj`]: "ssm_in",
      [`${name}.out_proj`]: "ssm_out",
      [`${name}.norm`]: reshaped("ssm_norm", (shape, config) => {
        const count = numberIn(config, groups, 1);
        return [count, shape[0]! / count];
      }),
    },
    exact: {
      [`${name}.A_log`]: headDecay("ssm_a"),
      [`${name}.D`]: reshaped("ssm_d", (shape) => [...shape, 1]),
      [`${name}.dt_bias`]: "ssm_dt.bias",
    },
  };
}

/** KV heads of layers with attention, 0 for the others. */
function kvHeadsOf(config: JsonObject, types: readonly string[], kind: RegExp): MetadataEntry {
  const kvHeads = numberIn(config, ["num_key_value_heads"]);
  const counts = types.map((type) => (kind.test(type) ? kvHeads : 0));
  return arrayEntry("i32", counts);
}

/** "attention" in older configurations, "full_attention" in newer ones. */
const isAttention = /^(?:full_)?attention$/;

function graniteTypes(config: JsonObject): readonly string[] {
  const types = textsIn(config, "layer_types");
  if (types) return types;
  throw configError("layer_types", "nothing", "the kind of each layer: mamba or attention");
}

const graniteMixer = mixerNames("mamba");
/** With experts the second network is shared by all tokens, without them it is the only one. */
const graniteHybridNames = (hasExperts: boolean): TensorNames => {
  const base = granitemoe.tensors;
  const own = (kind: string) => (hasExperts ? `${kind}_shexp` : kind);
  return named(
    base,
    {
      ...graniteMixer.layer,
      "shared_mlp.input_linear": split(own("ffn_gate"), own("ffn_up")),
      "shared_mlp.output_linear": own("ffn_down"),
    },
    { exact: graniteMixer.exact! },
  );
};

/** Granite 4: Mamba 2 with some attention, or attention only, with experts or without. */
export function graniteMoeHybrid(config: JsonObject): HuggingFaceArchitecture {
  const hasExperts = numberIn(config, ["num_local_experts"], 0) > 0;
  const tensors = graniteHybridNames(hasExperts);
  if (graniteTypes(config).every((type) => isAttention.test(type))) {
    return { ...(hasExperts ? granitemoe : granite), tensors };
  }
  return {
    name: "granitehybrid",
    tensors,
    settings: graniteScales,
    keys: (own) => {
      const hasRope = own.position_embedding_type === "rope";
      const inner = numberIn(own, ["mamba_expand"], 2) * numberIn(own, ["hidden_size"]);
      return {
        ...(hasRope ? {} : { context_length: u32(1 << 20) }), // the converter's: a scan has no end
        "attention.head_count_kv": kvHeadsOf(own, graniteTypes(own), isAttention),
        "rope.scaling.finetuned": bool(hasRope),
        "ssm.conv_kernel": u32(numberIn(own, ["mamba_d_conv"])),
        "ssm.state_size": u32(numberIn(own, ["mamba_d_state"])),
        "ssm.group_count": u32(numberIn(own, ["mamba_n_groups"])),
        "ssm.inner_size": u32(inner),
        "ssm.time_step_rank": u32(numberIn(own, ["mamba_n_heads"])),
      };
    },
  };
}

/** Falcon H1 multiplies many of its activations by constants, which the converter puts into the weights. */
export function falconH1(config: JsonObject): HuggingFaceArchitecture {
  const factor = (key: string) => numberIn(config, [key], 1);
  const [gate, down] = factors(config, "mlp_multipliers", 2);
  const input = factor("attention_in_multiplier");
  const mixer = mixerNames("mamba");
  return {
    name: "falcon-h1",
    tensors: named(
      llamaNames,
      {
        ...mixer.layer,
        "mamba.in_proj": falconIn,
        "mamba.out_proj": scaled("ssm_out", factor("ssm_out_multiplier")),
        "self_attn.q_proj": scaled("attn_q", input),
        "self_attn.k_proj": scaled("attn_k", factor("key_multiplier"), input),
        "self_attn.v_proj": scaled("attn_v", input),
        "self_attn.o_proj": scaled("attn_output", factor("attention_out_multiplier")),
        "feed_forward.gate_proj": scaled("ffn_gate", gate!),
        "feed_forward.up_proj": "ffn_up",
        "feed_forward.down_proj": scaled("ffn_down", down!),
      },
      {
        global: {
          embed_tokens: scaled("token_embd", factor("embedding_multiplier")),
          final_layernorm: "output_norm",
          lm_head: scaled("output", factor("lm_head_multiplier")),
        },
        // The converter leaves out this norm's ".weight".
        exact: { ...mixer.exact, "pre_ff_layernorm.weight": "ffn_norm" },
      },
    ),
    keys: (own) => ({
      "ssm.conv_kernel": u32(numberIn(own, ["mamba_d_conv"], 4)),
      "ssm.inner_size": u32(innerOf(own)),
      "ssm.state_size": u32(numberIn(own, ["mamba_d_state"], 128)),
      "ssm.time_step_rank": u32(innerOf(own) / numberIn(own, ["mamba_d_head"], 64)),
      "ssm.group_count": u32(numberIn(own, ["mamba_n_groups"], 1)),
    }),
  };
}

function innerOf(config: JsonObject): number {
  const usual = numberIn(config, ["mamba_expand"], 2) * numberIn(config, ["hidden_size"]);
  return numberIn(config, ["mamba_d_ssm"], usual);
}

function factors(config: JsonObject, key: string, count: number): readonly number[] {
  const found = numbersIn(config, key) ?? new Array<number>(count).fill(1);
  if (found.length === count) return found;
  throw configError(key, `${found.length} numbers`, `${count} numbers`);
}

/** The rows of z, x, B, C and dt have a factor each. */
const falconIn: Target = (tensor, config): readonly Presented[] => {
  const all = numberIn(config, ["ssm_in_multiplier"], 1);
  const own = factors(config, "ssm_multipliers", 5);
  const inner = innerOf(config);
  const state = numberIn(config, ["mamba_n_groups"], 1) * numberIn(config, ["mamba_d_state"], 128);
  const ends = [inner, 2 * inner, 2 * inner + state, 2 * inner + 2 * state, tensor.shape[0]!];
  const cols = tensor.shape.length === 1 ? 1 : tensor.shape.at(-1)!;
  const pairs = own.map((factor) => [all, factor]);
  const part = (row: number) => ends.findIndex((end) => row < end);
  return [times("ssm_in", tensor, (index) => pairs[part(Math.floor(index / cols))]!)];
};

/** The kind of each layer: a letter each, or a list. */
function nemotronTypes(config: JsonObject): readonly string[] {
  const letters = config.hybrid_override_pattern;
  if (typeof letters !== "string") {
    const types = textsIn(config, "layers_block_type");
    if (types) return types;
    throw configError(
      "hybrid_override_pattern",
      "nothing",
      "a letter for each layer: M, *, - or E",
    );
  }
  const names: Readonly<Record<string, string>> = byName({
    M: "mamba",
    "*": "attention",
    "-": "mlp",
    E: "moe",
  });
  return Array.from(letters, (letter) => {
    const name = names[letter];
    if (name === undefined) throw configError("hybrid_override_pattern", letter, "M, *, - or E");
    return name;
  });
}

const nemotronMixer = mixerNames("mixer");
const nemotronNames: TensorNames = {
  global: { embeddings: "token_embd", norm_f: "output_norm", lm_head: "output" },
  layer: {
    ...nemotronMixer.layer,
    norm: "attn_norm",
    "mixer.q_proj": "attn_q",
    "mixer.k_proj": "attn_k",
    "mixer.v_proj": "attn_v",
    "mixer.o_proj": "attn_output",
    "mixer.up_proj": "ffn_up",
    "mixer.down_proj": "ffn_down",
    "mixer.gate": "ffn_gate_inp",
    "mixer.shared_experts.up_proj": "ffn_up_shexp",
    "mixer.shared_experts.down_proj": "ffn_down_shexp",
    "mixer.fc1_latent_proj": "ffn_latent_down",
    "mixer.fc2_latent_proj": "ffn_latent_up",
  },
  exact: {
    ...nemotronMixer.exact,
    "mixer.gate.e_score_correction_bias": "exp_probs_b.bias",
  },
  experts: {
    stems: ["mixer.experts"],
    each: { up_proj: "ffn_up_exps", down_proj: "ffn_down_exps" },
    fused: { up_proj: ["ffn_up_exps"], down_proj: ["ffn_down_exps"] },
  },
  ignored: /^mtp\./,
};

/** Nemotron H: layers of Mamba 2, attention and feed-forward, one of them each. */
export function nemotronH(config: JsonObject): HuggingFaceArchitecture {
  const types = nemotronTypes(config);
  // A configuration of a dense model may have all keys of experts.
  const hasExperts = types.includes("moe");
  return {
    name: hasExperts ? "nemotron_h_moe" : "nemotron_h",
    tensors: nemotronNames,
    fixed: { mlp_hidden_act: "relu2", mamba_hidden_act: "silu" },
    without: ["block_count", "feed_forward_length"],
    settings: hasExperts
      ? [
          expertScale,
          sharedCount,
          { from: "moe_latent_size", to: ["moe_latent_size"], type: "u32" },
          {
            from: "moe_shared_expert_intermediate_size",
            to: ["expert_shared_feed_forward_length"],
            type: "u32",
          },
        ]
      : [],
    keys: (own) => nemotronKeys(own, types, hasExperts),
    present: () =>
      types.flatMap((type, layer) => (type === "moe" ? [`blk.${layer}.ffn_gate_inp.weight`] : [])),
  };
}

function nemotronKeys(
  config: JsonObject,
  types: readonly string[],
  hasExperts: boolean,
): Record<string, MetadataEntry | undefined> {
  const heads = numberIn(config, ["mamba_num_heads"]);
  const headDim = numberIn(config, ["head_dim", "attention_head_dim"]);
  const feedForward = numberIn(config, [
    hasExperts ? "moe_intermediate_size" : "intermediate_size",
  ]);
  const kind = hasExperts ? "moe" : "mlp";
  const none = {
    expert_count: undefined,
    expert_used_count: undefined,
    expert_feed_forward_length: undefined,
  };
  return {
    ...(hasExperts ? { expert_weights_norm: bool(flagOf(config, "norm_topk_prob")) } : none),
    block_count: u32(types.length),
    feed_forward_length: arrayEntry(
      "i32",
      types.map((type) => (type === kind ? feedForward : 0)),
    ),
    "attention.head_count_kv": kvHeadsOf(config, types, isAttention),
    "attention.key_length": u32(headDim),
    "attention.value_length": u32(headDim),
    "attention.layer_norm_rms_epsilon": f32(
      numberIn(config, ["rms_norm_eps", "layer_norm_epsilon"], 1e-5),
    ),
    "rope.dimension_count": u32(headDim),
    context_length: u32(1 << 20), // the converter's: the model has no rotations
    "rope.scaling.finetuned": bool(false),
    "ssm.conv_kernel": u32(numberIn(config, ["conv_kernel"])),
    "ssm.state_size": u32(numberIn(config, ["ssm_state_size"])),
    "ssm.group_count": u32(numberIn(config, ["n_groups"])),
    "ssm.inner_size": u32(heads * numberIn(config, ["mamba_head_dim"])),
    "ssm.time_step_rank": u32(heads),
  };
}

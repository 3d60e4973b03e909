// Hugging Face folders: Qwen's hybrids of gated delta nets and attention. The names of their tensors, and the metadata that
// llama.cpp's converter makes of config.json. huggingface-families.ts has the table.

import {
  decay,
  type Presented,
  rowGroups,
  squeezed,
  type Target,
  wrongShape,
} from "./huggingface-changes.ts";
import { configError, numberIn, numbersIn, ropeOf, textsIn } from "./huggingface-config.ts";
import { u32 } from "./huggingface-keys.ts";
import type { HuggingFaceArchitecture, TensorNames } from "./huggingface-names.ts";
import { expertsNames, llamaNames, named, shiftedNorms } from "./huggingface-tensors.ts";
import type { JsonObject } from "./json.ts";
import type { TensorInfo } from "./model-file.ts";
import { arrayEntry, type MetadataEntry } from "./typed-metadata.ts";

interface Heads {
  readonly keys: number;
  readonly values: number;
  /** Rows of a key's and of a value's head. */
  readonly keyDim: number;
  readonly valueDim: number;
}

function headsOf(config: JsonObject): Heads {
  const keys = numberIn(config, ["linear_num_key_heads"]);
  const values = numberIn(config, ["linear_num_value_heads"]);
  const keyDim = numberIn(config, ["linear_key_head_dim"]);
  const valueDim = numberIn(config, ["linear_value_head_dim"]);
  if ([keys, values, keyDim, valueDim].every((size) => size >= 1) && values % keys === 0) {
    return { keys, values, keyDim, valueDim };
  }
  throw configError("linear_num_value_heads", String(values), `a multiple of ${keys}`);
}

/** Row numbers `first`, `first + 1`, ... */
const range = (first: number, count: number): number[] =>
  Array.from({ length: count }, (_, i) => first + i);

/** Rows in this order, in groups as large as the order allows. */
function rowsOf(
  tensor: TensorInfo,
  name: string,
  rows: readonly number[],
  unit: number,
): Presented {
  const starts = rows.filter((_, i) => i % unit === 0);
  return { name, tensor: rowGroups(tensor, starts, unit, [rows.length]) };
}

function gcd(a: number, b: number): number {
  return b === 0 ? a : gcd(b, a % b);
}

/** Qwen 3 Next: q, k, v and z of one key head after the other; GGUF has all of q, k and v, and z by itself. */
const headQkvz: Target = (tensor, config) => {
  const { keys, values, keyDim, valueDim } = headsOf(config);
  const wide = (values / keys) * valueDim;
  const head = 2 * keyDim + 2 * wide;
  if (tensor.shape.length !== 2 || tensor.shape[0] !== keys * head) {
    throw wrongShape(tensor, `[${keys} heads of ${head} rows, columns]`);
  }
  const of = (first: number, count: number): number[] =>
    range(0, keys).flatMap((each) => range(each * head + first, count));
  const unit = gcd(keyDim, wide);
  const qkv = [...of(0, keyDim), ...of(keyDim, keyDim), ...of(2 * keyDim, wide)];
  return [
    rowsOf(tensor, "attn_qkv", qkv, unit),
    rowsOf(tensor, "attn_gate", of(2 * keyDim + wide, wide), unit),
  ];
};

/**
 * Qwen 3.5 has the value heads of one key head after the other, GGUF the first of every key head, then the second: value head i of
 * GGUF is this one of the folder.
 */
function valueOrder({ keys, values }: Heads): number[] {
  const each = values / keys;
  return range(0, values).map((i) => (i % keys) * each + Math.floor(i / keys));
}

/** The rows of value heads in GGUF's order, after `before` rows that stay. */
function reordered(
  name: string,
  sizes: (heads: Heads) => { before: number; rows: number },
): Target {
  return (tensor, config) => {
    const heads = headsOf(config);
    const { before, rows } = sizes(heads);
    if (tensor.shape[0] !== before + heads.values * rows) {
      throw wrongShape(tensor, `${before} + ${heads.values} heads of ${rows} rows`);
    }
    const order = valueOrder(heads).flatMap((head) => range(before + head * rows, rows));
    return [rowsOf(tensor, name, [...range(0, before), ...order], gcd(before, rows))];
  };
}

const small = (name: string): Target => reordered(name, () => ({ before: 0, rows: 1 }));
const allRows = ({ keys, keyDim, valueDim }: Heads) => ({
  before: 2 * keys * keyDim,
  rows: valueDim,
});

/** A target of a target: the same tensor, changed twice. */
const then =
  (first: Target, second: (name: string) => Target): Target =>
  (tensor, config, table) => {
    if (typeof first === "string") return [];
    return first(tensor, config, table).flatMap((each) => {
      const next = second(each.name);
      if (typeof next === "string") return [each];
      return next(each.tensor, config, table).map((last) => ({
        ...last,
        ...(last.change && { stored: each.tensor }),
      }));
    });
  };

/** The columns of value heads in GGUF's order. */
const outColumns: Target = (tensor, config) => {
  const heads = headsOf(config);
  if (tensor.shape.length !== 2 || tensor.shape[1] !== heads.values * heads.valueDim) {
    throw wrongShape(tensor, `[rows, ${heads.values} heads of ${heads.valueDim}]`);
  }
  const change = { kind: "groups", size: heads.valueDim, order: valueOrder(heads) } as const;
  return [{ name: "ssm_out", tensor, change }];
};

const nextLayer: TensorNames["layer"] = {
  "linear_attn.conv1d": squeezed("ssm_conv1d"),
  "linear_attn.in_proj_qkvz": headQkvz,
  "linear_attn.in_proj_ba": "ssm_ba",
  "linear_attn.norm": "ssm_norm",
  "linear_attn.out_proj": "ssm_out",
};
const nextExact: NonNullable<TensorNames["exact"]> = {
  "linear_attn.A_log": decay("ssm_a"),
  "linear_attn.dt_bias": "ssm_dt.bias",
};

/** Norms are stored as their difference from 1, all but the delta net's own. */
const shifted = (base: TensorNames): TensorNames =>
  shiftedNorms(named(base, { post_attention_layernorm: "post_attention_norm" }));

const qwen35Layer: TensorNames["layer"] = {
  "linear_attn.conv1d": then(reordered("ssm_conv1d", allRows), squeezed),
  "linear_attn.in_proj_qkv": reordered("attn_qkv", allRows),
  "linear_attn.in_proj_z": reordered("attn_gate", ({ valueDim }) => ({
    before: 0,
    rows: valueDim,
  })),
  "linear_attn.in_proj_a": small("ssm_alpha"),
  "linear_attn.in_proj_b": small("ssm_beta"),
  "linear_attn.norm": "ssm_norm",
  "linear_attn.out_proj": outColumns,
};
const qwen35Exact: NonNullable<TensorNames["exact"]> = {
  "linear_attn.A_log": then(small("ssm_a"), decay),
  "linear_attn.dt_bias": small("ssm_dt.bias"),
};

function deltaKeys(config: JsonObject): Record<string, MetadataEntry | undefined> {
  const { keys, values, keyDim, valueDim } = headsOf(config);
  return {
    "ssm.conv_kernel": u32(numberIn(config, ["linear_conv_kernel_dim"])),
    "ssm.state_size": u32(keyDim),
    "ssm.group_count": u32(keys),
    "ssm.time_step_rank": u32(values),
    "ssm.inner_size": u32(values * valueDim),
    full_attention_interval: u32(intervalOf(config)),
  };
}

/** Every n-th layer has attention. */
function intervalOf(config: JsonObject): number {
  const interval = numberIn(config, ["full_attention_interval"], 4);
  const types = textsIn(config, "layer_types");
  const isRegular = (types ?? []).every(
    (type, i) => (type === "full_attention") === ((i + 1) % interval === 0),
  );
  if (interval >= 1 && isRegular) return interval;
  throw configError(
    "layer_types",
    JSON.stringify(types),
    `full_attention in every ${interval}th layer`,
  );
}

function qwen35Keys(config: JsonObject): Record<string, MetadataEntry | undefined> {
  const sections = numbersIn(ropeOf(config), "mrope_section") ?? [11, 11, 10];
  return {
    ...deltaKeys(config),
    "rope.dimension_sections": arrayEntry("i32", [...sections, 0, 0, 0, 0].slice(0, 4)),
  };
}

export const qwen3Next: HuggingFaceArchitecture = {
  name: "qwen3next",
  tensors: named(shifted(expertsNames), nextLayer, {
    exact: { ...expertsNames.exact, ...nextExact },
  }),
  defaults: { partial_rotary_factor: 0.25 },
  fixed: { norm_topk_prob: true },
  keys: deltaKeys,
};

export const qwen3_5: HuggingFaceArchitecture = {
  name: "qwen35",
  tensors: named(shifted(llamaNames), qwen35Layer, { exact: qwen35Exact }),
  defaults: { partial_rotary_factor: 0.25 },
  keys: qwen35Keys,
};

export const qwen3_5Moe: HuggingFaceArchitecture = {
  name: "qwen35moe",
  tensors: named(shifted(expertsNames), qwen35Layer, {
    exact: { ...expertsNames.exact, ...qwen35Exact },
  }),
  defaults: { partial_rotary_factor: 0.25 },
  without: ["feed_forward_length"],
  keys: qwen35Keys,
};

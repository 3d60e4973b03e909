// Reads the metadata of models with recurrent layers: the sizes of a state-space model, and which layers attend.

import type { RopeLayout } from "../graph/graph.ts";
import type { ModelConfig, ModelHeader } from "./arch.ts";
import { type ConfigOptions, LIMITS, readCommon, readExperts, readerOf } from "./config.ts";
import type { ConfigReader } from "./config-reader.ts";
import { ropeFromMetadata } from "./rope.ts";

/** The most inputs that a convolution or a head's state can have: a real model has 4 and 256. */
const SSM_LIMITS = { taps: 64, states: 1 << 12 };

/** Sizes of a state-space model (Mamba), or of linear attention. */
export interface SsmConfig {
  /** Columns that are scanned. */
  inner: number;
  /** Floats of state for each of them. */
  states: number;
  /** Heads of Mamba 2; the rank of the time steps of Mamba 1. */
  heads: number;
  /** Heads of a group share keys and queries. */
  groups: number;
  /** Inputs of the convolution before the scan. */
  taps: number;
}

export function readSsm(read: ConfigReader): SsmConfig {
  const taps = read.integer("ssm.conv_kernel", SSM_LIMITS.taps);
  if (taps < 2) read.fail("ssm.conv_kernel", taps, "at least 2");
  const groups = read.number("ssm.group_count") ? read.integer("ssm.group_count", LIMITS.heads) : 1;
  return {
    inner: read.integer("ssm.inner_size", LIMITS.size),
    states: read.integer("ssm.state_size", SSM_LIMITS.states),
    heads: read.integer("ssm.time_step_rank", LIMITS.heads),
    groups,
    taps,
  };
}

/** The same where the columns are divided into heads, and heads into groups. */
export function readHeadSsm(read: ConfigReader): SsmConfig {
  const ssm = readSsm(read);
  const { inner, heads, groups } = ssm;
  if (inner % heads !== 0) {
    read.fail("ssm.time_step_rank", heads, `a divisor of ssm.inner_size, ${inner}`);
  }
  if (heads % groups !== 0) {
    read.fail("ssm.group_count", groups, `a divisor of ssm.time_step_rank, ${heads}`);
  }
  return ssm;
}

/** A model without attention. */
export function readAttentionless(header: ModelHeader, options: ConfigOptions = {}): ModelConfig {
  const rope = { layout: "half", dims: 0, frequencies: new Float32Array(), magnitude: 1 } as const;
  return { ...readCommon(header, options), feedForward: 0, heads: 0, kvHeads: 0, headDim: 0, rope };
}

export interface HybridConfig extends ModelConfig {
  /** KV heads of each layer; 0: the layer does not attend. */
  kvHeadsOf: readonly number[];
  /** Columns of each layer's feed-forward network; 0: it has none. */
  feedForwardOf: readonly number[];
}

/** A model of which some layers attend. */
export function readHybrid(
  header: ModelHeader,
  layout: RopeLayout,
  options: ConfigOptions = {},
): HybridConfig {
  const read = readerOf(header);
  const common = readCommon(header, options);
  const heads = read.integer("attention.head_count", LIMITS.heads);
  const { layers, embed } = common;
  const kvHeadsOf = read.integersPerLayer("attention.head_count_kv", layers, LIMITS.heads, 0);
  kvHeadsOf.forEach((count, layer) => {
    if (count === 0 || heads % count === 0) return;
    read.fail(`attention.head_count_kv[${layer}]`, count, `0 or a divisor of the ${heads} heads`);
  });
  const headDim = read.integerOr("attention.key_length", embed / heads, LIMITS.size);
  const valueDim = read.integerOr("attention.value_length", headDim, LIMITS.size);
  if (valueDim !== headDim) {
    read.fail("attention.value_length", valueDim, `${headDim} (as attention.key_length)`);
  }
  const feedForwardOf = read.integersPerLayer("feed_forward_length", layers, LIMITS.size, 0);
  const feedForward = Math.max(...feedForwardOf);
  const experts = readExperts(read, feedForward, options.experts);
  return {
    ...common,
    feedForward,
    feedForwardOf,
    heads,
    kvHeads: Math.max(...kvHeadsOf) || heads,
    kvHeadsOf,
    headDim,
    rope: ropeFromMetadata(read, headDim, layout),
    ...(experts && { experts }),
  };
}

/** The scoring function of experts: llama.cpp's numbers for it. */
export function readGating(read: ConfigReader): "softmax" | "sigmoid" {
  const key = "expert_gating_func";
  const gating = read.integer(key, 3);
  if (gating > 2) read.fail(key, gating, "1 (softmax) or 2 (sigmoid)");
  return gating === 1 ? "softmax" : "sigmoid";
}

/** Layers before the first one with experts. */
export function readDenseLayers(read: ConfigReader, layers: number): number {
  const key = "leading_dense_block_count";
  return read.number(key) ? read.integer(key, layers) : 0;
}

// The configuration of models that have linear attention (KDA) in most layers and latent attention in the others: Kimi Linear, Kimi K3,
// Ling 3.

import type { RopeLayout } from "../graph/graph.ts";
import type { ModelConfig, ModelHeader } from "./arch.ts";
import { LIMITS, readCommon, readExperts, readerOf } from "./config.ts";
import type { KdaShape } from "./parts/kda.ts";
import type { LatentShape } from "./parts/latent-attention.ts";
import { readDenseLayers, readGating } from "./recurrent-config.ts";
import { ropeFromMetadata } from "./rope.ts";

export interface KimiConfig extends ModelConfig {
  isRecurrent: readonly boolean[];
  kda: KdaShape;
  attention: LatentShape;
  denseLayers: number;
  gating: "softmax" | "sigmoid";
  expertScale: number;
}

/** The differences between the families. */
export interface KimiOptions extends Pick<KdaShape, "decayFactors" | "gate" | "bound"> {
  /** Default: latent attention has no rope. */
  readonly rope?: RopeLayout;
  /** Default: queries are computed from the hidden state. */
  readonly qRank?: number;
}

export function readKimi(header: ModelHeader, options: KimiOptions): KimiConfig {
  const read = readerOf(header);
  const common = readCommon(header);
  const heads = read.integer("attention.head_count", LIMITS.heads);
  const keyDim = read.integer("attention.key_length_mla", LIMITS.size);
  const sharedDim = read.integer("rope.dimension_count", LIMITS.size);
  if (sharedDim >= keyDim) {
    read.fail("rope.dimension_count", sharedDim, `less than attention.key_length_mla, ${keyDim}`);
  }
  const feedForward = read.integer("feed_forward_length", LIMITS.size);
  const experts = readExperts(read, feedForward, "required")!;
  const sharedCount = read.integer("expert_shared_count", LIMITS.experts);
  const kv = read.integersPerLayer("attention.head_count_kv", common.layers, LIMITS.heads, 0);
  const taps = read.integer("ssm.conv_kernel", 64);
  if (taps < 2) read.fail("ssm.conv_kernel", taps, "at least 2");
  const scale = "expert_weights_scale";
  const attending = kv.findIndex((count) => count > 0);
  const { decayFactors, gate, bound, qRank = 0 } = options;
  const rope = ropeFromMetadata(read, options.rope ? sharedDim : keyDim, options.rope ?? "half");
  return {
    ...common,
    feedForward,
    heads,
    kvHeads: 1,
    headDim: keyDim,
    rope,
    experts: { ...experts, shared: experts.feedForward * sharedCount },
    isRecurrent: kv.map((count) => count === 0),
    kda: {
      heads,
      headDim: read.integer("kda.head_dim", LIMITS.size),
      taps,
      normEps: common.normEps,
      decayFactors,
      gate,
      bound,
    },
    attention: {
      heads,
      nopeDim: keyDim - sharedDim,
      ropeDim: sharedDim,
      vHeadDim: read.integer("attention.value_length_mla", LIMITS.size),
      kvRank: read.integer("attention.kv_lora_rank", LIMITS.size),
      qRank,
      absorbed: !header.tensors.has(`blk.${attending}.attn_kv_b.weight`),
      rope: options.rope && rope,
      scale: 1 / Math.sqrt(keyDim),
      normEps: common.normEps,
    },
    denseLayers: readDenseLayers(read, common.layers),
    gating: readGating(read),
    expertScale: read.number(scale) ? read.positive(scale) : 1,
  };
}

/** The largest decay, as the logarithm of the factor on the state. A real model has -5. */
export function readGateBound(header: ModelHeader): number | undefined {
  const read = readerOf(header);
  const key = "kda.gate_lower_bound";
  const bound = read.number(key);
  if (bound !== undefined && (bound >= 0 || bound < -1e3)) {
    read.fail(key, bound, "a number from -1000 to below 0");
  }
  return bound;
}

// Reads the configuration of latent attention where keys and values of all heads are computed before attention (PLM, MiniCPM 3).

import type { RopeLayout } from "../graph/graph.ts";
import type { ModelConfig } from "./arch.ts";
import { epsilonOf, LIMITS } from "./config.ts";
import type { ConfigReader } from "./config-reader.ts";
import type { LatentShape } from "./parts/latent-attention.ts";
import { ropeFromMetadata } from "./rope.ts";

type LatentConfig = Pick<ModelConfig, "feedForward" | "heads" | "kvHeads" | "headDim" | "rope"> & {
  attention: LatentShape;
};

/** `qRank`: as in LatentShape. */
export function readLatent(read: ConfigReader, layout: RopeLayout, qRank: number): LatentConfig {
  const heads = read.integer("attention.head_count", LIMITS.heads);
  const headDim = read.integer("attention.key_length", LIMITS.size);
  const ropeDim = read.integer("rope.dimension_count", headDim - 1);
  const rope = ropeFromMetadata(read, ropeDim, layout);
  return {
    feedForward: read.integer("feed_forward_length", LIMITS.size),
    heads,
    kvHeads: heads,
    headDim,
    rope,
    attention: {
      heads,
      nopeDim: headDim - ropeDim,
      ropeDim,
      vHeadDim: read.integer("attention.value_length", LIMITS.size),
      kvRank: read.integer("attention.kv_lora_rank", LIMITS.size),
      qRank,
      absorbed: false,
      rope,
      scale: 1 / Math.sqrt(headDim),
      normEps: epsilonOf(read, "attention.layer_norm_rms_epsilon"),
    },
  };
}

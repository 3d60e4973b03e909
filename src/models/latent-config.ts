// Reads the configuration of latent attention: of models that compute keys and values of all heads before attention (PLM, MiniCPM 3),
// and of models with a cache that may keep only the latent vector (DeepSeek 2 and later).

import type { Rope, RopeLayout } from "../graph/graph.ts";
import type { ModelConfig, ModelHeader } from "./arch.ts";
import { epsilonOf, LIMITS, readerOf } from "./config.ts";
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

/** The attention of DeepSeek 2: of the vector that keys and values are computed from, if the file has the matrices for that. */
export function readAbsorbed(header: ModelHeader): LatentShape & { readonly rope: Rope } {
  const read = readerOf(header);
  const absorbed = read.count("attention.key_length_mla", LIMITS.size) > 0;
  const suffix = absorbed ? "_mla" : "";
  const headDim = read.integer(`attention.key_length${suffix}`, LIMITS.size);
  const ropeDim = read.integer("rope.dimension_count", LIMITS.size);
  if (ropeDim >= headDim) {
    read.fail("rope.dimension_count", ropeDim, `less than the ${headDim} values of a head`);
  }
  const plain = ropeFromMetadata(read, ropeDim, "interleaved");
  // The file has a tenth of YaRN's mscale_all_dim, with which scores grow instead of queries and keys.
  const all = (read.between("rope.scaling.yarn_log_multiplier", 0, 1e3) ?? 0) / Math.fround(0.1);
  const factor = read.between("rope.scaling.factor", 0, 1e6) || 1;
  const grown = Math.log(Math.max(1, factor));
  const isYarn = read.string("rope.scaling.type") === "yarn";
  const own = read.between("rope.scaling.attn_factor", 1e-3, 1e3) ?? 1;
  const magnitude = isYarn && all !== 0 ? own : plain.magnitude;
  const scale = (magnitude * (isYarn ? 1 : 1 + 0.1 * grown) * (1 + 0.1 * all * grown)) ** 2;
  const temperature = read.between("attention.temperature_scale", 0, 1e3) ?? 0;
  const qRankKey = "attention.q_lora_rank";
  return {
    heads: read.integer("attention.head_count", LIMITS.heads),
    nopeDim: headDim - ropeDim,
    ropeDim,
    vHeadDim: read.integer(`attention.value_length${suffix}`, LIMITS.size),
    kvRank: read.integer("attention.kv_lora_rank", LIMITS.size),
    // A file with attn_q has its queries from the hidden state, regardless of the key.
    qRank: header.tensors.has("blk.0.attn_q.weight") ? 0 : read.integer(qRankKey, LIMITS.size),
    absorbed,
    rope: { ...plain, magnitude },
    scale: scale / Math.sqrt(headDim),
    normEps: epsilonOf(read, "attention.layer_norm_rms_epsilon"),
    temperature:
      temperature === 0
        ? undefined
        : {
            scale: temperature,
            span: read.integer("attention.temperature_length", LIMITS.context),
            offset: 0,
          },
  };
}

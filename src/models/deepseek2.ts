// DeepSeek 2 and 3, Kimi K2, GLM 4.7 Flash and others: multi-head latent attention, experts chosen by softmax or by sigmoids with a
// bias from the best groups, a shared one, and dense layers first. Layers that predict further tokens are not computed.

import type { Gating, Rope } from "../graph/graph.ts";
import type { Arch, ModelConfig, ModelHeader } from "./arch.ts";
import { epsilonOf, LIMITS, readCommon, readExperts, readerOf } from "./config.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { type LatentShape, latentAttention, latentWeights } from "./parts/latent-attention.ts";
import { moeOrSwiglu, moeOrSwigluWeights } from "./parts/moe.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { ropeFromMetadata } from "./rope.ts";
import { countedShared, type SparseConfig, withSparse } from "./sparse-config.ts";

interface Deepseek2Config extends SparseConfig {
  attention: LatentShape;
}

export const deepseek2: Arch<Deepseek2Config> = {
  names: ["deepseek2", "mistral4"],
  about: "DeepSeek 2, 2.5, 3 and R1, Kimi K2, GLM 4.7 Flash, Kanana 2, GigaChat 3, Mistral 4",

  config(header) {
    const attention = readAttention(header);
    const { heads, kvRank, nopeDim, ropeDim, rope } = attention;
    const read = readerOf(header);
    const common = readCommon(header);
    const feedForward = read.integer("feed_forward_length", LIMITS.size);
    const c: ModelConfig = {
      ...common,
      feedForward,
      heads,
      kvHeads: attention.absorbed ? 1 : heads,
      headDim: (attention.absorbed ? kvRank : nopeDim) + ropeDim,
      rope,
      experts: readExperts(read, feedForward, "required")!,
    };
    const sparse = withSparse(header, c, { gating: defaultGating(c) });
    return { ...sparse, attention, experts: countedShared(header, sparse.experts) };
  },

  weights: (c) => [
    ...endWeights(c),
    ...layerWeights(c, (layer) => [
      ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
      ...latentWeights(c.embed, layer, c.attention),
      ...moeOrSwigluWeights(c, layer, { choiceBias: "optional" }),
    ]),
  ],

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, latentAttention(g, w, a, layer, c.attention), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, moeOrSwiglu(g, w, f, layer, c), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

/** Files of GLM 4.7 Flash do not say that they have sigmoids; llama.cpp knows them by their size. */
function defaultGating({ layers, vocabSize }: ModelConfig): Gating {
  return (layers === 47 || layers === 48) && vocabSize === 154880 ? "sigmoid" : "softmax";
}

function readAttention(header: ModelHeader): LatentShape & { readonly rope: Rope } {
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
    // A file with attn_q has its queries from the hidden state, whatever the key says.
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

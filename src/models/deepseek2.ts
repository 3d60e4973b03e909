// DeepSeek 2 and 3, Kimi K2, GLM 4.7 Flash and others: multi-head latent attention, experts chosen by softmax or by sigmoids with a
// bias from the best groups, a shared one, and dense layers first.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Gating, Value } from "../graph/graph.ts";
import type { Arch, ModelConfig, WeightLookup, WeightSpec } from "./arch.ts";
import { LIMITS, readCommon, readExperts, readerOf } from "./config.ts";
import { readAbsorbed } from "./latent-config.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { type LatentShape, latentAttention, latentWeights } from "./parts/latent-attention.ts";
import { moeOrSwiglu, moeOrSwigluWeights } from "./parts/moe.ts";
import { nextOutputs, nextWeights } from "./parts/next.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { countedShared, nextSparse, type SparseConfig, withSparse } from "./sparse-config.ts";

interface Deepseek2Config extends SparseConfig {
  attention: LatentShape;
}

export const deepseek2: Arch<Deepseek2Config> = {
  names: ["deepseek2", "mistral4"],
  about: "DeepSeek 2, 2.5, 3 and R1, Kimi K2, GLM 4.7 Flash, Kanana 2, GigaChat 3, Mistral 4",

  config(header) {
    const attention = readAbsorbed(header);
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

  weights: (c) => [...endWeights(c), ...layerWeights(c, (layer) => oneLayerWeights(c, layer))],

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      x = through(g, c, w, x, layer); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },

  next: {
    weights: (c) => [...nextWeights(c), ...oneLayerWeights(nextSparse(c), c.layers)],
    forward: (g, c, w) => nextOutputs(g, c, w, (x) => through(g, nextSparse(c), w, x, c.layers)),
  },
};

/** One layer: [tokens, embed] -> [tokens, embed]. */
function through(
  g: GraphBuilder,
  c: Deepseek2Config,
  w: WeightLookup,
  x: Value,
  layer: number,
): Value {
  const norm = rmsNorms(g, w, c, layer);
  const a = norm(x, "attn_norm"); // [tokens, embed]
  const attended = g.add(x, latentAttention(g, w, a, layer, c.attention), "attn_residual"); // [tokens, embed]
  const f = norm(attended, "ffn_norm"); // [tokens, embed]
  return g.add(attended, moeOrSwiglu(g, w, f, layer, c), "ffn_residual"); // [tokens, embed]
}

function oneLayerWeights(c: Deepseek2Config, layer: number): WeightSpec[] {
  return [
    ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
    ...latentWeights(c.embed, layer, c.attention),
    ...moeOrSwigluWeights(c, layer, { choiceBias: "optional" }),
  ];
}

/** Files of GLM 4.7 Flash do not say that they have sigmoids; llama.cpp knows them by their size. */
function defaultGating({ layers, vocabSize }: ModelConfig): Gating {
  return (layers === 47 || layers === 48) && vocabSize === 154880 ? "sigmoid" : "softmax";
}

// dots 3 note: latent attention with a gate for each head and a norm of shared keys; in some layers over a window, with sizes and a rope
// of their own, in the others over positions that an indexer chooses. Experts chosen by sigmoids with a bias, and a shared one. Layers
// that predict further tokens are not computed.

import type { Value } from "../graph/graph.ts";
import type { Arch, ModelConfig, ModelHeader } from "./arch.ts";
import { LIMITS, readCommon, readExperts, readerOf } from "./config.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import {
  type IndexerShape,
  indexed,
  indexerWeights,
  isIndexed,
  readIndexer,
} from "./parts/indexer.ts";
import { type LatentShape, latentAttention, latentWeights } from "./parts/latent-attention.ts";
import { moeOrSwiglu, moeOrSwigluWeights } from "./parts/moe.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { baseOf, ropeFromMetadata } from "./rope.ts";
import { countedShared, type SparseConfig, withSparse } from "./sparse-config.ts";

interface Dots3Config extends SparseConfig {
  /** The attention of each layer. */
  attention: readonly LatentShape[];
  indexer: IndexerShape;
}

export const dots3note: Arch<Dots3Config> = {
  names: ["dots3note"],
  about: "dots 3 note",

  config(header) {
    const read = readerOf(header);
    const common = readCommon(header, { window: "own" });
    const attention = readLayers(header, common.layers, common.normEps);
    const widest = attention.reduce((a, b) => (b.kvRank > a.kvRank ? b : a));
    const feedForward = read.integer("feed_forward_length", LIMITS.size);
    const rope = ropeFromMetadata(read, widest.ropeDim, "interleaved");
    const c: ModelConfig = {
      ...common,
      feedForward,
      heads: Math.max(...attention.map(({ heads }) => heads)),
      kvHeads: 1,
      headDim: widest.kvRank + widest.ropeDim,
      rope,
      experts: readExperts(read, feedForward, "required")!,
    };
    const sparse = withSparse(header, c);
    return {
      ...sparse,
      attention,
      experts: countedShared(header, sparse.experts),
      indexer: readIndexer(header, { ...rope, layout: "half" }, 1e-6),
    };
  },

  weights: (c) => [
    ...endWeights(c),
    ...layerWeights(c, (layer) => {
      const shape = c.attention[layer]!;
      return [
        ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
        ...latentWeights(c.embed, layer, shape),
        ...(shape.window ? [] : indexerWeights(c.embed, shape.qRank, layer, c)),
        ...moeOrSwigluWeights(c, layer, { choiceBias: "required" }),
      ];
    }),
  ],

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const shape = c.attention[layer]!;
      const a = norm(x, "attn_norm"); // [tokens, embed]
      const choose = (queries: Value) =>
        shape.window || !isIndexed(c) ? undefined : indexed(g, w, a, queries, layer, c);
      const attended = latentAttention(g, w, a, layer, shape, choose); // [tokens, embed]
      x = g.add(x, attended, "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, moeOrSwiglu(g, w, f, layer, c), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

function readLayers(header: ModelHeader, layers: number, normEps: number): LatentShape[] {
  const read = readerOf(header);
  const heads = read.integersPerLayer("attention.head_count", layers, LIMITS.heads);
  const window = read.integer("attention.sliding_window", LIMITS.context);
  const windows = read.windowsPerLayer(layers, 0, LIMITS.context, window);
  const key = "attention.indexer.types";
  read.flagsPerLayer(key, layers, 0).forEach((flag, layer) => {
    const expected = windows[layer] === undefined;
    if (flag !== expected) read.fail(`${key}[${layer}]`, flag, `${expected}, as its window says`);
  });
  const ropeDim = read.integer("rope.dimension_count", LIMITS.size);
  const shapeOf = (suffix: string, base: number) => {
    const headDim = read.integer(`attention.key_length_mla${suffix}`, LIMITS.size);
    if (headDim <= ropeDim) {
      read.fail(`attention.key_length_mla${suffix}`, headDim, `more than ${ropeDim}, the rope's`);
    }
    return {
      nopeDim: headDim - ropeDim,
      ropeDim,
      vHeadDim: read.integer(`attention.value_length_mla${suffix}`, LIMITS.size),
      kvRank: read.integer(`attention.kv_lora_rank${suffix}`, LIMITS.size),
      qRank: read.integer("attention.q_lora_rank", LIMITS.size),
      absorbed: true,
      rope: ropeFromMetadata(read, ropeDim, "interleaved", base),
      scale: 1 / Math.sqrt(headDim),
      normEps,
      gate: "heads",
      keyNorm: true,
    } as const;
  };
  const full = shapeOf("", baseOf(read, "rope.freq_base", 10000));
  const windowed = shapeOf("_swa", read.positive("rope.freq_base_swa"));
  return heads.map((count, layer) => ({
    ...(windows[layer] === undefined ? full : { ...windowed, window: windows[layer] }),
    heads: count,
  }));
}

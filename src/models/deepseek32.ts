// DeepSeek 3.2 and GLM 5: as DeepSeek 3, but tokens attend only to the positions that an indexer chooses; some layers of GLM 5.2 attend to
// the positions of the layer before. Layers that predict further tokens are not computed.

import type { Value } from "../graph/graph.ts";
import type { Arch, ModelConfig, ModelHeader } from "./arch.ts";
import { LIMITS, readCommon, readExperts, readerOf } from "./config.ts";
import { readAbsorbed } from "./latent-config.ts";
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
import { countedShared, type SparseConfig, withSparse } from "./sparse-config.ts";

interface Deepseek32Config extends SparseConfig {
  attention: LatentShape;
  indexer: IndexerShape;
  /** Whether each layer has an indexer. */
  hasIndexer: readonly boolean[];
}

export const deepseek32: Arch<Deepseek32Config> = {
  names: ["deepseek32", "glm-dsa"],
  about: "DeepSeek 3.2, GLM 5, 5.1 and 5.2",

  config(header) {
    const read = readerOf(header);
    const attention = readAbsorbed(header);
    if (!attention.absorbed) read.fail("attention.key_length_mla", 0, "an integer from 1");
    const { heads, kvRank, ropeDim, rope } = attention;
    const feedForward = read.integer("feed_forward_length", LIMITS.size);
    const c: ModelConfig = {
      ...readCommon(header),
      feedForward,
      heads,
      kvHeads: 1,
      headDim: kvRank + ropeDim,
      rope,
      experts: readExperts(read, feedForward, "required")!,
    };
    const isGlm = read.architecture === "glm-dsa";
    const sparse = withSparse(header, c, { gating: isGlm ? "sigmoid" : "softmax" });
    const ofIndexer = isGlm ? rope : { ...rope, layout: "half" as const };
    return {
      ...sparse,
      attention,
      experts: countedShared(header, sparse.experts),
      indexer: readIndexer(header, ofIndexer, isGlm ? 0 : 1e-6),
      hasIndexer: isGlm ? indexedLayers(header, c) : new Array<boolean>(c.layers).fill(true),
    };
  },

  weights: (c) => [
    ...endWeights(c),
    ...layerWeights(c, (layer) => [
      ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
      ...latentWeights(c.embed, layer, c.attention),
      ...indexerWeights(c.embed, c.attention.qRank, layer, c).map((spec) =>
        // Layers that share positions may have an indexer, too.
        c.hasIndexer[layer] ? spec : { ...spec, optional: true, unread: true },
      ),
      ...moeOrSwigluWeights(c, layer, { choiceBias: "optional" }),
    ]),
  ],

  forward(g, c, w) {
    let chosen: Value | undefined; // [tokens, most]
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      const choose = (queries: Value) => {
        if (c.hasIndexer[layer] && isIndexed(c)) chosen = indexed(g, w, a, queries, layer, c);
        return chosen;
      };
      const attended = latentAttention(g, w, a, layer, c.attention, choose); // [tokens, embed]
      x = g.add(x, attended, "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, moeOrSwiglu(g, w, f, layer, c), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

/** Files of GLM 5 and 5.1 have no such key; files of GLM 5.2 may lack it, and are recognized by their context. */
function indexedLayers(header: ModelHeader, { layers, trainedContext }: ModelConfig): boolean[] {
  const read = readerOf(header);
  const key = "attention.indexer.types";
  if (header.metadata.has(`${read.architecture}.${key}`)) {
    const found = read.flagsPerLayer(key, layers, 0);
    if (!found[0]) read.fail(`${key}[0]`, false, "true: there are no positions to share yet");
    return found;
  }
  const isShared = trainedContext >= 1 << 20;
  return Array.from({ length: layers }, (_, i) => !isShared || i < 2 || i % 4 === 2);
}

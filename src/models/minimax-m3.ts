// MiniMax M3: norms of heads, rope of some values, clamped SwiGLU, experts chosen by sigmoids with a bias, and a shared one; dense layers
// first. Tokens attend to all positions, as llama.cpp does without flash attention; the indexer, which would choose blocks of them in
// long contexts, is not computed.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Value } from "../graph/graph.ts";
import type { Arch, WeightLookup, WeightSpec } from "./arch.ts";
import { LIMITS, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { linear, linearWeights } from "./parts/linear.ts";
import { moe, moeOrSwigluWeights } from "./parts/moe.ts";
import { rmsNorms } from "./parts/norms.ts";
import { countedShared, readSparse, type SparseConfig } from "./sparse-config.ts";

interface MinimaxM3Config extends SparseConfig {
  indexer: { readonly heads: number; readonly headDim: number };
}

export const minimaxM3: Arch<MinimaxM3Config> = {
  names: ["minimax-m3"],
  about: "MiniMax M3",

  config(header) {
    const read = readerOf(header);
    const c = readSparse(header, "half", { gating: "sigmoid" });
    for (const key of ["top_k", "block_size", "local_blocks"]) {
      read.integer(`attention.indexer.${key}`, LIMITS.context);
    }
    return {
      ...c,
      experts: countedShared(header, c.experts),
      indexer: {
        heads: read.integer("attention.indexer.head_count", LIMITS.heads),
        headDim: read.integer("attention.indexer.key_length", LIMITS.size),
      },
    };
  },

  weights: (c) =>
    decoderWeights(c, {
      headNorms: true,
      output: "required",
      feedForward: (layer) => [
        ...moeOrSwigluWeights(c, layer, { choiceBias: "required" }),
        ...(c.sparse[layer] ? indexerWeights(c, layer) : []),
      ],
    }),

  forward(g, c, w) {
    const { routing } = c;
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      const out = c.sparse[layer]
        ? moe(g, w, f, { layer, routing, activation: "swiglu_oai" })
        : clampedSwiglu(g, w, f, layer); // [tokens, embed]
      x = g.add(x, out, "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

/** [tokens, embed] -> [tokens, embed] */
function clampedSwiglu(g: GraphBuilder, w: WeightLookup, x: Value, layer: number): Value {
  const gate = linear(g, w, x, layer, "ffn_gate"); // [tokens, feedForward]
  const up = linear(g, w, x, layer, "ffn_up"); // [tokens, feedForward]
  const inner = g.gate(gate, up, "swiglu_oai", "ffn_swiglu_oai"); // [tokens, feedForward]
  return linear(g, w, inner, layer, "ffn_down"); // [tokens, embed]
}

/** The weights of the indexer, which is not computed. */
function indexerWeights({ embed, indexer }: MinimaxM3Config, layer: number): WeightSpec[] {
  const { heads, headDim } = indexer;
  const norm = (name: string) => ({ name: `blk.${layer}.${name}.weight`, shape: [headDim] });
  return [
    ...linearWeights(layer, "indexer.q_proj", [heads * headDim, embed]),
    ...linearWeights(layer, "indexer.k_proj", [headDim, embed]),
    norm("indexer.q_norm"),
    norm("indexer.k_norm"),
  ].map((spec) => ({ ...spec, unread: true }));
}

// Command with experts: as Command R7B (attention and network beside each other), with experts chosen by sigmoids, the mean of them and a
// shared one, and dense layers first, which have positions also without a window. Layers that predict further tokens are not computed.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Arch, WeightLookup } from "./arch.ts";
import { LIMITS, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { moeOrSwiglu, moeOrSwigluWeights } from "./parts/moe.ts";
import { layerNorms, type Norm, rmsNorms } from "./parts/norms.ts";
import { readSparse, type SparseConfig } from "./sparse-config.ts";

interface Cohere2MoeConfig extends SparseConfig {
  /** The window of each layer. */
  windows: (number | undefined)[];
  /** The layers that have positions. */
  hasRope: boolean[];
  norm: "rms" | "layer";
  logitScale: number;
}

export const cohere2moe: Arch<Cohere2MoeConfig> = {
  names: ["cohere2moe"],
  about: "Command A with experts",

  config(header) {
    const read = readerOf(header);
    const rmsKey = "attention.layer_norm_rms_epsilon";
    const norm = read.number(rmsKey) ? "rms" : "layer";
    const c = readSparse(header, "interleaved", { gating: "sigmoid" }, { window: "own", norm });
    const { experts } = c;
    const dense = read.count("leading_dense_block_count", c.layers);
    const count = read.count("expert_shared_count", LIMITS.experts);
    const window = read.integer("attention.sliding_window", LIMITS.context);
    const windows = read.windowsPerLayer(c.layers, 4, LIMITS.context, window, "first");
    return {
      ...c,
      experts: {
        ...experts,
        shared: count === 0 ? 0 : experts.shared || count * experts.feedForward,
      },
      windows,
      hasRope: windows.map((window, layer) => window !== undefined || layer < dense),
      norm,
      logitScale: read.number("logit_scale") ? read.positive("logit_scale") : 1,
    };
  },

  weights: (c) =>
    decoderWeights(c, {
      norms: ["attn_norm"],
      feedForward: (layer) => moeOrSwigluWeights(c, layer),
    }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const a = norms(g, w, c, layer)(x, "attn_norm"); // [tokens, embed]
      const rope = c.hasRope[layer] ? c.rope : undefined;
      const attended = attention(g, w, a, { ...c, layer, rope, window: c.windows[layer] }); // [tokens, embed]
      const sum = moeOrSwiglu(g, w, a, layer, c); // [tokens, embed]
      const isMean = c.sparse[layer] && c.experts.shared > 0;
      const f = isMean ? g.scale(sum, 0.5, "ffn_mean") : sum; // [tokens, embed]
      x = g.add(g.add(f, x, "ffn_residual"), attended, "residual"); // [tokens, embed]
    }
    const outputs = decoderOutputs(g, c, w, x, norms(g, w, c, undefined));
    return { ...outputs, logits: g.scale(outputs.logits, c.logitScale, "logits_scaled") }; // [logits, vocab]
  },
};

function norms(
  g: GraphBuilder,
  w: WeightLookup,
  c: Cohere2MoeConfig,
  layer: number | undefined,
): Norm {
  return (c.norm === "rms" ? rmsNorms : layerNorms)(g, w, c, layer);
}

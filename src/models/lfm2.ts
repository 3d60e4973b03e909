// LFM2, and LFM2 with experts: layers of short convolutions between two gates, and layers of attention with norms of heads.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Value } from "../graph/graph.ts";
import type { Arch, WeightLookup } from "./arch.ts";
import { LIMITS, readerOf } from "./config.ts";
import { attention, attentionWeights } from "./parts/attention.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { linear, linearRows, linearWeights } from "./parts/linear.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { type HybridConfig, readDenseLayers, readGating, readHybrid } from "./recurrent-config.ts";

interface Lfm2Config extends HybridConfig {
  /** Inputs of a convolution. */
  taps: number;
  window: number | undefined;
  /** The number of layers before the ones with experts. */
  denseLayers: number;
  gating: "softmax" | "sigmoid";
}

export const lfm2: Arch<Lfm2Config> = {
  names: ["lfm2", "lfm2moe"],
  about: "LFM2, LFM2.5, also with experts",

  config(header) {
    const read = readerOf(header);
    const c = readHybrid(header, "half", { experts: "optional", window: "own" });
    const taps = read.integer("shortconv.l_cache", 64);
    if (taps < 2) read.fail("shortconv.l_cache", taps, "at least 2");
    const key = "attention.sliding_window";
    return {
      ...c,
      taps,
      window: read.number(key) ? read.integer(key, LIMITS.context) : undefined,
      denseLayers: c.experts ? readDenseLayers(read, c.layers) : c.layers,
      gating: c.experts ? readGating(read) : "softmax",
    };
  },

  weights: (c) => [
    { name: "token_embd.weight", shape: [c.vocabSize, c.embed] },
    { name: "token_embd_norm.weight", shape: [c.embed] },
    { name: "output.weight", shape: [c.vocabSize, c.embed], optional: true },
    ...layerWeights(c, (layer) => {
      const kvHeads = c.kvHeadsOf[layer]!;
      const extras = { qkvBias: "none", headNorms: true } as const;
      return [
        ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
        ...(kvHeads === 0
          ? [
              ...linearWeights(layer, "shortconv.in_proj", [3 * c.embed, c.embed]),
              { name: `blk.${layer}.shortconv.conv.weight`, shape: [c.embed, c.taps] },
              ...linearWeights(layer, "shortconv.out_proj", [c.embed, c.embed]),
            ]
          : attentionWeights({ ...c, kvHeads, fusedQkv: false }, layer, extras)),
        ...(layer >= c.denseLayers
          ? moeWeights(c.embed, c.experts!, layer, { choiceBias: "required" })
          : gatedWeights(c.embed, c.feedForward, layer)),
      ];
    }),
  ],

  forward(g, c, w) {
    const routing = { gating: c.gating, normalise: true, scale: 1 } as const;
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const kvHeads = c.kvHeadsOf[layer]!;
      const a = norm(x, "attn_norm"); // [tokens, embed]
      const mixed =
        kvHeads === 0
          ? gatedConv(g, w, a, layer)
          : attention(g, w, a, { ...c, kvHeads, fusedQkv: false, layer }); // [tokens, embed]
      x = g.add(x, mixed, "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      const out =
        layer >= c.denseLayers
          ? moe(g, w, f, { layer, routing: { ...routing, used: c.experts!.used } })
          : swiglu(g, w, f, layer); // [tokens, embed]
      x = g.add(x, out, "ffn_residual"); // [tokens, embed]
    }
    // The norm before the output has another name here.
    const outputNorm = rmsNorms(g, w, c, undefined);
    return decoderOutputs(g, c, w, x, (value) => outputNorm(value, "token_embd_norm"));
  },
};

/** out_proj(c * conv(b * x)), where one matrix makes b, c and x: [tokens, embed] -> [tokens, embed]. */
function gatedConv(g: GraphBuilder, w: WeightLookup, input: Value, layer: number): Value {
  const { cols } = input;
  const third = (name: string, index: number) =>
    linearRows(g, w, input, {
      layer,
      fused: "shortconv.in_proj",
      name: `shortconv_${name}`,
      from: index * cols,
      count: cols,
    });
  const [b, c, x] = [third("b", 0), third("c", 1), third("x", 2)]; // [tokens, embed] each
  const taps = w.get(`blk.${layer}.shortconv.conv.weight`);
  const state = g.state({ kind: "recurrent", layer, floats: (taps.shape[1]! - 1) * cols });
  const conv = g.shortConv(g.mul(b, x, "shortconv_bx"), taps, state, "shortconv"); // [tokens, embed]
  return linear(g, w, g.mul(c, conv, "shortconv_gated"), layer, "shortconv.out_proj"); // [tokens, embed]
}

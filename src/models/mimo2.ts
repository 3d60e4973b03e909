// MiMo 2: keys and values of different size, windows with a rope of their own, sinks, and a factor on attention; experts chosen by
// sigmoids with a bias, or a dense network. Layers that predict further tokens are not computed.

import type { Rope } from "../graph/graph.ts";
import type { Arch } from "./arch.ts";
import { LIMITS, readerOf } from "./config.ts";
import { headsOf, type LayeredConfig, readLayered } from "./layered-config.ts";
import { attention, attentionWeights } from "./parts/attention.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { gatedWeights } from "./parts/feed-forward.ts";
import { moeOrSwiglu, moeOrSwigluWeights } from "./parts/moe.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { windowRope } from "./rope.ts";
import { sparseByRouter } from "./sparse-config.ts";

interface Mimo2Config extends LayeredConfig {
  /** The window of each layer. */
  windows: (number | undefined)[];
  windowRope: Rope;
  /** The factor on attention's addition to the residual. */
  valueScale: number;
}

export const mimo2: Arch<Mimo2Config> = {
  names: ["mimo2"],
  about: "MiMo 2",

  config(header) {
    const read = readerOf(header);
    const c = readLayered(header, "half");
    const window = read.integer("attention.sliding_window", LIMITS.context);
    return {
      ...c,
      experts: { ...c.experts, shared: 0 },
      routing: { ...c.routing, gating: "sigmoid", normalise: true },
      sparse: sparseByRouter(header, c.layers),
      windows: read.windowsPerLayer(c.layers, 0, LIMITS.context, window),
      windowRope: windowRope(read, c.rope, 10000),
      // 0 is 1, as in llama.cpp.
      valueScale: read.number("attention.value_scale") || 1,
    };
  },

  weights: (c) => [
    ...endWeights(c),
    ...layerWeights(c, (layer) => {
      const own = headsOf(c, layer);
      return [
        ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
        ...attentionWeights({ ...c, ...own }, layer, {
          qkvBias: "none",
          outputBias: "none",
          headNorms: false,
        }),
        { name: `blk.${layer}.attn_sinks.weight`, shape: [own.heads], optional: true },
        ...(c.sparse[layer]
          ? moeOrSwigluWeights(c, layer, { choiceBias: "optional" })
          : gatedWeights(c.embed, c.feedForward, layer, "optional")),
      ];
    }),
  ],

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const window = c.windows[layer];
      const rope = window ? c.windowRope : c.rope;
      const sinks = w.maybe(`blk.${layer}.attn_sinks.weight`); // [heads]
      const options = { ...c, ...headsOf(c, layer), layer, window, rope, sinks };
      const a = attention(g, w, norm(x, "attn_norm"), options); // [tokens, embed]
      x = g.add(x, g.scale(a, c.valueScale, "attn_scaled"), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, moeOrSwiglu(g, w, f, layer, c), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

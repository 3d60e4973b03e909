// EXAONE with experts: norms of the heads of q and k, windows in most layers and positions only there; experts chosen with a bias, a
// shared one, and dense layers first. Layers that predict further tokens are not computed.

import type { Arch } from "./arch.ts";
import { LIMITS, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { moeOrSwiglu, moeOrSwigluWeights } from "./parts/moe.ts";
import { rmsNorms } from "./parts/norms.ts";
import { readSparse, type SparseConfig } from "./sparse-config.ts";

interface ExaoneMoeConfig extends SparseConfig {
  /** The window of each layer. */
  windows: (number | undefined)[];
}

export const exaoneMoe: Arch<ExaoneMoeConfig> = {
  names: ["exaone-moe"],
  about: "K-EXAONE (with experts)",

  config(header) {
    const read = readerOf(header);
    const c = readSparse(header, "half", {}, { window: "own" });
    const window = read.integer("attention.sliding_window", LIMITS.context);
    return {
      ...c,
      experts: { ...c.experts, shared: c.experts.shared || c.experts.feedForward },
      windows: read.windowsPerLayer(c.layers, 4, LIMITS.context, window),
    };
  },

  weights: (c) =>
    decoderWeights(c, {
      headNorms: true,
      outputBias: "none",
      feedForward: (layer) => moeOrSwigluWeights(c, layer, { choiceBias: "optional" }),
    }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const window = c.windows[layer];
      const rope = window ? c.rope : undefined;
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer, window, rope }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, moeOrSwiglu(g, w, f, layer, c), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

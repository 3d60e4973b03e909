// Ling 2 and Ring 2: norms of the heads of q and k, part of a head rotated; experts chosen by sigmoids with a bias from the best
// groups, a shared one, and dense layers first. Layers that predict further tokens are not computed.

import type { Arch } from "./arch.ts";
import { LIMITS, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { moeOrSwiglu, moeOrSwigluWeights } from "./parts/moe.ts";
import { rmsNorms } from "./parts/norms.ts";
import { readSparse, type SparseConfig } from "./sparse-config.ts";

export const bailingmoe2: Arch<SparseConfig> = {
  names: ["bailingmoe2"],
  about: "Ling 2, Ring 2 (BailingMoE 2)",

  config(header) {
    const c = readSparse(header, "half");
    // Each shared expert has a size of its own, or that of the others.
    const count = readerOf(header).count("expert_shared_count", LIMITS.experts);
    const shared = (c.experts.shared || c.experts.feedForward) * count;
    return { ...c, experts: { ...c.experts, shared } };
  },

  weights: (c) =>
    decoderWeights(c, {
      headNorms: true,
      feedForward: (layer) => moeOrSwigluWeights(c, layer, { choiceBias: "optional" }),
    }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, moeOrSwiglu(g, w, f, layer, c), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

// Hunyuan A13B: norms of the heads of q and k after the rotation, and a shared expert beside the chosen ones.

import type { Arch } from "./arch.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { moeOrSwiglu, moeOrSwigluWeights } from "./parts/moe.ts";
import { rmsNorms } from "./parts/norms.ts";
import { readSparse, type SparseConfig } from "./sparse-config.ts";

export const hunyuanMoe: Arch<SparseConfig> = {
  names: ["hunyuan-moe"],
  about: "Hunyuan A13B",

  config(header) {
    const c = readSparse(header, "half", { normalise: true });
    // Without a size of its own, the shared expert has that of the feed-forward network.
    const shared = c.experts.shared || c.feedForward;
    return { ...c, experts: { ...c.experts, shared, feedForward: c.feedForward } };
  },

  weights: (c) =>
    decoderWeights(c, {
      headNorms: true,
      feedForward: (layer) => moeOrSwigluWeights(c, layer),
    }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      const attended = attention(g, w, a, { ...c, layer, normsAfterRope: true }); // [tokens, embed]
      x = g.add(x, attended, "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, moeOrSwiglu(g, w, f, layer, c), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

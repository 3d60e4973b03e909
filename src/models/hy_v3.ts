// Hunyuan 3: as Qwen 3, with experts chosen by sigmoids with a bias and a shared one in most layers, and a dense network in the others.
// Layers that predict further tokens are not computed.

import type { Arch } from "./arch.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { gatedWeights } from "./parts/feed-forward.ts";
import { moeOrSwiglu, moeOrSwigluWeights } from "./parts/moe.ts";
import { rmsNorms } from "./parts/norms.ts";
import { readSparse, type SparseConfig, sparseByRouter } from "./sparse-config.ts";

export const hyV3: Arch<SparseConfig> = {
  names: ["hy_v3"],
  about: "Hunyuan 3 (with experts)",

  config(header) {
    const c = readSparse(header, "half", { gating: "sigmoid" });
    const { experts } = c;
    return {
      ...c,
      experts: { ...experts, shared: experts.shared || experts.feedForward },
      sparse: sparseByRouter(header, c.layers),
    };
  },

  weights: (c) =>
    decoderWeights(c, {
      headNorms: true,
      feedForward: (layer) =>
        c.sparse[layer]
          ? moeOrSwigluWeights(c, layer, { choiceBias: "optional" })
          : gatedWeights(c.embed, c.feedForward, layer, "optional"),
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

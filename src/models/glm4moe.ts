// GLM 4.5 and 4.6: as GLM 4 without norms after its parts; experts chosen by sigmoids with a bias, a shared one, and dense
// layers first. Layers that predict further tokens are not computed.

import type { Arch } from "./arch.ts";
import { readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { moeOrSwiglu, moeOrSwigluWeights } from "./parts/moe.ts";
import { rmsNorms } from "./parts/norms.ts";
import { textSections } from "./rope.ts";
import { countedShared, readSparse, type SparseConfig } from "./sparse-config.ts";

export const glm4moe: Arch<SparseConfig> = {
  names: ["glm4moe"],
  about: "GLM 4.5 and 4.6 (with experts), Solar Open",

  config(header) {
    const c = readSparse(header, "half", { gating: "sigmoid" });
    const rope = textSections(readerOf(header), c.rope);
    return { ...c, rope, experts: countedShared(header, c.experts) };
  },

  weights: (c) =>
    decoderWeights(c, {
      norms: ["attn_norm", "post_attention_norm"],
      headNorms: true,
      headNormPresence: "optional",
      feedForward: (layer) => moeOrSwigluWeights(c, layer, { choiceBias: "required" }),
    }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "post_attention_norm"); // [tokens, embed]
      x = g.add(x, moeOrSwiglu(g, w, f, layer, c), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

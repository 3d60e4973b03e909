// dots.llm1: as Qwen 3, with a shared expert beside the chosen ones, and dense layers first.

import type { Arch } from "./arch.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { moeOrSwiglu, moeOrSwigluWeights } from "./parts/moe.ts";
import { rmsNorms } from "./parts/norms.ts";
import { countedShared, readSparse, type SparseConfig } from "./sparse-config.ts";

export const dots1: Arch<SparseConfig> = {
  names: ["dots1"],
  about: "dots.llm1",

  config(header) {
    const c = readSparse(header, "half");
    return { ...c, experts: countedShared(header, c.experts) };
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

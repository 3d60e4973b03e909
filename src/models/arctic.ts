// Arctic: as Llama, with a small dense network in every layer, and beside both attention and that network a mixture of experts,
// with a norm of its own for the input that attention reads, too.

import type { Arch } from "./arch.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { rmsNorms } from "./parts/norms.ts";
import { readSparse, type SparseConfig } from "./sparse-config.ts";

export const arctic: Arch<SparseConfig> = {
  names: ["arctic"],
  about: "Snowflake Arctic",
  config: (header) => readSparse(header, "interleaved"),

  weights: (c) =>
    decoderWeights(c, {
      norms: ["attn_norm", "ffn_norm", "ffn_norm_exps"],
      feedForward: (layer) => [
        ...gatedWeights(c.embed, c.embed, layer),
        ...moeWeights(c.embed, { ...c.experts, feedForward: c.feedForward, shared: 0 }, layer),
      ],
    }),

  forward(g, c, w) {
    const routing = { ...c.routing, gating: "softmax", normalise: true } as const;
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer }); // [tokens, embed]
      const post = g.add(x, a, "attn_residual"); // [tokens, embed]
      const dense = swiglu(g, w, norm(post, "ffn_norm"), layer); // [tokens, embed]
      const experts = moe(g, w, norm(x, "ffn_norm_exps"), { layer, routing }); // [tokens, embed]
      x = g.add(g.add(post, dense, "ffn_dense"), experts, "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

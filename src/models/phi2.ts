// Phi 1, 1.5 and 2: attention and a plain GELU network beside each other, behind one LayerNorm; biases everywhere, part of a head
// rotated.

import type { Arch } from "./arch.ts";
import { readConfig } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { mlp, mlpWeights } from "./parts/feed-forward.ts";
import { layerNorms } from "./parts/norms.ts";

export const phi2: Arch = {
  names: ["phi2"],
  about: "Phi 1, 1.5 and 2",
  config: (header) => readConfig(header, "half", { norm: "layer" }),

  weights: (c) =>
    decoderWeights(c, {
      normBias: "required",
      norms: ["attn_norm"],
      logitsBias: "required",
      feedForward: (layer) => mlpWeights(c.embed, c.feedForward, layer, "required"),
    }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = layerNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      const attended = attention(g, w, a, { ...c, layer }); // [tokens, embed]
      const both = g.add(attended, mlp(g, w, a, layer, "gelu"), "attn_ffn"); // [tokens, embed]
      x = g.add(both, x, "residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x, layerNorms(g, w, c, undefined));
  },
};

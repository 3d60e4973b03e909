// Nemotron 3 and 4 (Minitron), and Jais 2: LayerNorm, part of a head rotated, a network with squared ReLU.

import type { Arch } from "./arch.ts";
import { readConfig } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { mlp, mlpWeights } from "./parts/feed-forward.ts";
import { layerNorms } from "./parts/norms.ts";

export const nemotron: Arch = {
  names: ["nemotron", "jais2"],
  about: "Nemotron 3 and 4, Minitron, Jais 2",
  config: (header) => readConfig(header, "half", { norm: "layer" }),

  weights: (c) =>
    decoderWeights(c, {
      normBias: "required",
      feedForward: (layer) => mlpWeights(c.embed, c.feedForward, layer, "optional"),
    }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = layerNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, mlp(g, w, f, layer, "relu_squared"), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x, layerNorms(g, w, c, undefined));
  },
};

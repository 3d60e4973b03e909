// GPT-2 and StarCoder 1: learned positions, LayerNorm, biases everywhere, q, k and v in one tensor, a plain GELU network.

import type { Arch } from "./arch.ts";
import { readConfig } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { mlp, mlpWeights } from "./parts/feed-forward.ts";
import { layerNorms } from "./parts/norms.ts";

export const gpt2: Arch = {
  names: ["gpt2", "starcoder"],
  about: "GPT-2, StarCoder 1, SantaCoder",
  config: (header) => readConfig(header, "half", { norm: "layer" }),

  weights: (c) => [
    // The context ends where the table does.
    { name: "position_embd.weight", shape: [c.trainedContext, c.embed] },
    ...decoderWeights(c, {
      qkvBias: "required",
      outputBias: "required",
      normBias: "required",
      feedForward: (layer) => mlpWeights(c.embed, c.feedForward, layer, "required"),
    }),
  ],

  forward(g, c, w) {
    const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    const positions = g.embedPositions(w.get("position_embd.weight"), "positions"); // [tokens, embed]
    let x = g.add(embedded, positions, "embed_positions"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = layerNorms(g, w, c, layer);
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer, rope: undefined }); // [tokens, embed]
      x = g.add(x, a, "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, mlp(g, w, f, layer, "gelu"), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x, layerNorms(g, w, c, undefined));
  },
};

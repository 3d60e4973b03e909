// BLOOM: ALiBi, a norm of the embeddings, LayerNorm, biases everywhere, q, k and v in one tensor, a plain GELU network.

import type { Arch } from "./arch.ts";
import { readConfig } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { mlp, mlpWeights } from "./parts/feed-forward.ts";
import { layerNorms } from "./parts/norms.ts";

/** The strength of ALiBi. */
const ALIBI = 8;

export const bloom: Arch = {
  names: ["bloom"],
  about: "BLOOM, BLOOMZ",
  config: (header) => readConfig(header, "half", { norm: "layer" }),

  weights: (c) => [
    { name: "token_embd_norm.weight", shape: [c.embed] },
    { name: "token_embd_norm.bias", shape: [c.embed] },
    ...decoderWeights(c, {
      qkvBias: "required",
      outputBias: "required",
      normBias: "required",
      feedForward: (layer) => mlpWeights(c.embed, c.feedForward, layer, "required"),
    }),
  ],

  forward(g, c, w) {
    const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    let x = layerNorms(g, w, c, undefined)(embedded, "token_embd_norm"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = layerNorms(g, w, c, layer);
      const options = { ...c, layer, rope: undefined, alibi: ALIBI };
      const a = attention(g, w, norm(x, "attn_norm"), options); // [tokens, embed]
      x = g.add(x, a, "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, mlp(g, w, f, layer, "gelu"), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x, layerNorms(g, w, c, undefined));
  },
};

// PLM: multi-head latent attention with queries from the hidden state, and a plain network with squared ReLU.

import type { Arch, ModelConfig } from "./arch.ts";
import { readCommon, readerOf } from "./config.ts";
import { readLatent } from "./latent-config.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { mlp, mlpWeights } from "./parts/feed-forward.ts";
import { type LatentShape, latentAttention, latentWeights } from "./parts/latent-attention.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";

interface PlmConfig extends ModelConfig {
  attention: LatentShape;
}

export const plm: Arch<PlmConfig> = {
  names: ["plm"],
  about: "PLM 1.8B",

  config(header) {
    const read = readerOf(header);
    return { ...readCommon(header), ...readLatent(read, "interleaved", 0) };
  },

  weights: (c) => [
    ...endWeights(c, { output: "none" }),
    ...layerWeights(c, (layer) => [
      ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
      ...latentWeights(c.embed, layer, c.attention),
      ...mlpWeights(c.embed, c.feedForward, layer),
    ]),
  ],

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, latentAttention(g, w, a, layer, c.attention), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, mlp(g, w, f, layer, "relu_squared"), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

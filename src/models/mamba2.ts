// Mamba 2: every layer is a selective scan with heads that decay as a whole.

import type { Arch, ModelConfig } from "./arch.ts";
import { readerOf } from "./config.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { mamba2Weights, mamba2 as mambaLayer } from "./parts/mamba.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { readAttentionless, readHeadSsm, type SsmConfig } from "./recurrent-config.ts";

interface Mamba2Config extends ModelConfig {
  ssm: SsmConfig;
}

export const mamba2: Arch<Mamba2Config> = {
  names: ["mamba2"],
  about: "Mamba 2, Mamba-Codestral",
  config: (header) => ({ ...readAttentionless(header), ssm: readHeadSsm(readerOf(header)) }),

  weights: (c) => [
    ...endWeights(c),
    ...layerWeights(c, (layer) => [
      ...normWeights(layer, c.embed, ["attn_norm"]),
      ...mamba2Weights(c.embed, c.ssm, layer, "required"),
    ]),
  ],

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const a = rmsNorms(g, w, c, layer)(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, mambaLayer(g, w, a, { ...c, layer }), "residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

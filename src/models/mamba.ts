// Mamba and FalconMamba: every layer is a selective scan with channels that decay one by one.

import type { Arch, ModelConfig } from "./arch.ts";
import { readerOf } from "./config.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { mamba as mambaLayer, mambaWeights } from "./parts/mamba.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { readAttentionless, readSsm, type SsmConfig } from "./recurrent-config.ts";

interface MambaConfig extends ModelConfig {
  ssm: SsmConfig;
  /** Steps, keys and queries are normed without weights (FalconMamba). */
  plainNorms: boolean;
}

export const mamba: Arch<MambaConfig> = {
  names: ["mamba"],
  about: "Mamba, FalconMamba",

  config(header) {
    const read = readerOf(header);
    return {
      ...readAttentionless(header),
      ssm: readSsm(read),
      plainNorms: read.boolean("ssm.dt_b_c_rms") ?? false,
    };
  },

  weights: (c) => [
    ...endWeights(c),
    ...layerWeights(c, (layer) => [
      ...normWeights(layer, c.embed, ["attn_norm"]),
      ...mambaWeights(c.embed, c.ssm, layer),
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

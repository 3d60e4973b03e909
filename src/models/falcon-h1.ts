// Falcon-H1: attention and a scan of Mamba 2 side by side in every layer.

import type { Arch, ModelConfig } from "./arch.ts";
import { readConfig, readerOf } from "./config.ts";
import { attention, attentionWeights } from "./parts/attention.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { mamba2, mamba2Weights } from "./parts/mamba.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { readHeadSsm, type SsmConfig } from "./recurrent-config.ts";

interface FalconH1Config extends ModelConfig {
  ssm: SsmConfig;
  /** Factor on the scores; undefined: the usual one. */
  scale: number | undefined;
}

export const falconH1: Arch<FalconH1Config> = {
  names: ["falcon-h1"],
  about: "Falcon-H1",

  config(header) {
    const read = readerOf(header);
    return {
      ...readConfig(header, "half"),
      ssm: readHeadSsm(read),
      scale: read.number("attention.scale") ? read.positive("attention.scale") : undefined,
    };
  },

  weights: (c) => [
    ...endWeights(c),
    ...layerWeights(c, (layer) => [
      ...normWeights(layer, c.embed, ["attn_norm"]),
      ...attentionWeights(c, layer, { qkvBias: "optional", headNorms: false }),
      ...mamba2Weights(c.embed, c.ssm, layer, "optional"),
      { name: `blk.${layer}.ffn_norm`, shape: [c.embed] },
      ...gatedWeights(c.embed, c.feedForward, layer, "optional"),
    ]),
  ],

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const a = rmsNorms(g, w, c, layer)(x, "attn_norm"); // [tokens, embed]
      const attended = attention(g, w, a, { ...c, layer }); // [tokens, embed]
      const scanned = mamba2(g, w, a, { ...c, layer }); // [tokens, embed]
      x = g.add(x, g.add(attended, scanned, "mixed"), "attn_residual"); // [tokens, embed]
      const f = g.rmsNorm(x, w.get(`blk.${layer}.ffn_norm`), c.normEps, "ffn_norm"); // [tokens, embed]
      x = g.add(x, swiglu(g, w, f, layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

// Apertus: as Qwen 3, with a network of xIELU without a gate, with parameters of each layer.

import type { Arch, ModelConfig } from "./arch.ts";
import { readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { mlpWeights } from "./parts/feed-forward.ts";
import { linear } from "./parts/linear.ts";
import { rmsNorms } from "./parts/norms.ts";

interface ApertusConfig extends ModelConfig {
  /** The parameters of each layer, as the activation computes with them. */
  xielu: { alphaN: number; alphaP: number; beta: number; eps: number }[];
}

export const apertus: Arch<ApertusConfig> = {
  names: ["apertus"],
  about: "Apertus 8B and 70B",

  config(header) {
    const c = readConfig(header, "half");
    const read = readerOf(header);
    const [alphaN, alphaP, beta, eps] = ["alpha_n", "alpha_p", "beta", "eps"].map((key) =>
      read.generalNumbersPerLayer(`xielu.${key}`, c.layers, 1e3),
    ) as [number[], number[], number[], number[]];
    const softplus = (x: number) => (x > 20 ? x : Math.log1p(Math.exp(x)));
    return {
      ...c,
      xielu: Array.from({ length: c.layers }, (_, layer) => ({
        alphaN: Math.fround(beta[layer]! + softplus(alphaN[layer]!)),
        alphaP: Math.fround(softplus(alphaP[layer]!)),
        beta: beta[layer]!,
        eps: eps[layer]!,
      })),
    };
  },

  weights: (c) =>
    decoderWeights(c, {
      headNorms: true,
      feedForward: (layer) => mlpWeights(c.embed, c.feedForward, layer),
    }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer }), "attn_residual"); // [tokens, embed]
      const up = linear(g, w, norm(x, "ffn_norm"), layer, "ffn_up"); // [tokens, feedForward]
      const inner = g.xielu(up, c.xielu[layer]!, "ffn_xielu"); // [tokens, feedForward]
      x = g.add(x, linear(g, w, inner, layer, "ffn_down"), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

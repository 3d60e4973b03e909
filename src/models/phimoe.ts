// Phi 3.5 with experts: RMS norms with a bias, biases of attention and logits, and factors on rope's frequencies that depend on the
// context length. As in llama.cpp, windows are not used.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Arch, ModelConfig, WeightLookup } from "./arch.ts";
import { readConfig } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { type Norm, rmsNorms } from "./parts/norms.ts";

export const phimoe: Arch = {
  names: ["phimoe"],
  about: "Phi 3.5 with experts",
  config: (header) => readConfig(header, "half", { experts: "required", window: "none" }),

  weights: (c) =>
    decoderWeights(c, {
      normBias: "required",
      logitsBias: "required",
      feedForward: (layer) => moeWeights(c.embed, c.experts!, layer),
    }),

  forward(g, c, w) {
    const { used } = c.experts!;
    const routing = { used, gating: "softmax", normalise: true, scale: 1 } as const;
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = biasedNorms(g, w, c, layer);
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer }); // [tokens, embed]
      x = g.add(x, a, "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, moe(g, w, f, { layer, routing }), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x, biasedNorms(g, w, c, undefined));
  },
};

/** RMS norms to which a bias is added. */
function biasedNorms(
  g: GraphBuilder,
  w: WeightLookup,
  c: ModelConfig,
  layer: number | undefined,
): Norm {
  const plain = rmsNorms(g, w, c, layer);
  const prefix = layer === undefined ? "" : `blk.${layer}.`;
  return (x, name) => g.addWeight(plain(x, name), w.get(`${prefix}${name}.bias`), `${name}_biased`);
}

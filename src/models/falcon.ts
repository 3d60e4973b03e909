// Falcon: attention and a plain GELU network beside each other, behind one LayerNorm; in the 40B model and above behind one each.

import type { Arch } from "./arch.ts";
import { readConfig } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { mlp, mlpWeights } from "./parts/feed-forward.ts";
import { layerNorms } from "./parts/norms.ts";

export const falcon: Arch = {
  names: ["falcon"],
  about: "Falcon 7B to 180B",
  config: (header) => readConfig(header, "half", { norm: "layer" }),

  weights: (c) => [
    ...decoderWeights(c, {
      qkvBias: "none",
      norms: ["attn_norm"],
      normBias: "required",
      feedForward: (layer) => mlpWeights(c.embed, c.feedForward, layer),
    }),
    ...Array.from({ length: c.layers }, (_, layer) =>
      ["weight", "bias"].map((part) => ({
        name: `blk.${layer}.attn_norm_2.${part}`,
        shape: [c.embed],
        optional: true,
      })),
    ).flat(),
  ],

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = layerNorms(g, w, c, layer);
      const f = norm(x, "attn_norm"); // [tokens, embed]
      const hasOwn = w.maybe(`blk.${layer}.attn_norm_2.weight`) !== undefined;
      const a = hasOwn ? norm(x, "attn_norm_2") : f; // [tokens, embed]
      const attended = attention(g, w, a, { ...c, layer }); // [tokens, embed]
      const both = g.add(attended, mlp(g, w, f, layer, "gelu"), "attn_ffn"); // [tokens, embed]
      x = g.add(both, x, "residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x, layerNorms(g, w, c, undefined));
  },
};

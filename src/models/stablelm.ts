// StableLM: LayerNorm, part of a head rotated, a gated network. The 12B model has a norm of each head of q and k, and one norm for
// attention and network.

import type { Arch } from "./arch.ts";
import { readConfig } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { swiglu } from "./parts/feed-forward.ts";
import { layerNorms, normWeights } from "./parts/norms.ts";

export const stablelm: Arch = {
  names: ["stablelm"],
  about: "StableLM 3B, 2 1.6B and 2 12B",
  config: (header) => readConfig(header, "half", { norm: "layer" }),

  weights: (c) => [
    ...decoderWeights(c, {
      norms: ["attn_norm"],
      normBias: "required",
      headNorms: "own",
      headNormPresence: "optional",
    }),
    ...Array.from({ length: c.layers }, (_, layer) =>
      normWeights(layer, c.embed, ["ffn_norm"], "required").map((spec) => ({
        ...spec,
        optional: true,
      })),
    ).flat(),
  ],

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = layerNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      const attended = attention(g, w, a, { ...c, layer, headNorm: "layer" }); // [tokens, embed]
      x = g.add(x, attended, "attn_residual"); // [tokens, embed]
      const hasOwn = w.maybe(`blk.${layer}.ffn_norm.weight`) !== undefined;
      const f = hasOwn ? norm(x, "ffn_norm") : a; // [tokens, embed]
      x = g.add(x, swiglu(g, w, f, layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x, layerNorms(g, w, c, undefined));
  },
};

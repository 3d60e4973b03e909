// GPT-NeoX, Pythia, Dolly: LayerNorm, biases everywhere, part of a head rotated, a plain GELU network. Attention and network read
// the same residual, or one after the other.

import type { Arch, ModelConfig } from "./arch.ts";
import { readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { mlp, mlpWeights } from "./parts/feed-forward.ts";
import { layerNorms } from "./parts/norms.ts";

interface GptNeoXConfig extends ModelConfig {
  isParallel: boolean;
}

export const gptneox: Arch<GptNeoXConfig> = {
  names: ["gptneox"],
  about: "GPT-NeoX, Pythia, Dolly",

  config(header) {
    const read = readerOf(header);
    const isParallel = read.boolean("use_parallel_residual");
    if (isParallel === undefined)
      return read.fail("use_parallel_residual", undefined, "true or false");
    return { ...readConfig(header, "half", { norm: "layer" }), isParallel };
  },

  weights: (c) =>
    decoderWeights(c, {
      normBias: "required",
      feedForward: (layer) => mlpWeights(c.embed, c.feedForward, layer, "required"),
    }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = layerNorms(g, w, c, layer);
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer }); // [tokens, embed]
      const after = g.add(x, a, "attn_residual"); // [tokens, embed]
      const f = norm(c.isParallel ? x : after, "ffn_norm"); // [tokens, embed]
      x = g.add(after, mlp(g, w, f, layer, "gelu"), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x, layerNorms(g, w, c, undefined));
  },
};

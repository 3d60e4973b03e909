// Gemma 1: as Llama, with scaled embeddings, a GELU gate, rotary pairs half a head apart and always tied embeddings.
// GGUF files store the norms' weights with Gemma's "1 +" already added.

import type { Arch } from "./arch.ts";
import { readConfig } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { geglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";

export const gemma: Arch = {
  names: ["gemma"],
  about: "Gemma 1",
  config: (header) => readConfig(header, "half"),

  weights: (c) => decoderWeights(c, { output: "none" }),

  forward(g, c, w) {
    const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    let x = g.scale(embedded, Math.sqrt(c.embed), "embed_scaled"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, geglu(g, w, f, layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

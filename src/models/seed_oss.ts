// Seed-OSS: as Qwen 2, with heads of their own size; its second norm is called post_attention_norm.

import type { Arch } from "./arch.ts";
import { readConfig } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { swiglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";

export const seedOss: Arch = {
  names: ["seed_oss"],
  about: "Seed-OSS",
  config: (header) => readConfig(header, "half"),

  weights: (c) => decoderWeights(c, { norms: ["attn_norm", "post_attention_norm"] }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "post_attention_norm"); // [tokens, embed]
      x = g.add(x, swiglu(g, w, f, layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

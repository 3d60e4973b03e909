// ChatGLM 3 and GLM 4 (the first): as Llama, with q, k and v in one tensor, gate and up in another, and half of a head rotated.

import type { Arch } from "./arch.ts";
import { readConfig } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { fusedGatedWeights, fusedSwiglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";

export const chatglm: Arch = {
  names: ["chatglm"],
  about: "ChatGLM 2 and 3, GLM 4 9B (the first)",
  config: (header) => readConfig(header, "interleaved"),

  weights: (c) =>
    decoderWeights(c, {
      feedForward: (layer) => fusedGatedWeights(c.embed, c.feedForward, layer),
    }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, fusedSwiglu(g, w, f, layer, c.feedForward), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

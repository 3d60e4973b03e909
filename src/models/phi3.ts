// Phi 3, 3.5 and 4 (dense): as Llama, with q, k and v in one tensor, gate and up in another, rotary pairs half a head apart, and
// factors on their frequencies that depend on the context length. As in llama.cpp, windows are not used.

import type { Arch } from "./arch.ts";
import { readConfig } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { fusedGatedWeights, fusedSwiglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";

export const phi3: Arch = {
  names: ["phi3"],
  about: "Phi 3, 3.5 and 4 (dense)",
  config: (header) => readConfig(header, "half", { window: "none" }),

  weights: (c) =>
    decoderWeights(c, {
      feedForward: (layer) => fusedGatedWeights(c.embed, c.feedForward, layer),
    }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer }); // [tokens, embed]
      x = g.add(x, a, "attn_residual"); // [tokens, embed]
      const f = fusedSwiglu(g, w, norm(x, "ffn_norm"), layer, c.feedForward); // [tokens, embed]
      x = g.add(x, f, "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
